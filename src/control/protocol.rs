//! What can be asked of a workspace.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::clock::UnixNanos;
use crate::failure::Failure;
use crate::ids::WorkspaceId;
use crate::journal::Filter;
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
}

impl Request {
    /// Whether entries or files may change: one such request at a time.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Self::Ping | Self::Flush | Self::Unmount { .. } | Self::List(_)
        )
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
