//! What is asked without changing anything: lists, one entry, what is unfinished, how things stand.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use trashfs_mount::FileKind;

use crate::failure::Failure;
use crate::ids::EntryId;
use crate::journal::{Filter, Loss, Page, Totals};
use crate::reconcile::Report;
use crate::record::{Bytes, Entry, Kind};
use crate::restore;
use crate::retention::{Room, rooms};
use crate::seal::{Summary, manifest};
use crate::staging::EntryDir;
use crate::walk::{Flow, Step, When, walk};
use crate::workspace::Workspace;

/// Members on a page of `info` at most.
const MEMBERS_MAX: u64 = 1_000;
/// Losses that `status` names.
const LOSSES_SHOWN: u32 = 20;

/// A page of entries, newest first. Open operations are closed first, so that what was removed a
/// moment ago is in it.
///
/// # Errors
/// When the journal can't be read; `cursor`.
pub fn list(ws: &Workspace, filter: &Filter) -> Result<Page, Failure> {
    ws.close_operations();
    list_now(ws, filter)
}

fn list_now(ws: &Workspace, filter: &Filter) -> Result<Page, Failure> {
    let Some(text) = filter.path.clone() else {
        return ws.journal.list(filter);
    };
    ws.journal.list_checked(filter, &mut |entry| {
        if entry.roots_total <= entry.roots.len() as u64 {
            return Ok(true);
        }
        Ok(has_root(ws, entry, &text))
    })
}

/// Whether an entry with very many roots has one that `text` speaks of.
fn has_root(ws: &Workspace, entry: &Entry, text: &str) -> bool {
    let summary = ws.staging.entry(&entry.id).ok().flatten();
    let summary = summary.and_then(|dir| Summary::read(&dir).ok().flatten());
    let roots = summary.map_or_else(|| entry.roots.clone(), |s| s.roots);
    let text = text.strip_prefix("./").unwrap_or(text);
    let spoken_of =
        |path: &Bytes| path.display().contains(text) || Path::new(text).starts_with(path.as_path());
    roots.iter().any(|root| spoken_of(&root.path))
}

/// Every entry that `filter` selects, over all pages.
pub(crate) fn every(ws: &Workspace, filter: &Filter) -> Result<Vec<Entry>, Failure> {
    let mut filter = Filter {
        limit: 100,
        ..filter.clone()
    };
    let mut entries = Vec::new();
    loop {
        let page = list_now(ws, &filter)?;
        entries.extend(page.entries);
        match page.next_cursor {
            Some(next) => filter.cursor = Some(next),
            None => return Ok(entries),
        }
    }
}

/// Unfinished entries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pending {
    /// Open, failed or on their way; newest first.
    pub operations: Vec<Entry>,
}

/// What is unfinished. Closes nothing: what is open is what is asked for.
///
/// # Errors
/// When the journal can't be read.
pub fn pending(ws: &Workspace) -> Result<Pending, Failure> {
    let filter = Filter {
        pending: true,
        all: true,
        ..Filter::default()
    };
    let operations = every(ws, &filter)?;
    Ok(Pending { operations })
}

/// A member of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Workspace-relative path.
    pub path: Bytes,
    /// Kind.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Length in bytes, of a regular file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    /// The tree that it lies in: cause, retention, slot.
    pub tree: String,
}

/// An entry with its members.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Info {
    /// The entry.
    pub entry: Entry,
    /// A page of its members, tree by tree; empty when nothing of it is resident.
    pub members: Vec<Member>,
    /// For the next page; none on the last.
    pub next_cursor: Option<String>,
}

