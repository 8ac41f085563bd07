//! POSIX semantics over the backing directory, without FUSE types.

mod attributes;
mod create;
mod directory;
mod file;
mod lookup;
mod reach;
mod remove;
mod rename;
#[cfg(test)]
mod tests;
mod verdict;
mod xattr;

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

pub use attributes::{AttrChanges, NewTime, SpaceUsage};
pub use directory::DirEntry;
use directory::OpenListing;
pub use file::Opened;

use crate::dirs::{Dirs, OpenDir};
use crate::handles::{Handles, OpenFile};
use crate::nodes::{Birth, Nodes};
use crate::numbers::{Numbers, ROOT};
use crate::{Attr, Interceptor, Interests, NodeId, sys};

/// What an [`Overlay`] may use of the process's resources.
#[derive(Clone, Debug, Default)]
pub struct OverlayOptions {
    /// Directory descriptors kept open at most; `None` takes a quarter of `RLIMIT_NOFILE`.
    pub max_directory_fds: Option<usize>,
}

/// More than these are of no use, whatever the limits allow.
const MAX_DIRECTORY_FDS: usize = 4096;

/// `f_type` of filesystems whose files change device, number or birth when first written to.
const OVERLAYFS: i64 = 0x794c_7630;

/// A directory tree whose destructive operations are put to an [`Interceptor`] first.
///
/// Numbers (`NodeId`, `HandleId`) are valid between the call that gives one out and the
/// [`Overlay::forget`] or release that takes it back.
pub struct Overlay<I> {
    root: Arc<OpenDir>,
    interceptor: Arc<I>,
    interests: Interests,
    nodes: Nodes,
    numbers: Numbers,
    dirs: Dirs,
    files: Handles<OpenFile>,
    listings: Handles<OpenListing>,
    /// Counts moves of directories.
    epoch: AtomicU64,
    /// `f_type` of the root's filesystem.
    filesystem: i64,
}

/// A file as the kernel is to be told of it.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its number.
    pub node: NodeId,
    /// Tells it from earlier files of the same number.
    pub generation: u64,
    /// Its attributes; `ino` is what users see.
    pub attr: Attr,
    /// The attributes may be remembered: nobody changes them behind the kernel's back.
    pub steady: bool,
}

impl<I: Interceptor> Overlay<I> {
    /// Over the directory `root`, which may be an `O_PATH` descriptor.
    pub fn new(root: OwnedFd, interceptor: Arc<I>, options: OverlayOptions) -> io::Result<Self> {
        let root = OpenDir::new(root)?;
        if !root.attr.is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        let max_dirs = options
            .max_directory_fds
            .unwrap_or_else(|| (sys::max_open_files() / 4).min(MAX_DIRECTORY_FDS));
        Ok(Self {
            interests: interceptor.interests(),
            interceptor,
            nodes: Nodes::new(),
            numbers: Numbers::new(root.attr.dev),
            dirs: Dirs::new(max_dirs),
            files: Handles::new(),
            listings: Handles::new(),
            epoch: AtomicU64::new(0),
            filesystem: rustix::fs::fstatfs(&root)?.f_type,
            root: Arc::new(root),
        })
    }

    /// The interceptor that it asks.
    pub fn interceptor(&self) -> &Arc<I> {
        &self.interceptor
    }

    /// `f_type` of the backing filesystem, as in `statfs(2)`.
    pub fn filesystem_type(&self) -> i64 {
        self.filesystem
    }

    /// The number of the directory at a path relative to the root, for those who speak in paths.
    pub fn node_at(&self, path: &Path) -> Result<NodeId, Errno> {
        let mut dir = Arc::clone(&self.root);
        for component in path {
            dir = Arc::new(OpenDir::new(sys::open_dir_path(&dir, component)?)?);
        }
        if Arc::ptr_eq(&dir, &self.root) {
            return Ok(ROOT);
        }
        Ok(self.numbers.of(&dir.attr))
    }

    /// To be called when directories were moved past this overlay: voids the paths that the
    /// interceptor may have remembered.
    pub fn directories_moved(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn wants(&self, what: Interests) -> bool {
        self.interests.contains(what)
    }

    fn birth(&self, attr: &Attr) -> Birth {
        if self.filesystem == OVERLAYFS {
            return Birth(0);
        }
        Birth::of(attr)
    }

    /// Whether `attr` describes the file that the kernel knows as `node`.
    fn is_node(&self, node: NodeId, attr: &Attr) -> bool {
        self.numbers.of(attr) == node && self.nodes.is(node, self.birth(attr))
    }

    fn hides(&self, dir: &OpenDir, name: &OsStr) -> bool {
        self.interceptor.hides(&dir.attr, name)
    }

    /// Refuses names that cannot be made in `dir`.
    fn check_new_name(&self, dir: &OpenDir, name: &OsStr) -> Result<(), Errno> {
        if name.len() > sys::MAX_NAME_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        if self.hides(dir, name) {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// Refuses names that cannot be seen in `dir`.
    fn check_old_name(&self, dir: &OpenDir, name: &OsStr) -> Result<(), Errno> {
        if name.len() > sys::MAX_NAME_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        if self.hides(dir, name) {
            return Err(Errno::NOENT);
        }
        Ok(())
    }
}
