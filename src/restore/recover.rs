//! Finishing a restore that was interrupted.

use crate::failure::Failure;
use crate::ids::EntryId;
use crate::record::Bytes;
use crate::restore::act::Halt;
use crate::restore::intent::{Intent, Step};
use crate::restore::plan::{Prefer, choose};
use crate::restore::report::{Placed, Recovered, Restored, Target, Verified};
use crate::restore::staged::Holding;
use crate::restore::{outside, run, select};
use crate::workspace::Workspace;

/// Entries whose restore was interrupted.
///
/// # Errors
/// When staging can't be read.
pub fn interrupted(ws: &Workspace) -> Result<Vec<EntryId>, Failure> {
    let staging = |e: std::io::Error| Failure::io("the staging area", &e);
    let mut found = Vec::new();
    for id in ws.staging.entries().map_err(staging)? {
        if let Some(dir) = ws.staging.entry(&id).map_err(staging)?
            && Intent::read(&dir)?.is_some()
        {
            found.push(id);
        }
    }
    Ok(found)
}

/// Finishes an interrupted restore of the entry; with a target, copies everything that it still
/// holds there instead (or finishes copies that were interrupted on their way there).
///
/// # Errors
/// What went wrong; it can be repeated.
pub fn recover(ws: &Workspace, id: &str, to: Option<&Target>) -> Result<Recovered, Failure> {
    recover_stoppable(ws, id, to, &mut || false)
}

/// [`recover`], with a closure that can stop it between any two changes as a crash would.
pub(crate) fn recover_stoppable(
    ws: &Workspace,
    id: &str,
    to: Option<&Target>,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Recovered, Failure> {
    ws.close_operations();
    let entry = ws.journal.find(id)?;
    let _pin = ws.staging.pin_or_busy(&entry.id)?;
    if let Some(target) = to {
        let holding = Holding::open(&ws.staging, &entry.id)?;
        let interrupted = outside::finish(ws, &entry.id, target)?;
        if let Some(restored) = interrupted {
            return Ok(Recovered {
                interrupted: true,
                restored,
            });
        }
        let (chosen, _) = choose(select::candidates(&holding, &[])?, Prefer::Newest);
        let restored = outside::copy_out(ws, &holding, &chosen, (target, false))?;
        return Ok(Recovered {
            interrupted: false,
            restored,
        });
    }
    let dir = ws
        .staging
        .entry(&entry.id)
        .map_err(|e| Failure::io("staging", &e))?;
    let intent = match dir {
        Some(dir) => Intent::read(&dir)?,
        None => None,
    };
    let Some(intent) = intent else {
        return Ok(Recovered {
            interrupted: false,
            restored: nothing_done(entry.id),
        });
    };
    finish(ws, &intent, stop)
}

fn finish(
    ws: &Workspace,
    intent: &Intent,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Recovered, Failure> {
    let ran = run::run(ws, intent, true, stop).map_err(|halt| match halt {
        Halt::Failed(failure) => failure,
        Halt::Stopped => Failure::failed("interrupted", "the recovery was interrupted"),
    })?;
    let still = |path: &Bytes| ran.left_alone.iter().any(|left| left.path == *path);
    let restored = intent
        .steps
        .iter()
        .filter_map(placed)
        .filter(|p| !still(&p.to))
        .collect();
    Ok(Recovered {
        interrupted: true,
        restored: Restored {
            entries: intent.entries.clone(),
            restored,
            recreated: Vec::new(),
            captured: ran.captured,
            remaining: ran.remaining,
            verified: Verified::NeverMoved,
            notes: ran.notes,
            left_alone: ran.left_alone,
            dry_run: false,
        },
    })
}

fn placed(step: &Step) -> Option<Placed> {
    let (from, to, kind, into) = match step {
        Step::Move { from, to, kind, .. } => (from, to, kind, None),
        Step::Exchange {
            from, with, kind, ..
        } => (from, with, kind, None),
        Step::Swap {
            from,
            to,
            kind,
            into,
            ..
        } => (from, to, kind, Some(into.entry.clone())),
        _ => return None,
    };
    Some(Placed {
        path: from.path.clone(),
        to: to.clone(),
        kind: *kind,
        swapped_into: into,
    })
}

fn nothing_done(id: EntryId) -> Restored {
    Restored {
        entries: vec![id],
        restored: Vec::new(),
        recreated: Vec::new(),
        left_alone: Vec::new(),
        captured: Vec::new(),
        remaining: 0,
        verified: Verified::NeverMoved,
        notes: Vec::new(),
        dry_run: false,
    }
}
