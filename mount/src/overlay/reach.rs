//! From a node's number to something that system calls accept.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::Overlay;
use crate::dirs::OpenDir;
use crate::handles::OpenFile;
use crate::nodes::Name;
use crate::numbers::ROOT;
use crate::{Attr, FileKind, Interceptor, NodeId, PathSource, sys};

/// How often a file that moves while it is looked for is looked for again.
const MAX_ATTEMPTS: u32 = 8;
/// A rename is done a moment before it is noted: the time to allow for that, at each attempt.
const MOMENT: Duration = Duration::from_micros(20);
/// Directories lie no deeper than this; a longer chain of parents is a loop.
const MAX_DEPTH: usize = 1 << 20;

/// Something open on exactly the wanted file, whatever its name is by now.
pub(super) enum Reach {
    /// For reading or writing.
    Handle(Arc<OpenFile>),
    /// `O_PATH`, opened for this one use.
    Path(OwnedFd),
    /// `O_PATH`, kept.
    Kept(Arc<OwnedFd>),
}

impl AsFd for Reach {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Handle(file) => file.as_fd(),
            Self::Path(fd) => fd.as_fd(),
            Self::Kept(fd) => fd.as_fd(),
        }
    }
}

/// The name was wrong, which may be because it has just changed.
fn is_stale(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::LOOP
    )
}

impl<I: Interceptor> Overlay<I> {
    /// The directory `id`, opened anew if it was closed meanwhile.
    pub(super) fn dir(&self, id: NodeId) -> Result<Arc<OpenDir>, Errno> {
        if id == ROOT {
            return Ok(Arc::clone(&self.root));
        }
        if let Some(dir) = self.dirs.get(id) {
            return Ok(dir);
        }
        if let Some(fd) = self.nodes.pinned(id) {
            let attr = Attr::of(&*fd)?;
            return Ok(Arc::new(OpenDir { attr, fd }));
        }
        for attempt in 0..MAX_ATTEMPTS {
            match self.reopen_dir(id) {
                Err(error) if is_stale(error) => {}
                other => return other,
            }
            if self.nodes.is_nameless(id) {
                break;
            }
            std::thread::sleep(MOMENT * attempt);
        }
        Err(Errno::STALE)
    }

    /// Goes up by the names that are known to the nearest directory that is open, then down again
    /// one name at a time: no path is ever joined, so none is too long.
    fn reopen_dir(&self, id: NodeId) -> Result<Arc<OpenDir>, Errno> {
        let mut way_down = Vec::new();
        let mut current = id;
        let mut dir = loop {
            let Name { parent, name } = self.nodes.first_name(current).ok_or(Errno::STALE)?;
            way_down.push((current, name));
            if parent == ROOT {
                break Arc::clone(&self.root);
            }
            if let Some(dir) = self.dirs.get(parent) {
                break dir;
            }
            if way_down.len() > MAX_DEPTH {
                return Err(Errno::LOOP);
            }
            current = parent;
        };
        let keep_all = way_down.len() < self.dirs.capacity() / 4;
        while let Some((node, name)) = way_down.pop() {
            dir = Arc::new(OpenDir::new(sys::open_dir_path(&dir, &name)?)?);
            if !self.is_node(node, &dir.attr) {
                return Err(Errno::STALE);
            }
            if keep_all || way_down.is_empty() {
                self.dirs.insert(node, Arc::clone(&dir));
            }
        }
        Ok(dir)
    }

    /// Tries `act` under each name of a node, again when names change meanwhile. `act` answers
    /// `STALE` when it came upon another file.
    pub(super) fn under_a_name<T>(
        &self,
        id: NodeId,
        mut act: impl FnMut(&OpenDir, &OsStr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        for attempt in 0..MAX_ATTEMPTS {
            let names = self.nodes.names(id);
            if names.is_empty() {
                break;
            }
            for Name { parent, name } in &names {
                match self.dir(*parent).and_then(|dir| act(&dir, name)) {
                    Err(error) if is_stale(error) => {}
                    other => return other,
                }
            }
            std::thread::sleep(MOMENT * attempt);
        }
        Err(Errno::STALE)
    }

    /// A name that `id` has just now, if it has any.
    pub(super) fn current_name(&self, id: NodeId) -> Result<Option<(Arc<OpenDir>, Name)>, Errno> {
        for Name { parent, name } in self.nodes.names(id) {
            let Ok(dir) = self.dir(parent) else { continue };
            match Attr::at(&dir, &*name) {
                Ok(attr) if self.is_node(id, &attr) => {
                    return Ok(Some((dir, Name { parent, name })));
                }
                Err(error) if !is_stale(error) => return Err(error),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Opens exactly the file `id` to name it, be it by a name or where the interceptor put it.
    pub(super) fn reach(&self, id: NodeId) -> Result<Reach, Errno> {
        if id == ROOT {
            return Ok(Reach::Kept(Arc::clone(&self.root.fd)));
        }
        if let Some(file) = self.nodes.any_handle(id) {
            return Ok(Reach::Handle(file));
        }
        if self.nodes.kind(id) == Some(FileKind::Directory) {
            return Ok(Reach::Kept(Arc::clone(&self.dir(id)?.fd)));
        }
        let by_name = self.under_a_name(id, |dir, name| {
            let fd = sys::open_path(dir, name)?;
            self.is_node(id, &Attr::of(&fd)?)
                .then_some(fd)
                .ok_or(Errno::STALE)
        });
        match by_name {
            Err(Errno::STALE) => self.reach_place(id),
            other => other.map(Reach::Path),
        }
    }

    fn reach_place(&self, id: NodeId) -> Result<Reach, Errno> {
        if let Some(fd) = self.nodes.pinned(id) {
            return Ok(Reach::Kept(fd));
        }
        let place = self.nodes.place(id).ok_or(Errno::STALE)?;
        let fd = self.interceptor.open_place(&place)?;
        if !self.is_node(id, &Attr::of(&fd)?) {
            return Err(Errno::STALE);
        }
        Ok(Reach::Path(fd))
    }
}

/// Path of a directory node, found only if somebody asks.
pub(super) struct NodePath<'a, I> {
    pub(super) overlay: &'a Overlay<I>,
    pub(super) node: NodeId,
}

impl<I: Interceptor> PathSource for NodePath<'_, I> {
    fn path(&self) -> Result<PathBuf, Errno> {
        let mut way_up = Vec::new();
        let mut current = self.node;
        while current != ROOT {
            let Name { parent, name } =
                self.overlay.nodes.first_name(current).ok_or(Errno::STALE)?;
            way_up.push(name);
            if way_up.len() > MAX_DEPTH {
                return Err(Errno::LOOP);
            }
            current = parent;
        }
        Ok(way_up.iter().rev().map(|name| &**name).collect())
    }
}
