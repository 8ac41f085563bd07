use super::output::{FAINT, styled};
use super::{Context, Report, restored, text};
use crate::clock::UnixNanos;
use crate::control::Request;
use crate::failure::Failure;
use crate::record::Cause;
use crate::restore::{UndoSpec, Undone};

/// Take back the newest removal
///
/// Takes back the newest operation of this workspace that removed something and was not taken
/// back yet, whole. Later work is never touched: what was changed since then stays as it is, and
/// the command says so (exit code 2).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  trash undo --dry-run\n  trash undo --cause replace")]
pub struct Args {
    /// All operations of this session (see trash run)
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// All operations since then: 2h, 7d, or an RFC 3339 time
    #[arg(long, value_name = "TIME", value_parser = text::parse_since)]
    pub since: Option<UnixNanos>,
    /// The newest operation that did this; removals where nothing is said
    #[arg(long, value_parser = super::cause_parser())]
    pub cause: Option<Cause>,
    /// The operation of this entry
    #[arg(long, value_name = "ID", conflicts_with_all = ["session", "since", "cause"])]
    pub entry: Option<String>,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
}

/// Takes it back and says what went where.
///
/// # Errors
/// `nothing-to-undo` and the refusals of a restore.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let spec = UndoSpec {
        session: args.session,
        since: args.since,
        cause: args.cause,
        entry: args.entry,
        dry_run: args.dry_run,
    };
    let undone: Undone = context.output.while_busy("taking back", || {
        match spec.entry {
            // Its workspace may be another one.
            Some(_) => context.ask_about(|| Request::Undo(spec.clone())),
            None => context.call(Request::Undo(spec)),
        }
    })?;
    let report = Report::new(&undone, shown(&undone))?;
    Ok(report.maybe_ending(restored::ending(&undone.restored)))
}

fn shown(undone: &Undone) -> String {
    let mut lines: Vec<String> = undone
        .operations
        .iter()
        .map(|operation| {
            let command = operation
                .command
                .as_deref()
                .unwrap_or("a command of trash itself, or one that could not be seen");
            let when = text::local_time(operation.removed_at);
            let what = format!("{} of {when}", text::safe(&text::cut(command, 70)));
            styled(FAINT, format_args!("taking back: {what}"))
        })
        .collect();
    lines.push(restored::lines(&undone.restored, None));
    lines.join("\n")
}
