use std::path::PathBuf;

use super::{Context, Report};
use crate::failure::Failure;

/// Finish an interrupted restore, or copy all that an entry keeps to a directory
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The entry, or the beginning of its id
    pub id: String,
    /// Copy everything into this directory
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
}

/// Recovers.
///
/// # Errors
/// `unknown-id`, `ambiguous-id`, and the refusals of a restore.
pub(super) fn run(_args: Args, _context: &Context) -> Result<Report, Failure> {
    Err(Failure::failed(
        "unavailable",
        "trash recover is not wired yet",
    ))
}
