//! Captures that wait for the outcome of their system call.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use trashfs_mount::{Attr, NodeId, Place, Ticket};

use super::Capture;
use super::operation::{DirTimes, InUse, OpenEntry};
use super::placing::content_bytes;
use super::trees::StagedDir;
use crate::discard;

/// How a file got into staging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Under a second name; the first is about to go.
    Linked,
    /// As a copy; the original is about to go.
    Copied,
    /// As a copy; the original is about to get shorter.
    Truncated,
}

/// A staged file whose original is still in place.
pub(super) struct StagedFile {
    /// Keeps it open until the outcome is known.
    pub(super) operation: InUse,
    pub(super) entry: Arc<OpenEntry>,
    /// What the path names after an overwriting.
    pub(super) successor: Option<NodeId>,
    pub(super) dir: Arc<StagedDir>,
    pub(super) name: OsString,
    pub(super) attr: Attr,
    pub(super) node: NodeId,
    pub(super) how: How,
}

/// A staged directory whose original is still in place.
pub(super) struct StagedEmptyDir {
    pub(super) operation: InUse,
    pub(super) entry: Arc<OpenEntry>,
    pub(super) dir: Arc<StagedDir>,
    pub(super) path: PathBuf,
    pub(super) place: Place,
    /// It was made for this capture, not for an earlier one out of the directory.
    pub(super) made: bool,
    pub(super) node: NodeId,
    pub(super) times: Option<DirTimes>,
}

/// A capture that waits.
pub(super) enum Pending {
    File(StagedFile),
    Dir(StagedEmptyDir),
}

/// The captures that wait, by ticket.
#[derive(Default)]
pub(super) struct Tickets {
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, Pending>>,
}

impl Tickets {
    pub(super) fn give(&self, pending: Pending) -> Ticket {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.waiting.lock().insert(number, pending);
        Ticket(number)
    }

    fn take(&self, ticket: Ticket) -> Option<Pending> {
        self.waiting.lock().remove(&ticket.0)
    }
}

impl Capture {
    /// The system call behind `ticket` has succeeded, or not.
    pub(super) fn settle(&self, ticket: Ticket, succeeded: bool) {
        match (self.tickets.take(ticket), succeeded) {
            (Some(Pending::File(file)), true) => self.file_is_gone(&file),
            (Some(Pending::File(file)), false) => self.file_stayed(&file),
            (Some(Pending::Dir(dir)), true) => self.closer.count(&dir.entry, 0),
            (Some(Pending::Dir(dir)), false) => dir.revert(),
            (None, _) => tracing::error!(?ticket, "a ticket that was never given"),
        }
    }

    fn file_is_gone(&self, file: &StagedFile) {
        if file.how == How::Linked && file.attr.nlink <= 1 {
            // Only the staged name is left: nobody in the workspace can ask.
            self.links.change((file.attr.dev, file.attr.ino), -1);
        }
        if let Some(node) = file.successor {
            self.origins.overwritten_by(node, file.operation.group());
        }
        self.closer.count(&file.entry, content_bytes(&file.attr));
    }

    /// Takes the staged name back, if it isn't the only one.
    fn file_stayed(&self, file: &StagedFile) {
        if file.how == How::Linked {
            self.links.change((file.attr.dev, file.attr.ino), -1);
            self.closer.writers_gone_from(&file.entry, file.node);
        }
        let taken_back = || {
            let staged = Attr::at(&file.dir.fd, &*file.name)?;
            if file.how == How::Linked && staged.same_file(&file.attr) && staged.nlink < 2 {
                return Err(Errno::BUSY);
            }
            discard::file(&file.dir.fd, &*file.name)
        };
        if let Err(error) = taken_back() {
            tracing::warn!(path = %file.dir.path.join(&file.name).display(), %error,
                "a file that was not removed stays in staging too");
        }
    }
}
