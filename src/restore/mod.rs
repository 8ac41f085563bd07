//! Giving back what was kept.
//!
//! Every restore is planned first: all paths that are in the way are found before anything
//! changes. Then an intent record is written beside the entry, and each step is one atomic
//! rename. An interrupted restore is finished by [`recover`] from that record.

mod act;
mod capturing;
mod intent;
pub(crate) mod links;
mod outside;
mod parents;
mod plan;
mod recover;
mod report;
mod run;
mod select;
mod staged;
mod tame;
mod undo;
mod verify;

#[cfg(test)]
pub(crate) mod tests;

pub use intent::INTENT;
pub use recover::{interrupted, recover};
pub use report::{
    LeftAlone, Mode, Placed, Recovered, RestoreSpec, Restored, Target, There, UndoSpec, Undone,
    UndoneOperation, Verified, Why,
};
pub use undo::undo;

pub(crate) use capturing::note_lookalikes;
pub(crate) use plan::{Prefer, choose};
pub(crate) use select::member_at;
pub(crate) use staged::{Candidate, Holding};

use crate::failure::Failure;
use crate::record::Entry;
use crate::restore::act::Halt;
use crate::restore::capturing::Captures;
use crate::restore::intent::Plan;
use crate::restore::plan::Planner;
use crate::restore::run::Ran;
use crate::workspace::Workspace;

/// Paths that a message lists.
const LISTED_MAX: usize = 10;

/// Puts an entry, or members of it, back: to where it was captured, or as copies elsewhere.
///
/// # Errors
/// A refusal, before anything changed, when something is in the way; otherwise what went wrong
/// and in what state things are.
pub fn restore(ws: &Workspace, spec: &RestoreSpec) -> Result<Restored, Failure> {
    restore_stoppable(ws, spec, &mut || false)
}

/// [`restore`], with a closure that can stop it between any two changes as a crash would.
pub(crate) fn restore_stoppable(
    ws: &Workspace,
    spec: &RestoreSpec,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Restored, Failure> {
    ws.close_operations();
    let entry = ws.journal.find(&spec.entry)?;
    let _pin = ws.staging.pin_or_busy(&entry.id)?;
    let holding = select::open(ws, &entry)?;
    let candidates = select::candidates(&holding, &spec.members)?;
    let (chosen, others) = choose(candidates, Prefer::Newest);
    if let Some(target) = &spec.to {
        return outside::copy_out(ws, &holding, &chosen, (target, spec.dry_run));
    }
    let checked = verify::check(&entry, &holding, spec.verify_fully)?;
    let holdings = [holding];
    let mut planner = Planner::new(
        ws,
        &holdings,
        (Prefer::Newest, spec.mode),
        Captures::by("swap"),
    )?;
    for candidate in &chosen {
        planner.place(&candidate.at, &candidate.attr, candidate.path())?;
    }
    for other in &others {
        planner.leave(&other.at, other.path(), Why::OtherVersion, None);
    }
    let plan = planner.finish();
    refuse_if_in_the_way(&entry, &plan)?;
    let restored = carry_out(ws, plan, spec.dry_run, stop)?;
    Ok(checked.told_in(restored))
}

/// Carries a plan out, or with `dry_run` only tells it.
fn carry_out(
    ws: &Workspace,
    plan: Plan,
    dry_run: bool,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Restored, Failure> {
    let ran = if dry_run {
        Ran::default()
    } else {
        run::run(ws, &plan.intent, false, stop).map_err(|halt| halted(halt, &plan))?
    };
    let mut left_alone = plan.left_alone;
    left_alone.extend(ran.left_alone);
    Ok(Restored {
        entries: plan.intent.entries,
        restored: plan.placed,
        recreated: plan.recreated,
        left_alone,
        captured: ran.captured,
        remaining: ran.remaining,
        verified: Verified::NeverMoved,
        notes: ran.notes,
        dry_run,
    })
}

fn halted(halt: Halt, plan: &Plan) -> Failure {
    match halt {
        Halt::Failed(mut failure) => {
            if let Some(id) = plan.intent.entries.first() {
                failure.next = failure.next.replace("ID", id.as_str());
            }
            failure
        }
        Halt::Stopped => Failure::failed("interrupted", "the restore was interrupted"),
    }
}

/// One refusal for all that is in the way.
fn refuse_if_in_the_way(entry: &Entry, plan: &Plan) -> Result<(), Failure> {
    let blocked: Vec<&LeftAlone> = plan
        .left_alone
        .iter()
        .filter(|left| left.why != Why::OtherVersion)
        .collect();
    if blocked.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> = blocked
        .iter()
        .take(LISTED_MAX)
        .map(|left| in_words(left))
        .collect();
    if blocked.len() > lines.len() {
        lines.push(format!("and {} more", blocked.len() - lines.len()));
    }
    let next = match blocked.as_slice() {
        [only] if only.why == Why::NoDirectory => only.next.clone(),
        _ => format!(
            "trash restore {} --swap (or --merge, or --to DIR)",
            entry.id
        ),
    };
    Err(Failure::refused("occupied", lines.join("; "))
        .state("nothing was changed")
        .next(next))
}

/// What is in the way, as a fragment of a sentence.
fn in_words(left: &LeftAlone) -> String {
    let path = left
        .in_the_way
        .as_ref()
        .unwrap_or(&left.path)
        .display()
        .into_owned();
    let there = left
        .there
        .map_or_else(String::new, |there| format!(": {there}"));
    match left.why {
        Why::Occupied => format!("{path} is occupied{there}"),
        Why::NoDirectory => format!("{path} is not a directory{there}"),
        Why::ChangedSince => format!("{path} has changed since{there}"),
        Why::GoneSince => format!("{path} is gone since"),
        Why::OtherVersion => format!("{path} has another version"),
    }
}
