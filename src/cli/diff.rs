use std::path::PathBuf;

use super::{Context, Report};
use crate::failure::Failure;

/// Compare what an entry keeps with what is there now
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The entry, or the beginning of its id
    pub id: String,
    /// Which path of it, PATH@N for version N; may be left out where there is only one
    #[arg(value_name = "MEMBER")]
    pub member: Option<PathBuf>,
}

/// Asks for the comparison.
///
/// # Errors
/// `unknown-id`, `ambiguous-id`, `which-member`.
pub(super) fn run(_args: Args, _context: &Context) -> Result<Report, Failure> {
    Err(Failure::failed(
        "unavailable",
        "trash diff is not wired yet",
    ))
}
