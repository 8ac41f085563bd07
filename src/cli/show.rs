use std::path::PathBuf;

use super::{Context, Report};
use crate::failure::Failure;

/// Print what an entry keeps of a file
///
/// A file's bytes go to standard output as they are; of a directory its names, of a link its
/// target.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The entry, or the beginning of its id
    pub id: String,
    /// Which path of it, PATH@N for version N; may be left out where there is only one
    #[arg(value_name = "MEMBER")]
    pub member: Option<PathBuf>,
}

/// Copies the file to standard output.
///
/// # Errors
/// `unknown-id`, `ambiguous-id`, `which-member`.
pub(super) fn run(_args: Args, _context: &Context) -> Result<Report, Failure> {
    Err(Failure::failed(
        "unavailable",
        "trash show is not wired yet",
    ))
}
