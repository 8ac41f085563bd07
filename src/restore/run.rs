//! Carrying out a plan from its record to the journal: record, steps, sync, journal, clearing.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::ids::EntryId;
use crate::journal::{Event, State};
use crate::restore::act::{Actor, Halt};
use crate::restore::capturing;
use crate::restore::intent::{INTENT, Intent, Step, UNDONE};
use crate::restore::plan::io;
use crate::restore::report::LeftAlone;
use crate::restore::staged::{Holding, StagedPath, absent};
use crate::retention::purge;
use crate::staging::{OP_RECORD, write_record};
use crate::workspace::Workspace;
use crate::{beneath, discard, seal};

/// Directories that are synced one by one; beyond that the whole filesystem is.
const SYNCED_ONE_BY_ONE: usize = 16;

/// What carrying out came to.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) captured: Vec<EntryId>,
    pub(crate) left_alone: Vec<LeftAlone>,
    pub(crate) remaining: u64,
    pub(crate) notes: Vec<String>,
}

/// Carries out what `intent` says; with `recovering`, finishes what was begun.
///
/// The order is the promise: the record before the first step; all steps on the disk before the
/// journal says that they were taken; the journal before the entry's directory goes.
pub(crate) fn run(
    ws: &Workspace,
    intent: &Intent,
    recovering: bool,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Ran, Halt> {
    if !recovering {
        record(ws, intent)?;
    }
    prepare_captures(ws, intent)?;
    let mut actor = Actor::new(ws, recovering, stop)?;
    if let Err(halt) = actor.run(&intent.steps) {
        if actor.taken_back {
            forget(ws, intent)?;
        }
        return Err(halt);
    }
    actor.pause()?;
    sync(ws, intent, &actor.touched)?;
    actor.pause()?;
    drop_copied(ws, &actor.copied)?;
    let mut ran = Ran {
        left_alone: std::mem::take(&mut actor.left_alone),
        notes: std::mem::take(&mut actor.notes),
        ..Ran::default()
    };
    for capturing in &intent.capturing {
        actor.pause()?;
        if seal::seal_now(ws, &capturing.entry)?.is_some() {
            ran.captured.push(capturing.entry.clone());
        } else {
            clear(ws, &capturing.entry)?;
        }
    }
    for id in &intent.entries {
        actor.pause()?;
        ran.remaining += settle(ws, id, intent.undo, &mut || actor.pause())?;
    }
    Ok(ran)
}

fn record(ws: &Workspace, intent: &Intent) -> Result<(), Failure> {
    for id in &intent.entries {
        let holding = Holding::open(&ws.staging, id)?;
        intent
            .write(holding.dir.records())
            .map_err(|e| Failure::io(format!("{INTENT} of entry {id}"), &e))?;
    }
    Ok(())
}

/// Makes the entries that will keep what is swapped out, each with its record.
fn prepare_captures(ws: &Workspace, intent: &Intent) -> Result<(), Failure> {
    for capturing in &intent.capturing {
        let what = format!("entry {}", capturing.entry);
        let main = ws.staging.main();
        let path = PathBuf::from(capturing.entry.as_str());
        let dir = beneath::make_dirs(main.ops.as_fd(), &path, rustix::fs::Mode::RWXU)
            .map_err(|e| io(&what, e))?;
        let text = serde_json::to_vec(&capturing::op_record(ws, capturing))
            .map_err(|e| Failure::io(&what, &e.into()))?;
        write_record(&dir, OP_RECORD, &text).map_err(|e| Failure::io(&what, &e))?;
    }
    Ok(())
}

/// After everything was taken back: as if nothing had been begun.
fn forget(ws: &Workspace, intent: &Intent) -> Result<(), Failure> {
    for capturing in &intent.capturing {
        let holding = Holding::open(&ws.staging, &capturing.entry)?;
        let roots = holding.roots().map_err(|e| Failure::io("staging", &e))?;
        if roots.is_empty() {
            clear(ws, &capturing.entry)?;
        }
    }
    for id in &intent.entries {
        remove_record(&Holding::open(&ws.staging, id)?)?;
    }
    Ok(())
}

fn remove_record(holding: &Holding) -> Result<(), Failure> {
    match discard::file(holding.dir.records(), INTENT) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(e) => Err(io(INTENT, e)),
    }
}

