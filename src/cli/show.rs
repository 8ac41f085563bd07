use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::{Context, Report, text};
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::record::Bytes;
use crate::show::Shown;

/// Print what an entry keeps of a file
///
/// A file's bytes go to standard output as they are; of a directory its names, of a link its
/// target.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trash show 5gikyr6i src/main.rs > main.rs.old")]
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
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let answer = context.call_about(|located| {
        let member = args.member.as_deref();
        let member = member.map(|typed| context.member(located, typed));
        let request = Request::Show {
            entry: args.id.clone(),
            member: member.transpose()?.map(Bytes::from),
        };
        control::call(located, request, Vec::new())
    })?;
    let shown: Shown = super::parsed(answer.value)?;
    match answer.fds.into_iter().next() {
        Some(file) if !context.output.json_asked() => stream(file, &shown),
        _ => Report::new(&shown, lines(&shown)),
    }
}

fn stream(file: OwnedFd, shown: &Shown) -> Result<Report, Failure> {
    let mut out = std::io::stdout().lock();
    let copied = std::io::copy(&mut std::fs::File::from(file), &mut out).and_then(|_| out.flush());
    match copied {
        Ok(()) => Ok(Report::silent()),
        // Whoever read it has seen enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(Report::silent()),
        Err(e) => {
            let what = format!("showing {}", shown.path.display());
            Err(Failure::io(what, &e).state("nothing was changed; not all of it was shown"))
        }
    }
}

fn lines(shown: &Shown) -> String {
    let mut lines: Vec<String> = shown.names.iter().map(text::path).collect();
    if shown.more_names > 0 {
        lines.push(format!("… and {} more", shown.more_names));
    }
    if let Some(target) = &shown.target {
        lines.push(text::path(target));
    }
    lines.join("\n")
}
