use std::path::{Path, PathBuf};

use rustix::fs::{Mode as FileMode, OFlags};

use super::{Context, Report, restored};
use crate::cli::context::word;
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::record::Bytes;
use crate::restore::{Mode, RestoreSpec, Restored};
use crate::station::{self, Located};

/// Put back what an entry keeps
///
/// By default everything goes back to where it was, at once and without a copy. Nothing is ever
/// overwritten: where something is in the way, nothing is changed and the command says what is
/// there (exit code 2).
#[derive(Debug, clap::Args)]
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
    let Some(dir) = &args.to else {
        let request = Request::Restore {
            spec,
            inside: None,
            outside: None,
        };
        return control::call_for(located, request);
    };
    copy_to(context, located, spec, dir)
}

/// A directory of the workspace is named by its path in it, since the daemon must not go through
/// its own mount; any other one is handed over open.
fn copy_to(
    context: &Context,
    located: &Located,
    spec: RestoreSpec,
    dir: &Path,
) -> Result<Restored, Failure> {
    let absolute = context.absolute(dir)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&absolute, flags, FileMode::empty()).map_err(|e| {
        let failure = Failure::io(dir.display().to_string(), &e.into());
        Failure {
            code: "no-such-directory".into(),
            ending: crate::failure::Ending::Refused,
            ..failure
        }
        .state("nothing was restored")
        .next(format!("mkdir -p {}", word(dir)))
    })?;
    let real = station::normalised(&absolute);
    let (inside, outside, fds) = match real.strip_prefix(located.path()) {
        Ok(inside) => (Some(Bytes::from(inside)), None, Vec::new()),
        Err(_) => (None, Some(Bytes::from(dir)), vec![fd]),
    };
    let request = Request::Restore {
        spec,
        inside,
        outside,
    };
    let answer = control::call(located, request, fds)?;
    super::parsed(answer.value)
}
