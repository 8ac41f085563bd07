use std::path::PathBuf;

use super::{Context, Report, destination, restored};
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::record::Bytes;
use crate::restore::{Mode, RestoreSpec, Restored};
use crate::station::Located;

/// Put back what an entry keeps
///
/// By default everything goes back to where it was, at once and without a copy. Nothing is ever
/// overwritten: where something is in the way, nothing is changed and the command says what is
/// there (exit code 2).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trash restore 5gikyr6i\n  trash restore 5gikyr6i src/main.rs --swap\n  trash restore 5gikyr6i --to /tmp/look"
)]
pub struct Args {
    /// The entry, or the beginning of its id
    pub id: String,
    /// Only these paths of it, as trash info shows them; PATH@N for version N
    #[arg(value_name = "MEMBER")]
    pub members: Vec<PathBuf>,
    /// Copy into this directory instead; the entry keeps its own
    #[arg(long, value_name = "DIR")]
    pub to: Option<PathBuf>,
    /// Enter directories that exist and add to them what they lack
    #[arg(long, conflicts_with = "swap")]
    pub merge: bool,
    /// Let what is in the way change places with what is restored
    #[arg(long, conflicts_with = "to")]
    pub swap: bool,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Read every byte and compare it with its hash before anything moves
    #[arg(long)]
    pub verify: bool,
}

/// Restores in the workspace that has the entry.
///
/// # Errors
/// `occupied` and the other refusals of a restore.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let done = context.output.while_busy("restoring", || {
        context.call_about(|located| restore(&args, context, located))
    })?;
    let below = args.to.as_deref().map(|dir| dir.to_string_lossy());
    let report = Report::new(&done, restored::lines(&done, below.as_deref()))?;
    Ok(report.maybe_ending(restored::ending(&done)))
}

fn restore(args: &Args, context: &Context, located: &Located) -> Result<Restored, Failure> {
    let members: Result<Vec<Bytes>, Failure> = args
        .members
        .iter()
        .map(|typed| context.member(located, typed).map(Bytes::from))
        .collect();
    let mode = match (args.merge, args.swap) {
        (true, _) => Mode::Merge,
        (_, true) => Mode::Swap,
        _ => Mode::Refuse,
    };
    let spec = RestoreSpec {
        entry: args.id.clone(),
        members: members?,
        to: None,
        mode,
        dry_run: args.dry_run,
        verify_fully: args.verify,
    };
    let to = destination::of(context, located, args.to.as_deref())?;
    let request = Request::Restore {
        spec,
        inside: to.inside,
        outside: to.outside,
    };
    super::parsed(control::call(located, request, to.fds)?.value)
}
