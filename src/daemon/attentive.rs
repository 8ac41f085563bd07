//! The captures, and beside them an eye on who fills the disk: the keeper looks after the room
//! more closely while the workspace grows.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use trashfs_mount::{Attr, Caller, Change, Interceptor, Interests, NodeId, Place, Ticket, Verdict};

use crate::capture::Capture;
use crate::keeper::Nudge;

/// What the mount asks.
pub(super) struct Attentive {
    capture: Arc<Capture>,
    nudge: Nudge,
}

impl Attentive {
    pub(super) fn new(capture: Arc<Capture>, nudge: Nudge) -> Self {
        Self { capture, nudge }
    }
}

impl Interceptor for Attentive {
    fn interests(&self) -> Interests {
        self.capture.interests().union(Interests::CREATE)
    }

    fn before(&self, caller: Caller, change: &Change<'_>) -> Verdict {
        let verdict = self.capture.before(caller, change);
        match verdict {
            Verdict::Refuse(Errno::NOSPC | Errno::DQUOT) => self.nudge.full(),
            Verdict::Refuse(_) | Verdict::Proceed => {}
            _ => self.nudge.captured(),
        }
        verdict
    }

    fn settled(&self, ticket: Ticket, outcome: Result<(), Errno>) {
        self.capture.settled(ticket, outcome);
    }

    fn created(&self, caller: Caller, attr: &Attr) {
        self.nudge.wait_for_room();
        self.capture.created(caller, attr);
    }

    fn opening_to_write(&self, caller: Caller, node: NodeId) {
        self.nudge.wait_for_room();
        self.capture.opening_to_write(caller, node);
    }

    fn writers_gone(&self, node: NodeId) {
        self.capture.writers_gone(node);
    }

    fn hides(&self, dir: &Attr, name: &OsStr) -> bool {
        self.capture.hides(dir, name)
    }

    fn hidden_links(&self, attr: &Attr) -> u32 {
        self.capture.hidden_links(attr)
    }

    fn open_place(&self, place: &Place) -> Result<OwnedFd, Errno> {
        self.capture.open_place(place)
    }
}
