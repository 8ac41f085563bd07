use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Context, Report};
use crate::daemon::{self, Wanted};
use crate::failure::Failure;

/// Mount a directory as a workspace, so that nothing removed in it is lost
///
/// Mounts over DIR itself: every path in it stays what it was. Returns once the mount answers;
/// its daemon works in the background. A station that was never set up is set up with the local
/// profile. Mounting what is mounted already changes nothing; a mount whose daemon has died is
/// taken away and made anew.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trash mount ~/src/project")]
pub struct Args {
    /// Directory to mount over
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Show SRC at DIR, instead of what is in DIR
    #[arg(long, value_name = "SRC")]
    source: Option<PathBuf>,
    /// Stay in the foreground and log to standard error
    #[arg(long, short)]
    foreground: bool,
    /// Let other users in, too (root's mounts always do; others need user_allow_other in /etc/fuse.conf)
    #[arg(long)]
    allow_other: bool,
    /// This is the process in the background
    #[arg(long, hide = true, conflicts_with = "foreground")]
    detached: bool,
}

/// Runs it.
///
/// # Errors
/// Whatever keeps the directory from being mounted.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let wanted = Wanted {
        dir: context.absolute(&args.dir)?,
        source: args.source.map(|s| context.absolute(&s)).transpose()?,
        allow_other: args.allow_other,
    };
    if args.detached {
        daemon::detached(&wanted)?;
        return Ok(Report::silent());
    }
    if args.foreground {
        daemon::run(&wanted, false, &mut |report| {
            tracing::info!("{}", text(&report));
            Ok(())
        })?;
        return Ok(Report::silent());
    }
    let report = daemon::start(&arguments(&wanted))?;
    Report::new(&report, text(&report))
}

fn arguments(wanted: &Wanted) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec!["mount".into(), "--detached".into()];
    if wanted.allow_other {
        all.push("--allow-other".into());
    }
    if let Some(source) = &wanted.source {
        all.push("--source".into());
        all.push(source.into());
    }
    all.push("--".into());
    all.push(path_argument(&wanted.dir));
    all
}

fn path_argument(path: &Path) -> OsString {
    path.as_os_str().to_owned()
}

fn text(report: &daemon::Report) -> String {
    let path = report.path.display();
    let mut lines = report.notices.clone();
    lines.push(
        match (report.already_mounted, report.path == report.source) {
            (true, _) => format!("{path} is already mounted (daemon {})", report.pid),
            (false, true) => format!("mounted {path} (daemon {})", report.pid),
            (false, false) => format!(
                "mounted {} at {path} (daemon {})",
                report.source.display(),
                report.pid
            ),
        },
    );
    lines.join("\n")
}