/// One entry and a page of its members: `limit` of them (0: 100, at most 1,000) from `cursor`.
///
/// # Errors
/// `unknown-id`, `ambiguous-id`, `cursor`; when staging can't be read.
pub fn info(ws: &Workspace, id: &str, cursor: Option<&str>, limit: u64) -> Result<Info, Failure> {
    ws.close_operations();
    let entry = ws.journal.find(id)?;
    let skip: u64 = match cursor {
        None => 0,
        Some(text) => text.parse().map_err(|_| {
            Failure::failed("cursor", format!("{text:?} is no cursor of this entry"))
                .state("nothing was changed")
                .next(format!("trash info {}", entry.id))
        })?,
    };
    let limit = if limit == 0 {
        100
    } else {
        limit.min(MEMBERS_MAX)
    };
    let told = |e: io::Error| Failure::io(format!("reading the entry {}", entry.id), &e);
    let (members, more) = match ws.staging.entry(&entry.id).map_err(told)? {
        Some(dir) => members(&dir, skip, limit).map_err(told)?,
        None => (Vec::new(), false),
    };
    let next_cursor = more.then(|| (skip + limit).to_string());
    Ok(Info {
        entry,
        members,
        next_cursor,
    })
}

/// Members from number `skip` on, and whether there are more after them.
fn members(dir: &EntryDir, skip: u64, limit: u64) -> io::Result<(Vec<Member>, bool)> {
    let exceptions = dir.exceptions()?;
    let mut members = Vec::new();
    let (mut met, mut more) = (0_u64, false);
    for tree in dir.trees()? {
        let name = tree.name.to_string();
        let exceptions = exceptions.of(tree.name);
        walk(tree.fd.as_fd(), &mut |step| {
            if step.when == When::Leave || crate::seal::is_container(step, &exceptions) {
                return Ok(Flow::Continue);
            }
            met += 1;
            if met > skip + limit {
                more = true;
                return Ok(Flow::Stop);
            }
            if met > skip {
                members.push(member(step, &name));
            }
            Ok(crate::seal::into(step))
        })?;
        if more {
            break;
        }
    }
    Ok((members, more))
}

fn member(step: &Step<'_>, tree: &str) -> Member {
    let kind = step.attr.kind();
    Member {
        path: Bytes::from(step.path),
        kind: Kind::from(kind),
        mode: step.attr.permissions(),
        bytes: (kind == FileKind::Regular).then_some(step.attr.size_bytes),
        tree: tree.to_owned(),
    }
}

/// How a workspace stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its id.
    pub id: crate::ids::WorkspaceId,
    /// Where users see it.
    pub workspace: Bytes,
    /// The station.
    pub station: String,
    /// Numbers from the journal.
    pub totals: Totals,
    /// Its filesystems, its own first.
    pub rooms: Vec<Room>,
    /// Most recent losses, newest first.
    pub losses: Vec<Loss>,
    /// Damaged journals that were set aside and still lie there.
    pub damaged_journals: Vec<String>,
    /// What the last reconciliation found.
    pub reconciled: Option<Report>,
    /// Entries whose restore was interrupted.
    pub interrupted: Vec<EntryId>,
    /// What is wrong with the policy file; the last good rules are in force.
    pub policy_problem: Option<String>,
}

/// How a workspace stands.
///
/// # Errors
/// When the journal can't be read.
pub fn status(ws: &Workspace) -> Result<Status, Failure> {
    ws.policy.reload();
    Ok(Status {
        id: ws.id.clone(),
        workspace: ws.path.as_path().into(),
        station: ws.station.clone(),
        totals: ws.journal.totals()?,
        rooms: rooms(ws)?,
        losses: ws.journal.losses(LOSSES_SHOWN)?,
        damaged_journals: ws.journal.set_aside()?,
        reconciled: Report::last(&ws.journal)?,
        interrupted: restore::interrupted(ws)?,
        policy_problem: ws.policy.problem().map(|p| p.to_string()),
    })
}

/// Checks the staged bytes of an entry against its manifest.
///
/// # Errors
/// `unknown-id`, `ambiguous-id`; when staging can't be read.
pub fn verify(
    ws: &Workspace,
    id: &str,
    depth: manifest::Depth,
) -> Result<manifest::Verdict, Failure> {
    let entry = ws.journal.find(id)?;
    let told = |e: io::Error| Failure::io(format!("verifying the entry {}", entry.id), &e);
    match ws.staging.entry(&entry.id).map_err(told)? {
        Some(dir) => manifest::verify_entry(&dir, depth).map_err(told),
        None => Ok(manifest::Verdict::default()),
    }
}
