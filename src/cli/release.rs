use super::output::{FAINT, styled};
use super::{Context, Report, text};
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::retention::Released;

/// Finish or give up operations that were interrupted or have failed
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this entry, by its id or the beginning of it
    pub id: Option<String>,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Give up what is incomplete
    #[arg(long)]
    pub discard_incomplete: bool,
    /// Take over a lock whose owner is gone (in the local profile a lock goes with its owner, so
    /// there is never one to take)
    #[arg(long)]
    pub take_abandoned_lock: bool,
}

/// Releases.
///
/// # Errors
/// `unknown-id`, `ambiguous-id`.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let request = || Request::Release {
        entry: args.id.clone(),
        discard_incomplete: args.discard_incomplete,
        dry_run: args.dry_run,
    };
    let released: Released = match args.id {
        Some(_) => context.ask_about(request)?,
        None => control::call_for(&context.located()?, request())?,
    };
    Report::new(&released, shown(&released))
}

fn shown(released: &Released) -> String {
    let verb = if released.dry_run {
        "would release"
    } else {
        "released"
    };
    let mut lines: Vec<String> = released
        .released
        .iter()
        .map(|entry| format!("{verb} {} {}", text::id(&entry.id), text::path(&entry.path)))
        .collect();
    lines.extend(released.kept.iter().map(|kept| {
        format!(
            "kept {} {}: {}\n  {} {}",
            text::id(&kept.id),
            text::path(&kept.path),
            text::safe(&kept.reason),
            styled(FAINT, "next:"),
            text::safe(&kept.next)
        )
    }));
    if lines.is_empty() {
        return "there is nothing to release".to_owned();
    }
    lines.join("\n")
}
