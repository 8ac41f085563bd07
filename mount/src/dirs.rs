//! A bounded number of open directories.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::{Attr, NodeId};

/// A directory, opened with `O_PATH`.
#[derive(Debug)]
pub(crate) struct OpenDir {
    pub(crate) fd: Arc<OwnedFd>,
    /// As it was when opened: good for what never changes (number, device).
    pub(crate) attr: Attr,
}

impl OpenDir {
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, Errno> {
        let attr = Attr::of(&fd)?;
        Ok(Self {
            fd: Arc::new(fd),
            attr,
        })
    }
}

impl AsFd for OpenDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The directories used most recently.
pub(crate) struct Dirs {
    capacity: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    now: u64,
    dirs: HashMap<NodeId, (Arc<OpenDir>, u64)>,
}

impl Dirs {
    /// Never more than `capacity`, at least 8.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(8),
            inner: Mutex::default(),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<Arc<OpenDir>> {
        let mut inner = self.inner.lock();
        inner.now += 1;
        let now = inner.now;
        let (dir, used) = inner.dirs.get_mut(&id)?;
        *used = now;
        Some(Arc::clone(dir))
    }

    pub(crate) fn insert(&self, id: NodeId, dir: Arc<OpenDir>) {
        let mut inner = self.inner.lock();
        inner.now += 1;
        let now = inner.now;
        inner.dirs.insert(id, (dir, now));
        if inner.dirs.len() > self.capacity {
            inner.evict();
        }
    }

    pub(crate) fn remove(&self, id: NodeId) -> Option<Arc<OpenDir>> {
        self.inner.lock().dirs.remove(&id).map(|(dir, _)| dir)
    }
}

impl Inner {
    /// Closes the eighth that was not used for longest, so that the search costs little each.
    fn evict(&mut self) {
        let mut ages: Vec<u64> = self.dirs.values().map(|(_, used)| *used).collect();
        let oldest = ages.len() / 8;
        let (_, &mut limit, _) = ages.select_nth_unstable(oldest);
        self.dirs.retain(|_, (_, used)| *used > limit);
    }
}