fn clear(ws: &Workspace, id: &EntryId) -> Result<(), Failure> {
    purge::clear(ws, id).map_err(|e| Failure::io(format!("clearing entry {id}"), &e))
}

/// The moves must be on the disk before the journal says so.
fn sync(ws: &Workspace, intent: &Intent, touched: &BTreeSet<PathBuf>) -> Result<(), Failure> {
    let what = "syncing what was restored";
    let root = ws
        .with_root(|root| beneath::open_dir_readable(root, c"."))
        .map_err(|e| io(what, e))?;
    if touched.len() > SYNCED_ONE_BY_ONE {
        for area in ws.staging.areas() {
            let dir = beneath::open_dir_readable(&area.root, c".").map_err(|e| io(what, e))?;
            rustix::fs::syncfs(dir).map_err(|e| io(what, e))?;
        }
        return rustix::fs::syncfs(root).map_err(|e| io(what, e));
    }
    for dir in touched {
        let dir = beneath::open_dir(root.as_fd(), dir)
            .and_then(|dir| beneath::open_dir_readable(&dir, c"."))
            .map_err(|e| io(what, e))?;
        rustix::fs::fsync(dir).map_err(|e| io(what, e))?;
    }
    // A journaling filesystem has both ends of a rename in one transaction; one source directory
    // is synced for those that log directories one by one.
    for step in &intent.steps {
        if let Step::Move { from, .. } | Step::Swap { from, .. } = step {
            absent(sync_source(ws, from)).map_err(|e| io(what, e))?;
            break;
        }
    }
    Ok(())
}

fn sync_source(ws: &Workspace, from: &StagedPath) -> Result<(), rustix::io::Errno> {
    let (dir, _) = from.open_parent(&ws.staging)?;
    rustix::fs::fsync(beneath::open_dir_readable(&dir, c".")?)
}

/// Verified copies are in place and synced: the originals go.
fn drop_copied(ws: &Workspace, copied: &[StagedPath]) -> Result<(), Failure> {
    for from in copied {
        let (dir, name) = from
            .open_parent(&ws.staging)
            .map_err(|e| io(&from.path.display(), e))?;
        let mut tell = |attr: &trashfs_mount::Attr| {
            if let Some(live) = ws.live.get() {
                live.staged_links_changed(attr.dev, attr.ino, -1);
            }
        };
        discard::tree_telling(dir.as_fd(), name, &mut tell)
            .map_err(|e| Failure::io(from.path.display(), &e))?;
    }
    Ok(())
}

/// Tells the journal what is left of an entry; one of which nothing is left ends.
fn settle(
    ws: &Workspace,
    id: &EntryId,
    undone: bool,
    pause: &mut dyn FnMut() -> Result<(), Halt>,
) -> Result<u64, Halt> {
    if ws
        .staging
        .entry(id)
        .map_err(|e| Failure::io("staging", &e))?
        .is_none()
    {
        return Ok(0);
    }
    let holding = Holding::open(&ws.staging, id)?;
    if let Some(rest) = seal::seal_now(ws, id)? {
        if undone {
            write_record(holding.dir.records(), UNDONE, b"{}\n")
                .map_err(|e| Failure::io(UNDONE, &e))?;
        }
        pause()?;
        remove_record(&holding)?;
        return Ok(rest.members);
    }
    let known = ws.journal.entry(id)?;
    if known.is_some_and(|entry| entry.state == State::Open) {
        ws.journal.apply(id, Event::Seal, |_| ())?;
    }
    pause()?;
    ws.journal
        .apply(id, Event::Restore, |entry| entry.resident = false)?;
    pause()?;
    clear(ws, id)?;
    Ok(0)
}
