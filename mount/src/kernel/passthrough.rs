//! Which inodes the kernel reads and writes by itself.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::BackingId;
use parking_lot::Mutex;

use crate::NodeId;

/// How an inode is open. All its handles are so, until the last is released: the kernel refuses
/// to mix.
enum Way {
    Backed(Arc<BackingId>),
    Ordinary,
}

struct Open {
    way: Way,
    handles: u32,
}

const SHARDS: usize = 16;

/// Decides, inode by inode, between passthrough and ordinary requests.
pub(super) struct Passthrough {
    wanted: AtomicBool,
    /// At least one inode was.
    used: AtomicBool,
    inodes: [Mutex<HashMap<NodeId, Open>>; SHARDS],
}

impl Passthrough {
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            wanted: AtomicBool::new(wanted),
            used: AtomicBool::new(false),
            inodes: Default::default(),
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Whether backing files may be written through mapped memory without the kernel's telling
    /// the mount's inode. Where every write is a request, it knows of all.
    pub(super) fn hides_writes(&self) -> bool {
        self.is_wanted() || self.used.load(Ordering::Relaxed)
    }

    /// For the life of the mount.
    pub(super) fn give_up(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    fn shard(&self, node: NodeId) -> &Mutex<HashMap<NodeId, Open>> {
        &self.inodes[node as usize % SHARDS]
    }

    /// One more handle of `node`, whose mode is `mode`. Gives the backing file for the kernel to
    /// use, which `register` makes known to it if this is the first handle.
    pub(super) fn enter(
        &self,
        node: NodeId,
        mode: u32,
        register: impl FnOnce() -> io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        let mut inodes = self.shard(node).lock();
        let open = inodes.entry(node).or_insert_with(|| Open {
            way: self.choose(mode, register),
            handles: 0,
        });
        open.handles += 1;
        match &open.way {
            Way::Backed(backing) => Some(Arc::clone(backing)),
            Way::Ordinary => None,
        }
    }

    fn choose(&self, mode: u32, register: impl FnOnce() -> io::Result<BackingId>) -> Way {
        // The kernel doesn't clear set-id bits on writes that it passes through itself.
        let set_id = mode & (libc::S_ISUID | libc::S_ISGID) != 0;
        if !self.is_wanted() || set_id || mode & libc::S_IFMT != libc::S_IFREG {
            return Way::Ordinary;
        }
        match register() {
            Ok(backing) => {
                self.used.store(true, Ordering::Relaxed);
                Way::Backed(Arc::new(backing))
            }
            Err(error) => {
                tracing::info!(%error, "no passthrough: the kernel refuses backing files");
                self.give_up();
                Way::Ordinary
            }
        }
    }

    /// One handle less.
    pub(super) fn leave(&self, node: NodeId) {
        let mut inodes = self.shard(node).lock();
        if let Some(open) = inodes.get_mut(&node) {
            open.handles -= 1;
            if open.handles == 0 {
                inodes.remove(&node);
            }
        }
    }
}
