//! Entries for what a swap or an undo takes from its path.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use trashfs_mount::Attr;

use crate::ids::{EntryId, OperationId};
use crate::policy::{Decision, Subject};
use crate::record::{Attribution, Cause, Keep, Kept, OP_FORMAT, OpRecord, Process};
use crate::replica::Spot;
use crate::restore::intent::Capturing;
use crate::restore::staged::StagedPath;
use crate::staging::{CONTAINER_MODE, Exceptions, TreeName};
use crate::walk::walk;
use crate::workspace::Workspace;
use crate::{beneath, clock, seal};

/// For how long something swapped out is kept when a rule would have it deleted outright: a
/// restore never destroys.
const RETAIN_AT_LEAST: Duration = Duration::from_secs(7 * 86_400);

/// The entries of one swapping operation, by the way of keeping; made when first needed.
pub(crate) struct Captures {
    made_by: &'static str,
    operation: OperationId,
    entries: HashMap<Keep, EntryId>,
}

impl Captures {
    /// For the verb `made_by`.
    pub(crate) fn by(made_by: &'static str) -> Self {
        Self {
            made_by,
            operation: OperationId::random(),
            entries: HashMap::new(),
        }
    }

    /// Where what is at `path` is to be kept.
    pub(crate) fn place_for(&mut self, ws: &Workspace, path: &Path, there: &Attr) -> StagedPath {
        let kept = policy_of(ws, path, there);
        let entry = self
            .entries
            .entry(kept.keep)
            .or_insert_with(EntryId::random)
            .clone();
        let tree = TreeName {
            cause: Cause::Replace,
            retain: kept.retain,
            slot: 1,
        };
        StagedPath {
            entry,
            area: ws.staging.area_of(path).prefix.clone().into(),
            tree: tree.to_string(),
            path: path.into(),
        }
    }

    /// What was needed.
    pub(crate) fn into_entries(self) -> Vec<Capturing> {
        let made_by = self.made_by.to_owned();
        let operation = self.operation;
        let mut entries: Vec<Capturing> = self
            .entries
            .into_iter()
            .map(|(keep, entry)| Capturing {
                entry,
                operation: operation.clone(),
                keep,
                made_by: made_by.clone(),
            })
            .collect();
        entries.sort_by_key(|c| c.keep);
        entries
    }
}

/// A directory is kept as a removed one is: it may hold a day's work.
fn policy_of(ws: &Workspace, path: &Path, there: &Attr) -> Kept {
    let cause = if there.is_dir() {
        Cause::Remove
    } else {
        Cause::Replace
    };
    let born = there.btime.unwrap_or(there.mtime).secs;
    let age_s = (clock::now().0 / 1_000_000_000).saturating_sub(born);
    let subject = Subject {
        path,
        cause,
        comm: "trash",
        asked_to_remove: false,
        size_bytes: there.size_bytes,
        age_s: u64::try_from(age_s).unwrap_or(0),
        scratch: false,
        cache: false,
    };
    match ws.policy.decide(&subject) {
        Decision::Keep(kept) => kept,
        Decision::Delete { .. } => Kept {
            keep: Keep::Local,
            retain: RETAIN_AT_LEAST,
            versions_max: None,
        },
    }
}

/// The record of an entry that a verb of the product makes.
pub(crate) fn op_record(ws: &Workspace, capturing: &Capturing) -> OpRecord {
    OpRecord {
        format: OP_FORMAT,
        entry: capturing.entry.clone(),
        operation: capturing.operation.clone(),
        workspace: ws.id.clone(),
        keep: capturing.keep,
        started: clock::now(),
        process: Process::default(),
        attribution: Attribution::default(),
        made_by: Some(capturing.made_by.clone()),
    }
}

/// Notes, before the tree at `spot` is moved as a whole to `path` in `tree`, which of its
/// directories look like place-holders there and are none.
pub(crate) fn note_lookalikes(
    entry: &OwnedFd,
    (tree, path): (TreeName, &Path),
    spot: Spot<'_>,
    attr: &Attr,
) -> io::Result<()> {
    if !attr.is_dir() {
        return Ok(());
    }
    let looks = |attr: &Attr| attr.is_dir() && attr.permissions() == CONTAINER_MODE;
    let mut found: Vec<PathBuf> = Vec::new();
    if looks(attr) {
        found.push(path.to_owned());
    }
    let top = beneath::open_dir_at(spot.dir, spot.name)?;
    match walk(top.as_fd(), &mut |step| {
        if step.when == crate::walk::When::Enter && looks(step.attr) {
            found.push(path.join(step.path));
        }
        Ok(seal::into(step))
    }) {
        // Into what nobody may look, nobody looks later.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
        other => other?,
    }
    if found.is_empty() {
        return Ok(());
    }
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(entry, Exceptions::NAME, flags, Mode::RUSR | Mode::WUSR)?;
    let lines: String = found
        .iter()
        .map(|path| Exceptions::line(tree, path, false))
        .collect();
    let mut file = std::fs::File::from(fd);
    file.write_all(lines.as_bytes())?;
    file.sync_data()
}
