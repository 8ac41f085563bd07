//! What is asked of a restore, and what it answers.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trashfs_mount::Attr;

use crate::clock::{self, UnixNanos};
use crate::ids::{EntryId, OperationId};
use crate::record::{Bytes, Cause, Kind, Left};

/// What to do about a path where something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Refuse, before anything changes.
    #[default]
    Refuse,
    /// Enter directories that exist; refuse for files that do.
    Merge,
    /// Capture what is there and let it change places with what was kept.
    Swap,
}

/// Where copies go with `--to`.
#[derive(Debug)]
pub enum Target {
    /// An existing directory of the workspace, by its path in it.
    Inside(PathBuf),
    /// An existing directory elsewhere.
    Outside {
        /// The directory, opened by whoever asks.
        dir: OwnedFd,
        /// What it is called in messages.
        display: PathBuf,
    },
}

/// A restore that is asked for.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestoreSpec {
    /// The entry's id, or a prefix that is unique.
    pub entry: String,
    /// Workspace-relative paths of what to restore, `PATH@N` for version N; all when empty.
    pub members: Vec<Bytes>,
    /// Copy to there; the entry stays. A descriptor has no text form, so it travels beside.
    #[serde(skip)]
    pub to: Option<Target>,
    /// About occupied paths.
    pub mode: Mode,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Read every byte and compare it with its hash before anything moves.
    pub verify_fully: bool,
}

/// An undo that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UndoSpec {
    /// All operations of this session.
    pub session: Option<String>,
    /// All operations that began since then.
    pub since: Option<UnixNanos>,
    /// The newest operation with this effective cause; `remove` where nothing is said, and then
    /// of more than what is kept in passing. For
    /// `replace` and `truncate` alike any overwriting will do.
    pub cause: Option<Cause>,
    /// The operation of this entry (id or unique prefix).
    pub entry: Option<String>,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// Something that was put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placed {
    /// Workspace-relative path where it was captured.
    pub path: Bytes,
    /// Where it is now: workspace-relative, or below the directory given with `--to`.
    pub to: Bytes,
    /// Kind.
    pub kind: Kind,
    /// The entry that now keeps what was there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swapped_into: Option<EntryId>,
}

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct There {
    /// Kind.
    pub kind: Kind,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Last modification.
    #[serde(with = "clock::rfc3339")]
    pub mtime: UnixNanos,
}

impl There {
    /// Of a file as it is.
    pub fn of(attr: &Attr) -> Self {
        let mtime_ns = Left::of(attr).mtime_ns;
        Self {
            kind: attr.kind().into(),
            size_bytes: attr.size_bytes,
            mtime: UnixNanos(i64::try_from(mtime_ns).unwrap_or(i64::MAX)),
        }
    }
}

impl std::fmt::Display for There {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let time = self.mtime.to_rfc3339();
        match self.kind {
            Kind::File => write!(f, "a file of {} bytes, changed {time}", self.size_bytes),
            Kind::Directory => write!(f, "a directory, changed {time}"),
            Kind::Symlink => write!(f, "a symbolic link, changed {time}"),
            _ => write!(f, "a special file, changed {time}"),
        }
    }
}

/// Why something was left where it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Something is at its path.
    Occupied,
    /// A component of its path is no directory.
    NoDirectory,
    /// What the operation left at its path has changed since, or a later one has captured it.
    ChangedSince,
    /// What the operation left at its path is gone.
    GoneSince,
    /// Another capture of the same path in the same operation took precedence.
    OtherVersion,
}

/// A path that was not put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftAlone {
    /// The entry that still keeps it.
    pub entry: EntryId,
    /// Workspace-relative path.
    pub path: Bytes,
    /// The path that is in the way, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_the_way: Option<Bytes>,
    /// Why.
    pub why: Why,
    /// What is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub there: Option<There>,
    /// What to type to go on.
    pub next: String,
}

/// How far what was restored was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verified {
    /// The very files that were captured went back; no byte was copied.
    #[default]
    NeverMoved,
    /// Likewise, and each agrees with the entry's manifest in number, length and times.
    Fingerprints,
    /// Every byte was read and agrees with its hash.
    Hashes,
}

/// What a restore did, or with `dry_run` would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Restored {
    /// The entries that were taken from.
    pub entries: Vec<EntryId>,
    /// What went back.
    pub restored: Vec<Placed>,
    /// Directories that were made anew because they were gone.
    pub recreated: Vec<Bytes>,
    /// What did not go back, and why.
    pub left_alone: Vec<LeftAlone>,
    /// Entries that now keep what was at the paths before.
    pub captured: Vec<EntryId>,
    /// Members that the entries still keep.
    pub remaining: u64,
    /// How it was checked.
    pub verified: Verified,
    /// What could not be given back exactly, in words.
    pub notes: Vec<String>,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// What an undo took back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Undone {
    /// The operations, newest first.
    pub operations: Vec<UndoneOperation>,
    /// What went back, together.
    #[serde(flatten)]
    pub restored: Restored,
}

/// One operation that was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UndoneOperation {
    /// Which.
    pub operation: OperationId,
    /// Its entries.
    pub entries: Vec<EntryId>,
    /// The command as it was typed, as far as it is known.
    pub command: Option<String>,
    /// When it began.
    #[serde(with = "clock::rfc3339")]
    pub removed_at: UnixNanos,
}

/// What recovering an interrupted restore did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovered {
    /// Whether there was an interrupted restore to finish.
    pub interrupted: bool,
    /// What it led to.
    #[serde(flatten)]
    pub restored: Restored,
}
