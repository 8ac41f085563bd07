use super::{Context, Report};
use crate::failure::Failure;

/// unmount
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// Until it is wired.
pub(super) fn run(_args: Args, _context: &Context) -> Result<Report, Failure> {
    Err(Failure::failed(
        "unavailable",
        "trash unmount is not wired yet",
    ))
}
