//! What the kernel has open, by number.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::NodeId;

/// How the kernel names something open.
pub type HandleId = u64;

/// An open regular file.
#[derive(Debug)]
pub struct OpenFile {
    pub(crate) node: NodeId,
    pub(crate) fd: OwnedFd,
    pub(crate) access: Access,
}

/// What a file is open for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// The only one through which memory can be mapped for shared writing.
    ReadWrite,
}

impl Access {
    pub(crate) fn of(flags: OFlags) -> Self {
        match flags & OFlags::ACCMODE {
            OFlags::WRONLY => Self::Write,
            OFlags::RDWR => Self::ReadWrite,
            _ => Self::Read,
        }
    }

    pub(crate) fn writes(self) -> bool {
        self != Self::Read
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const SHARDS: usize = 16;

/// Hands out numbers for what is open.
pub(crate) struct Handles<T> {
    next: AtomicU64,
    shards: [Mutex<HashMap<HandleId, Arc<T>>>; SHARDS],
}

impl<T> Handles<T> {
    pub(crate) fn new() -> Self {
        Self {
            next: AtomicU64::new(1),
            shards: Default::default(),
        }
    }

    fn shard(&self, id: HandleId) -> &Mutex<HashMap<HandleId, Arc<T>>> {
        &self.shards[id as usize % SHARDS]
    }

    pub(crate) fn insert(&self, what: Arc<T>) -> HandleId {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(id).lock().insert(id, what);
        id
    }

    pub(crate) fn get(&self, id: HandleId) -> Result<Arc<T>, Errno> {
        self.shard(id).lock().get(&id).cloned().ok_or(Errno::BADF)
    }

    pub(crate) fn remove(&self, id: HandleId) -> Option<Arc<T>> {
        self.shard(id).lock().remove(&id)
    }
}
