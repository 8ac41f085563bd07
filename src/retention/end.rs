//! What a person gives up: `trash empty` and `trash release`.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{self, UnixNanos};
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::journal::{Event, Filter, State};
use crate::record::{Bytes, Entry};
use crate::retention::purge;
use crate::workspace::Workspace;

const DAY: Duration = Duration::from_secs(86_400);

/// An entry that ended, or would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedEntry {
    /// Its id.
    pub id: EntryId,
    /// Its path.
    pub path: Bytes,
    /// When it was removed.
    #[serde(with = "clock::rfc3339")]
    pub removed_at: UnixNanos,
    /// Its members.
    pub members: u64,
    /// Length of its files.
    pub bytes: u64,
}

impl From<&Entry> for EndedEntry {
    fn from(entry: &Entry) -> Self {
        Self {
            id: entry.id.clone(),
            path: entry.path.clone(),
            removed_at: entry.removed_at,
            members: entry.members,
            bytes: entry.bytes,
        }
    }
}

/// What `trash empty` did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Emptied {
    /// The entries, oldest first.
    pub entries: Vec<EndedEntry>,
    /// Length of their files.
    pub bytes: u64,
    /// Bytes of the disk given back; none for a dry run.
    pub freed_bytes: Option<u64>,
    /// Entries that stay because a person holds them.
    pub held: u64,
    /// Entries that stay because they are open or in work.
    pub busy: u64,
    /// Nothing was done.
    pub dry_run: bool,
}

/// Frees what was removed at least `older_than_days` days ago (0: everything), except what is
/// held. For people: nothing that this ends can come back.
///
/// # Errors
/// When staging or the journal can't be read or written; entries ended until then stay ended.
pub fn empty(ws: &Workspace, older_than_days: u32, dry_run: bool) -> Result<Emptied, Failure> {
    ws.close_operations();
    let now = clock::now();
    let mut done = Emptied {
        freed_bytes: (!dry_run).then_some(0),
        dry_run,
        ..Emptied::default()
    };
    for entry in ws.journal.unended()? {
        let old = older_than_days == 0 || now.since(entry.removed_at) >= DAY * older_than_days;
        if !old {
            continue;
        }
        if entry.hold {
            done.held += 1;
        } else if entry.state != State::Sealed {
            done.busy += 1;
        } else if dry_run {
            done.bytes += entry.bytes;
            done.entries.push(EndedEntry::from(&entry));
        } else if let Some(freed) = give_up(ws, &entry)? {
            done.bytes += entry.bytes;
            done.freed_bytes = done.freed_bytes.map(|sum| sum + freed);
            done.entries.push(EndedEntry::from(&entry));
        } else {
            done.busy += 1;
        }
    }
    Ok(done)
}

/// Ends one entry because a person said so. The journal is told first: an interruption then
/// finishes what was asked. `None` while somebody else works on it.
fn give_up(ws: &Workspace, entry: &Entry) -> Result<Option<u64>, Failure> {
    let told = |e: io::Error| Failure::io(format!("discarding {}", entry.id), &e);
    let Some(_pin) = ws.staging.pin(&entry.id) else {
        return Ok(None);
    };
    let ended = |e: &mut Entry| e.resident = false;
    ws.journal.apply(&entry.id, Event::Discard, ended)?;
    tracing::info!(entry = %entry.id, path = %entry.path.display(), "given up by a person");
    let outgoing = purge::take_out(&ws.staging, &entry.id).map_err(told)?;
    purge::discard(ws, outgoing).map(Some).map_err(told)
}

/// An entry that `trash release` left, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotReleased {
    /// Its id.
    pub id: EntryId,
    /// Its path.
    pub path: Bytes,
    /// Why its bytes stay.
    pub reason: String,
    /// What ends or finishes it.
    pub next: String,
}

/// What `trash release` did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Released {
    /// Entries of which nothing is left to keep.
    pub released: Vec<EndedEntry>,
    /// Entries that stay.
    pub kept: Vec<NotReleased>,
    /// Nothing was done.
    pub dry_run: bool,
}

/// Releases what is proven redundant or gone: the unfinished entries, or the one that is named.
///
/// In the local profile the staged bytes are the only copy, so nothing is ever redundant. What
/// can be released is an entry of which staging holds nothing any more, and only when that is
/// asked for by `discard_incomplete`.
///
/// # Errors
/// `unknown-id`, `ambiguous-id`; when staging or the journal can't be read or written.
pub fn release(
    ws: &Workspace,
    id: Option<&str>,
    discard_incomplete: bool,
    dry_run: bool,
) -> Result<Released, Failure> {
    ws.close_operations();
    let mut done = Released {
        dry_run,
        ..Released::default()
    };
    for entry in candidates(ws, id)? {
        match judge(ws, &entry, discard_incomplete)? {
            Some(kept) => done.kept.push(kept),
            None => {
                if !dry_run {
                    forget_gone(ws, &entry)?;
                }
                done.released.push(EndedEntry::from(&entry));
            }
        }
    }
    Ok(done)
}

fn candidates(ws: &Workspace, id: Option<&str>) -> Result<Vec<Entry>, Failure> {
    match id {
        Some(id) => Ok(vec![ws.journal.find(id)?]),
        None => crate::query::every(
            ws,
            &Filter {
                pending: true,
                all: true,
                ..Filter::default()
            },
        ),
    }
}

/// Why the entry stays; `None` when it may go.
fn judge(
    ws: &Workspace,
    entry: &Entry,
    discard_incomplete: bool,
) -> Result<Option<NotReleased>, Failure> {
    let told = |e: io::Error| Failure::io(format!("reading the entry {}", entry.id), &e);
    let kept = |reason: &str, next: String| {
        Ok(Some(NotReleased {
            id: entry.id.clone(),
            path: entry.path.clone(),
            reason: reason.into(),
            next,
        }))
    };
    let staged = ws.staging.entry(&entry.id).map_err(told)?.is_some();
    match (entry.state, staged) {
        (state, false) if state.is_end() => Ok(None),
        (state, true) if state.is_end() => Ok(None),
        (State::Open, _) => kept("its command is still running", "trash pending".into()),
        (_, true) => kept(
            "the staged bytes are the only copy",
            format!("trash restore {0}, or trash empty", entry.id),
        ),
        (_, false) if discard_incomplete => Ok(None),
        (_, false) => kept(
            "staging holds nothing of it; only its record is left",
            format!("trash release {} --discard-incomplete", entry.id),
        ),
    }
}

fn forget_gone(ws: &Workspace, entry: &Entry) -> Result<(), Failure> {
    let told = |e: io::Error| Failure::io(format!("discarding {}", entry.id), &e);
    let _pin = ws.staging.pin_or_busy(&entry.id)?;
    if entry.state.is_end() {
        return purge::clear(ws, &entry.id).map_err(told);
    }
    let ended = |e: &mut Entry| {
        e.resident = false;
        e.failed = None;
    };
    ws.journal.apply(&entry.id, Event::Discard, ended).map(drop)
}
