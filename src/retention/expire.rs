//! Entries whose time has passed.

use std::io;
use std::time::Duration;

use serde::Serialize;

use crate::clock::UnixNanos;
use crate::failure::Failure;
use crate::journal::Event;
use crate::record::Entry;
use crate::retention::{purge, settings};
use crate::seal::{self, Settings, expiry_of};
use crate::staging::EntryDir;
use crate::workspace::Workspace;

/// Entries looked at in one go.
const ROWS: u32 = 64;
/// When to look again at one that could not be ended now.
const LATER: Duration = Duration::from_secs(600);

/// What expiry did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Expired {
    /// Entries that ended.
    pub entries: u64,
    /// Trees that ended in entries that go on.
    pub trees: u64,
    /// Bytes of the disk that this gave back.
    pub freed_bytes: u64,
}

/// Ends what has expired at `now`. What is held, or is being restored, stays.
///
/// # Errors
/// When the journal can't be read or written; entries done until then are done.
pub fn expire(ws: &Workspace, now: UnixNanos) -> Result<Expired, Failure> {
    let mut done = Expired::default();
    loop {
        let due = ws.journal.expired(now, ROWS)?;
        if due.is_empty() {
            return Ok(done);
        }
        for entry in due {
            let id = entry.id.clone();
            if let Err(error) = expire_one(ws, entry, now, &mut done) {
                tracing::warn!(entry = %id, %error, "could not be expired now");
                ws.journal
                    .batch(|rows| rows.set_next_expiry(&id, now.plus(LATER)))?;
            }
        }
    }
}

fn expire_one(
    ws: &Workspace,
    mut entry: Entry,
    now: UnixNanos,
    done: &mut Expired,
) -> Result<(), Failure> {
    let told = |e: io::Error| Failure::io("expiring", &e);
    let _pin = ws.staging.pin_or_busy(&entry.id)?;
    let Some(dir) = ws.staging.entry(&entry.id).map_err(told)? else {
        // Reconciliation has told of it; with its time over there is nothing more to tell.
        let ended = |e: &mut Entry| e.resident = false;
        return ws.journal.apply(&entry.id, Event::Expire, ended).map(drop);
    };
    let settings = Settings::read(&dir).map_err(told)?;
    let trees = dir.trees().map_err(told)?;
    let retains = trees.iter().map(|tree| tree.name.retain);
    let (first, last) = expiry_of(entry.removed_at, retains, settings);
    if settings.hold || first > now {
        return settings::apply(ws, &dir, &mut entry, settings);
    }
    drop(trees);
    if last <= now {
        done.entries += 1;
        done.freed_bytes += end_whole(ws, &entry)?;
        return Ok(());
    }
    expire_trees(ws, &dir, &entry, now, done)
}

/// Ends an entry as its time or a bound of the policy says. The caller has it pinned.
pub(super) fn end_whole(ws: &Workspace, entry: &Entry) -> Result<u64, Failure> {
    let told = |e: io::Error| Failure::io(format!("discarding {}", entry.id), &e);
    let outgoing = purge::take_out(&ws.staging, &entry.id).map_err(told)?;
    let ended = |e: &mut Entry| e.resident = false;
    ws.journal.apply(&entry.id, Event::Expire, ended)?;
    tracing::info!(entry = %entry.id, path = %entry.path.display(), "expired");
    purge::discard(ws, outgoing).map_err(told)
}

fn expire_trees(
    ws: &Workspace,
    dir: &EntryDir,
    entry: &Entry,
    now: UnixNanos,
    done: &mut Expired,
) -> Result<(), Failure> {
    let told = |e: io::Error| Failure::io("expiring", &e);
    let mut outgoing = Vec::new();
    for tree in dir.trees().map_err(told)? {
        if entry.removed_at.plus(tree.name.retain) <= now {
            outgoing.extend(purge::take_out_tree(&tree, &entry.id).map_err(told)?);
            done.trees += 1;
        }
    }
    done.freed_bytes += purge::discard(ws, outgoing).map_err(told)?;
    if seal::seal_now(ws, &entry.id)?.is_none() {
        done.entries += 1;
        end_whole(ws, entry)?;
    }
    Ok(())
}
