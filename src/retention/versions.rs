//! The bound on overwritten versions of one path: an agent that saves a file a thousand times
//! keeps its last few states, not all.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use crate::beneath;
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::journal::Batch;
use crate::policy::{Decision, Subject};
use crate::record::{Bytes, Cause, Entry, Keep};
use crate::retention::expire::end_whole;
use crate::retention::purge;
use crate::seal::{self, Summary};
use crate::workspace::Workspace;

/// An operation that overwrote more files than this is no series of saves: it stays whole, within
/// the budget.
const PATHS_MAX: usize = 1_000;

/// Puts the overwritten paths of a sealed entry on record.
pub(crate) fn note(rows: &Batch<'_>, entry: &Entry, paths: &[Bytes]) -> Result<(), Failure> {
    if entry.keep != Keep::Local || paths.len() > PATHS_MAX || entry.made_by.is_some() {
        return Ok(());
    }
    paths
        .iter()
        .try_for_each(|path| rows.add_version(path, entry.removed_at, &entry.id))
}

/// Ends the oldest versions of each of `paths` beyond the bound that the policy sets for it.
///
/// # Errors
/// When staging or the journal can't be read or written.
pub fn enforce(ws: &Workspace, paths: &[Bytes]) -> Result<(), Failure> {
    for path in paths {
        let Some(keep_max) = bound(ws, path.as_path()) else {
            continue;
        };
        let beyond = ws
            .journal
            .batch(|rows| rows.versions_beyond(path, keep_max))?;
        for id in beyond {
            end_version(ws, &id, path)?;
        }
    }
    Ok(())
}

fn bound(ws: &Workspace, path: &Path) -> Option<u32> {
    let subject = Subject {
        path,
        cause: Cause::Replace,
        comm: "",
        asked_to_remove: false,
        size_bytes: 0,
        age_s: 0,
        scratch: false,
        cache: false,
    };
    match ws.policy.decide(&subject) {
        Decision::Keep(kept) => kept.versions_max,
        Decision::Delete { .. } => None,
    }
}

/// Ends the overwritten version of `path` in one entry; the entry itself where it holds nothing
/// else. One that is held or in work stays.
fn end_version(ws: &Workspace, id: &EntryId, path: &Bytes) -> Result<(), Failure> {
    let told = |e: io::Error| Failure::io(format!("ending a version in {id}"), &e);
    let forget = || ws.journal.batch(|rows| rows.forget_version(path, id));
    let Some(_pin) = ws.staging.pin(id) else {
        return Ok(());
    };
    let Some(entry) = ws.journal.entry(id)?.filter(|e| !e.state.is_end()) else {
        return forget();
    };
    if entry.hold {
        return Ok(());
    }
    let Some(dir) = ws.staging.entry(id).map_err(told)? else {
        return forget();
    };
    let Some(summary) = Summary::read(&dir).map_err(told)? else {
        return forget();
    };
    let is_it = |cause: Cause, p: &Bytes| cause != Cause::Remove && p == path;
    if summary
        .roots
        .iter()
        .all(|root| is_it(root.cause, &root.path))
    {
        return end_whole(ws, &entry).map(drop);
    }
    for tree in dir.trees().map_err(told)? {
        let name = tree.name.to_string();
        let lies_here = summary
            .trees
            .iter()
            .zip(&summary.roots)
            .any(|(place, root)| *place == name && is_it(root.cause, &root.path));
        if lies_here {
            discard_at(ws, tree.fd.as_fd(), path.as_path()).map_err(told)?;
        }
    }
    seal::seal_now(ws, id)?;
    forget()
}

fn discard_at(ws: &Workspace, tree: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    match beneath::open_parent(tree, path) {
        Ok((dir, name)) => purge::discard_at(ws, dir.as_fd(), name).map(drop),
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
