use std::path::PathBuf;

use super::{Context, Report, destination, restored};
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::restore::Recovered;

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
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let done: Recovered = context.output.while_busy("recovering", || {
        context.call_about(|located| {
            let to = destination::of(context, located, args.to.as_deref())?;
            let request = Request::Recover {
                entry: args.id.clone(),
                inside: to.inside,
                outside: to.outside,
            };
            super::parsed(control::call(located, request, to.fds)?.value)
        })
    })?;
    let below = args.to.as_deref().map(|dir| dir.to_string_lossy());
    let mut text = restored::lines(&done.restored, below.as_deref());
    if !done.interrupted && args.to.is_none() {
        text = "no restore of it was interrupted; to put it back: trash restore".to_owned();
    }
    let report = Report::new(&done, text)?;
    Ok(report.maybe_ending(restored::ending(&done.restored)))
}
