//! Telling the keeper behind what has been captured, and what is complete.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use parking_lot::Mutex;
use rustix::io::Errno;
use trashfs_mount::NodeId;

use super::CaptureEvent;
use super::operation::{Closing, OpenEntry};
use super::trees::Trees;
use crate::staging::{Area, Exceptions, OP_RECORD, Staging, TreeName};
use crate::walk::{self, Flow, When, names_in};
use crate::{beneath, discard};

/// Announces entries and closes them.
pub(super) struct Closer {
    staging: Arc<Staging>,
    trees: Arc<Trees>,
    events: Sender<CaptureEvent>,
    /// Entries that hold a file which is still open for writing.
    writers: Mutex<HashMap<NodeId, Vec<Arc<OpenEntry>>>>,
}

impl Closer {
    pub(super) fn new(
        staging: Arc<Staging>,
        trees: Arc<Trees>,
        events: Sender<CaptureEvent>,
    ) -> Self {
        Self {
            staging,
            trees,
            events,
            writers: Mutex::default(),
        }
    }

    pub(super) fn send(&self, event: CaptureEvent) {
        if self.events.send(event).is_err() {
            tracing::debug!("nobody keeps a journal: the next start will find what was captured");
        }
    }

    /// A member has been captured; the first makes the entry known.
    pub(super) fn count(&self, entry: &OpenEntry, bytes: u64) {
        entry.count(bytes);
        self.announce(entry);
    }

    fn announce(&self, entry: &OpenEntry) {
        entry.announced.get_or_init(|| {
            self.send(CaptureEvent::Opened(Box::new(entry.record.clone())));
        });
    }

    /// The entry is complete only after the last writer of `node` has gone.
    pub(super) fn wait_for(&self, entry: &Arc<OpenEntry>, node: NodeId) {
        let mut writers = self.writers.lock();
        let waiting = writers.entry(node).or_default();
        if !waiting.iter().any(|known| Arc::ptr_eq(known, entry)) {
            waiting.push(entry.clone());
        }
        entry.add_writer(node);
    }

    /// The last writer of `node` has gone.
    pub(super) fn writers_gone(&self, node: NodeId) {
        let waiting = self.writers.lock().remove(&node).unwrap_or_default();
        for entry in waiting {
            if entry.remove_writer(node) {
                self.closed(&entry);
            }
        }
    }

    /// `node` is not in `entry` after all.
    pub(super) fn writers_gone_from(&self, entry: &Arc<OpenEntry>, node: NodeId) {
        let mut writers = self.writers.lock();
        if let Some(waiting) = writers.get_mut(&node) {
            waiting.retain(|known| !Arc::ptr_eq(known, entry));
            if waiting.is_empty() {
                writers.remove(&node);
            }
            entry.remove_writer(node);
        }
    }

    /// Takes away the directories of an entry in which nothing is.
    fn discard_empty(&self, entry: &OpenEntry) -> io::Result<()> {
        self.staging
            .areas()
            .iter()
            .try_for_each(|area| discard_empty_part(area, entry.id().as_str()))
    }
}

/// Removes containers, then the records; `ENOTEMPTY` when there is anything else.
fn discard_empty_part(area: &Area, id: &str) -> io::Result<()> {
    let dir = match beneath::open_dir_at(&area.ops, OsStr::new(id)) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    for (name, _) in names_in(dir.as_fd())? {
        if name.to_str().is_none_or(|n| n.parse::<TreeName>().is_err()) {
            continue;
        }
        let tree = beneath::open_dir_at(&dir, &name)?;
        walk::walk(tree.as_fd(), &mut |step| match step.when {
            When::Enter => Ok(Flow::Continue),
            When::Leaf => Err(Errno::NOTEMPTY.into()),
            When::Leave => Ok(discard::empty_dir(step.dir, step.name).map(|()| Flow::Continue)?),
        })?;
        discard::empty_dir(&dir, &name)?;
    }
    for record in [OP_RECORD, Exceptions::NAME] {
        match discard::file(&dir, record) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(discard::empty_dir(&area.ops, id)?)
}

impl Closing for Closer {
    fn closed(&self, entry: &OpenEntry) {
        let (members, bytes) = entry.counts();
        if members == 0 && entry.announced.get().is_none() {
            match self.discard_empty(entry) {
                Ok(()) => return,
                Err(error) => tracing::warn!(entry = %entry.id(), %error,
                    "an entry without members is kept"),
            }
        }
        self.announce(entry);
        self.send(CaptureEvent::Closed {
            entry: entry.id().clone(),
            members,
            bytes,
        });
    }

    fn over(&self, entry: &OpenEntry, whole: bool) {
        self.trees.close(entry);
        if !whole {
            let (members, bytes) = entry.counts();
            self.announce(entry);
            self.send(CaptureEvent::Waiting {
                entry: entry.id().clone(),
                members,
                bytes,
            });
        }
    }
}
