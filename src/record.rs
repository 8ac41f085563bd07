//! What is written of an operation and shown of an entry.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{self, UnixNanos};
use crate::ids::{EntryId, OperationId, WorkspaceId};
use crate::journal::State;

/// A path or argument of any bytes: a JSON string where it is UTF-8, else `{"base64": "…"}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "BytesForm", into = "BytesForm")]
pub struct Bytes(pub OsString);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum BytesForm {
    Text(String),
    Base64 { base64: Base64 },
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Base64(Vec<u8>);

impl TryFrom<String> for Base64 {
    type Error = data_encoding::DecodeError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        data_encoding::BASE64.decode(text.as_bytes()).map(Self)
    }
}

impl From<Base64> for String {
    fn from(bytes: Base64) -> Self {
        data_encoding::BASE64.encode(&bytes.0)
    }
}

impl From<BytesForm> for Bytes {
    fn from(form: BytesForm) -> Self {
        match form {
            BytesForm::Text(text) => Self(text.into()),
            BytesForm::Base64 { base64 } => Self(OsString::from_vec(base64.0)),
        }
    }
}

impl From<Bytes> for BytesForm {
    fn from(bytes: Bytes) -> Self {
        match bytes.0.into_string() {
            Ok(text) => Self::Text(text),
            Err(raw) => Self::Base64 {
                base64: Base64(raw.into_vec()),
            },
        }
    }
}

impl Bytes {
    /// As a path.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
    /// For people: what is not UTF-8 is replaced.
    pub fn display(&self) -> Cow<'_, str> {
        self.0.to_string_lossy()
    }
    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl From<&Path> for Bytes {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().to_owned())
    }
}
impl From<PathBuf> for Bytes {
    fn from(path: PathBuf) -> Self {
        Self(path.into_os_string())
    }
}
impl From<&OsStr> for Bytes {
    fn from(text: &OsStr) -> Self {
        Self(text.to_owned())
    }
}
impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

/// Why something was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// It was removed: unlink, rmdir, `trash put`.
    Remove,
    /// Another file took its name.
    Replace,
    /// Its content was cut off.
    Truncate,
}

impl Cause {
    /// As in JSON and in staging.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Remove => "remove",
            Self::Replace => "replace",
            Self::Truncate => "truncate",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Cause {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Remove, Self::Replace, Self::Truncate]
            .into_iter()
            .find(|c| c.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no cause; there are remove, replace and truncate"))
    }
}

/// How an entry is kept (design: policy).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// Shipped where the station is hosted; in the local profile resident under the same retention.
    Hosted,
    /// Resident only, for a time and within a size budget.
    Local,
}

impl Keep {
    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hosted => "hosted",
            Self::Local => "local",
        }
    }
}

/// What the policy decided for one capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    /// In which way.
    pub keep: Keep,
    /// For how long after the operation began.
    pub retain: Duration,
    /// At most so many captures of one path in this way (the oldest goes first); none: no bound.
    pub versions_max: Option<u32>,
}

/// The process that made the first capture of an operation, read once from procfs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Process {
    /// Process id (not thread id) in the daemon's namespace; 0 when it can't be seen.
    pub pid: u32,
    /// Process group.
    pub pgid: u32,
    /// Session.
    pub sid: u32,
    /// Start time of the group's leader in clock ticks since boot (proc(5), field 22).
    pub leader_start_ticks: u64,
    /// Filesystem uid.
    pub uid: u32,
    /// Filesystem gid.
    pub gid: u32,
    /// Executable.
    pub exe: Option<Bytes>,
    /// Working directory.
    pub cwd: Option<Bytes>,
    /// Arguments, bounded to 4 KiB in all.
    pub argv: Vec<Bytes>,
}

/// On whose behalf: from named variables of the process and its ancestors only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attribution {
    /// Agent, as `TRASH_AGENT` or the harness names it.
    pub agent: Option<String>,
    /// Harness: claude-code, codex, gemini-cli, cursor, opencode.
    pub harness: Option<String>,
    /// Session, as `TRASH_SESSION` or the harness names it.
    pub session: Option<String>,
}

/// Version of `op.json`.
pub const OP_FORMAT: u32 = 1;

