use super::{Context, Report, text};
use crate::control::Request;
use crate::failure::Failure;
use crate::query::Pending;

/// List operations that are not finished: open, failed, or interrupted
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Asks for them.
///
/// # Errors
/// When the journal can't be read.
pub(super) fn run(_args: Args, context: &Context) -> Result<Report, Failure> {
    let pending: Pending = context.call(Request::Pending)?;
    let shown = match pending.operations.is_empty() {
        true => "nothing is unfinished".to_owned(),
        false => text::entries(&pending.operations),
    };
    Report::new(&pending, shown)
}
