//! What can be asked of a workspace.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::clock::UnixNanos;
use crate::failure::Failure;
use crate::ids::WorkspaceId;
use crate::journal::Filter;
use crate::policy::Question;
use crate::put::PutSpec;
use crate::record::Bytes;
use crate::restore::{RestoreSpec, UndoSpec};

/// One request. Paths are relative to the workspace unless they say otherwise.
#[derive(Debug, Serialize, Deserialize)]
#[serde(
    tag = "verb",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub enum Request {
    /// Who answers? ([`Pong`])
    Ping,
    /// Close every open operation and have the journal know of it.
    Flush,
    /// Take the mount away and end.
    Unmount {
        /// Also while it is in use.
        lazily: bool,
    },
    /// A page of entries.
    List(Filter),
    /// One entry and a page of its members.
    Info {
        /// Id or unique prefix.
        entry: String,
        /// Where the last page of members ended.
        cursor: Option<String>,
        /// Members on the page; 0 for the usual number.
        limit: u64,
    },
    /// What is unfinished.
    Pending,
    /// How the workspace stands.
    Status,
    /// Let nothing end an entry, or let go of it.
    Hold {
        /// Id or unique prefix.
        entry: String,
        /// Hold it.
        on: bool,
    },
    /// Keep an entry for so many days after its removal.
    Retention {
        /// Id or unique prefix.
        entry: String,
        /// Days.
        days: i64,
    },
    /// Free space by giving up what was removed longer ago.
    Empty {
        /// So many days at least; 0 for all.
        older_than_days: u32,
        /// Only say what would be done.
        dry_run: bool,
    },
    /// Release what is proven redundant or gone.
    Release {
        /// Id or unique prefix; all unfinished ones when empty.
        entry: Option<String>,
        /// Give up entries of which nothing is left, too.
        discard_incomplete: bool,
        /// Only say what would be done.
        dry_run: bool,
    },
    /// Say which rule of the policy decides.
    Explain(Question),
    /// Put back, or copy out.
    Restore {
        /// What.
        spec: RestoreSpec,
        /// Copy into this directory of the workspace.
        inside: Option<Bytes>,
        /// Copy into the directory that comes as a descriptor, called this in messages.
        outside: Option<Bytes>,
    },
    /// Take back an operation.
    Undo(UndoSpec),
    /// Put paths away.
    Put(PutSpec),
    /// What is kept of a file; a descriptor goes with it.
    Show {
        /// Id or unique prefix.
        entry: String,
        /// Which path of it, `PATH@N` for version N.
        member: Option<Bytes>,
    },
    /// Compare what is kept with what is there.
    Diff {
        /// Id or unique prefix.
        entry: String,
        /// Which path of it, `PATH@N` for version N.
        member: Option<Bytes>,
    },
    /// Finish an interrupted restore, or copy everything out.
    Recover {
        /// Id or unique prefix.
        entry: String,
        /// Copy into this directory of the workspace.
        inside: Option<Bytes>,
        /// Copy into the directory that comes as a descriptor, called this in messages.
        outside: Option<Bytes>,
    },
}

impl Request {
    /// Whether entries or files may change: one such request at a time.
    pub fn changes(&self) -> bool {
        match self {
            Self::Ping
            | Self::Flush
            | Self::Unmount { .. }
            | Self::List(_)
            | Self::Info { .. }
            | Self::Pending
            | Self::Status
            | Self::Show { .. }
            | Self::Diff { .. }
            | Self::Explain(_) => false,
            Self::Hold { .. }
            | Self::Retention { .. }
            | Self::Empty { .. }
            | Self::Release { .. }
            | Self::Restore { .. }
            | Self::Recover { .. }
            | Self::Put(_)
            | Self::Undo(_) => true,
        }
    }
}

/// Who answers for a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pong {
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Where it is mounted.
    pub path: Bytes,
    /// Its backing directory.
    pub source: Bytes,
    /// Device and inode number of the backing directory.
    pub backing: (u64, u64),
    /// The daemon's process id.
    pub pid: u32,
    /// The mount's number.
    pub mount_id: u64,
    /// Since when.
    pub since: UnixNanos,
    /// The daemon's version.
    pub version: String,
}

/// What comes back.
#[derive(Debug, Default)]
pub struct Answer {
    /// The verb's result.
    pub value: serde_json::Value,
    /// Descriptors that go with it.
    pub fds: Vec<OwnedFd>,
}

impl Answer {
    /// Of a result without descriptors.
    ///
    /// # Errors
    /// When it has no JSON form.
    pub fn of(value: impl Serialize) -> Result<Self, Failure> {
        let value = serde_json::to_value(value)
            .map_err(|e| Failure::failed("internal", format!("the answer has no form: {e}")))?;
        Ok(Self {
            value,
            fds: Vec::new(),
        })
    }
}

/// An answer on the wire.
pub(super) type WireAnswer = Result<serde_json::Value, Failure>;
