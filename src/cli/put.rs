use std::path::PathBuf;

use super::{Context, Report};
use crate::failure::Failure;

/// Remove paths so that they can be restored, in a workspace or anywhere else
///
/// What can't be kept is not removed (exit code 2).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to remove
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Keep it for so many days (1 to 365)
    #[arg(long, value_name = "DAYS")]
    pub retention: Option<u32>,
    /// Delete outright and log it: nothing is kept
    #[arg(long, conflicts_with = "retention")]
    pub permanent: bool,
}

/// Puts each away.
///
/// # Errors
/// `refused` with the reason for what can't be put away.
pub(super) fn run(_args: Args, _context: &Context) -> Result<Report, Failure> {
    Err(Failure::failed("unavailable", "trash put is not wired yet"))
}