/// `op.json`: written when an entry's directory is made, never changed after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpRecord {
    /// [`OP_FORMAT`].
    pub format: u32,
    /// The entry that this directory is.
    pub entry: EntryId,
    /// The operation; another entry of the same operation (kept in the other way) shares it.
    pub operation: OperationId,
    /// The workspace.
    pub workspace: WorkspaceId,
    /// How it is kept.
    pub keep: Keep,
    /// When the operation began.
    pub started: UnixNanos,
    /// Who.
    pub process: Process,
    /// For whom.
    pub attribution: Attribution,
    /// Verb of the product that made it (`put`, `swap`), none for what a system call did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
}

/// Kind of a root, as users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are those of inode(7)")]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
    /// Several roots of different kinds.
    Mixed,
}

impl From<trashfs_mount::FileKind> for Kind {
    fn from(kind: trashfs_mount::FileKind) -> Self {
        use trashfs_mount::FileKind;
        match kind {
            FileKind::Regular => Self::File,
            FileKind::Directory => Self::Directory,
            FileKind::Symlink => Self::Symlink,
            FileKind::Fifo => Self::Fifo,
            FileKind::Socket => Self::Socket,
            FileKind::CharDevice | FileKind::BlockDevice => Self::Device,
        }
    }
}

/// The top of something that was captured: a path that had its own parent left in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Root {
    /// Workspace-relative path where it was.
    pub path: Bytes,
    /// Kind.
    pub kind: Kind,
    /// Effective cause: what was removed and whose path the same operation filled again counts
    /// as replaced.
    pub cause: Cause,
    /// Which capture of this path within the operation, from 1 (the oldest).
    pub version: u32,
    /// What the operation left at that path, for causes other than `remove`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Left>,
}

/// The fingerprint of what an overwriting operation left: undo goes on only while it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    /// Inode number in the backing.
    pub ino: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Modification time.
    pub mtime_ns: i128,
}

impl Left {
    /// Of a file as it is.
    pub fn of(attr: &trashfs_mount::Attr) -> Self {
        Self {
            ino: attr.ino,
            size_bytes: attr.size_bytes,
            mtime_ns: i128::from(attr.mtime.secs) * 1_000_000_000 + i128::from(attr.mtime.nanos),
        }
    }
}

/// A failure that stands beside the state: what was tried, and whether to try again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// Whether another attempt can succeed.
    pub retryable: bool,
    /// What went wrong.
    pub reason: String,
}

/// An entry as the journal has it and as `trash list --json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its id.
    pub id: EntryId,
    /// The operation that it belongs to.
    pub operation: OperationId,
    /// How far it has come.
    pub state: State,
    /// A failure beside the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Failed>,
    /// Effective causes of its roots, sorted, each once.
    pub causes: Vec<Cause>,
    /// How it is kept.
    pub keep: Keep,
    /// Kind of its roots.
    pub kind: Kind,
    /// The root's path, or the directory that all roots have in common; relative to the workspace.
    pub path: Bytes,
    /// The roots; at most [`ROOTS_SHOWN`] of them.
    pub roots: Vec<Root>,
    /// Number of all roots.
    pub roots_total: u64,
    /// Members of all kinds, directories that were removed included.
    pub members: u64,
    /// Length of all regular files in bytes.
    pub bytes: u64,
    /// The station.
    pub station: String,
    /// Where the workspace is mounted.
    pub workspace: Bytes,
    /// Agent.
    pub agent: Option<String>,
    /// Harness.
    pub harness: Option<String>,
    /// Session.
    pub session: Option<String>,
    /// The command as it was typed, as far as it is known.
    pub command: Option<String>,
    /// Process id of the first capture.
    pub pid: u32,
    /// When the operation began.
    #[serde(with = "clock::rfc3339")]
    pub removed_at: UnixNanos,
    /// Whether the bytes lie in the workspace's staging area.
    pub resident: bool,
    /// When retention ends.
    #[serde(with = "clock::rfc3339")]
    pub retain_until: UnixNanos,
    /// Held by a person: nothing ends it.
    pub hold: bool,
    /// Whether each member's hash is in the manifest.
    pub hashed: bool,
    /// All that was removed is kept for a day at most (a tool's own scratch, git's housekeeping):
    /// the plain list and a plain undo pass over it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passing: bool,
    /// Verb that made it, if no system call did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<String>,
}

/// Roots that an [`Entry`] carries; all of them are in staging.
pub const ROOTS_SHOWN: usize = 100;
