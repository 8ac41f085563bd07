use std::path::PathBuf;

use super::output::{FAINT, GOOD, WARNING, styled};
use super::{Context, Report, text};
use crate::failure::Failure;
use crate::put::{self, Away, Put, PutSpec};

/// Remove paths so that they can be restored, in a workspace or anywhere else
///
/// What can't be kept is not removed (exit code 2).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trash put old-build notes.txt --retention 30")]
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
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let spec = PutSpec::by_caller(args.retention, args.permanent);
    let cwd = context.current_dir()?;
    let done = context
        .output
        .while_busy("putting away", || put::put(&cwd, &args.paths, &spec))?;
    Report::new(&done, shown(&done))
}

fn shown(done: &Put) -> String {
    let mut lines: Vec<String> = done.put.iter().map(line).collect();
    if let Some(entry) = done.put.iter().find_map(|away| away.entry.as_ref()) {
        let next = format!("trash restore {entry}");
        lines.push(format!("{} {next}", styled(FAINT, "to take it back:")));
    }
    lines.join("\n")
}

fn line(away: &Away) -> String {
    let path = text::path(&away.path);
    match &away.entry {
        Some(entry) => format!("{} {path} as {}", styled(GOOD, "put away"), text::id(entry)),
        None => format!("{} {path}", styled(WARNING, "deleted outright")),
    }
}
