//! What a restore is about to do, written and synced before it does the first thing, so that
//! an interrupted one can be finished.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use trashfs_mount::{Attr, Timestamp};

use crate::failure::Failure;
use crate::ids::{EntryId, OperationId};
use crate::record::{Bytes, Keep, Kind};
use crate::restore::report::{LeftAlone, Placed};
use crate::restore::staged::StagedPath;
use crate::staging::{EntryDir, read_record, write_record};

/// The record's name in an entry's directory.
pub const INTENT: &str = "restore.json";
/// Marks an entry whose operation was undone while other versions stayed in it.
pub(crate) const UNDONE: &str = "undone.json";

const INTENT_FORMAT: u32 = 1;

/// Attributes that a directory is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DirAttrs {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) atime: (i64, u32),
    pub(crate) mtime: (i64, u32),
}

impl DirAttrs {
    pub(crate) fn of(attr: &Attr) -> Self {
        let pair = |t: Timestamp| (t.secs, t.nanos);
        Self {
            mode: attr.permissions(),
            uid: attr.uid,
            gid: attr.gid,
            atime: pair(attr.atime),
            mtime: pair(attr.mtime),
        }
    }
}

/// One step. Each is atomic or harmless when repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase")]
pub(crate) enum Step {
    /// Makes a directory that is gone, like the one that was removed, else like its parent.
    MakeDir {
        path: Bytes,
        like: Option<StagedPath>,
        attrs: DirAttrs,
    },
    /// Puts a captured file or tree at a free path. `tame`: containers in it get a sane mode.
    Move {
        from: StagedPath,
        to: Bytes,
        ino: u64,
        kind: Kind,
        tame: bool,
    },
    /// Lets a capture change places with another one that an earlier step put back.
    Exchange {
        from: StagedPath,
        with: Bytes,
        ino: u64,
        kind: Kind,
    },
    /// Lets a capture take the place of what is there, which goes to `into`.
    Swap {
        from: StagedPath,
        to: Bytes,
        ino: u64,
        kind: Kind,
        into: StagedPath,
    },
    /// Gives a directory the attributes of a staged one whose content was put into it.
    Adopt {
        from: StagedPath,
        to: Bytes,
        attrs: DirAttrs,
    },
    /// Removes an emptied staged directory.
    Drop { from: StagedPath },
    /// Gives a directory its times again after something was put into it.
    Times { path: Bytes, attrs: DirAttrs },
}

/// An entry that keeps what swapping takes from its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Capturing {
    pub(crate) entry: EntryId,
    pub(crate) operation: OperationId,
    pub(crate) keep: Keep,
    pub(crate) made_by: String,
}

/// A restore as planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Intent {
    format: u32,
    /// Entries that are taken from; each has a copy of this record until the end.
    pub(crate) entries: Vec<EntryId>,
    /// Whether this is an undo: what stays in the entries counts as taken back.
    pub(crate) undo: bool,
    pub(crate) steps: Vec<Step>,
    pub(crate) capturing: Vec<Capturing>,
}

impl Intent {
    pub(crate) fn new(undo: bool) -> Self {
        Self {
            format: INTENT_FORMAT,
            entries: Vec::new(),
            undo,
            steps: Vec::new(),
            capturing: Vec::new(),
        }
    }

    /// Writes the record, synced, into an entry's directory.
    pub(crate) fn write(&self, dir: &OwnedFd) -> std::io::Result<()> {
        write_record(dir, INTENT, &serde_json::to_vec(self)?)
    }

    /// The record of an interrupted restore, if there is one.
    pub(crate) fn read(dir: &EntryDir) -> Result<Option<Self>, Failure> {
        let what = format!("{INTENT} of entry {}", dir.id);
        let text = read_record(dir.records(), INTENT).map_err(|e| Failure::io(&what, &e))?;
        let Some(text) = text else { return Ok(None) };
        let intent: Self = serde_json::from_slice(&text)
            .map_err(|e| Failure::failed("damaged-record", format!("{what} can't be read: {e}")))?;
        if intent.format > INTENT_FORMAT {
            let what = format!("{what} was written by a newer version of trash");
            return Err(Failure::failed("newer-format", what));
        }
        Ok(Some(intent))
    }
}

/// A restore that was planned and has not begun.
#[must_use]
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) intent: Intent,
    pub(crate) placed: Vec<Placed>,
    pub(crate) recreated: Vec<Bytes>,
    pub(crate) left_alone: Vec<LeftAlone>,
}

/// Kind of a file for the report.
pub(crate) fn kind(attr: &Attr) -> Kind {
    attr.kind().into()
}
