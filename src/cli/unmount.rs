use std::path::PathBuf;

use super::{Context, Report};
use crate::daemon;
use crate::failure::Failure;

/// Unmount a workspace
///
/// What was kept stays in the directory's .trashfs, and can be listed and restored without the
/// mount. A mount that is in use stays, unless --lazy is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trash unmount ~/src/project")]
pub struct Args {
    /// The mounted directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Detach it also while it is in use; its users lose it
    #[arg(long, short)]
    lazy: bool,
}

/// Runs it.
///
/// # Errors
/// `busy`, `not-mounted`, or what unmounting gives.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let dir = context.absolute(&args.dir)?;
    let done = daemon::unmount(&dir, args.lazy)?;
    let path = done.path.display();
    let text = match done.was_stale {
        true => format!("took away the dead mount on {path}"),
        false => format!("unmounted {path}"),
    };
    Report::new(&done, text)
}
