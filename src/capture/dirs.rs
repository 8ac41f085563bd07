//! What capture needs to know of the workspace's directories, asked once for each.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use trashfs_mount::{Attr, Dir, NodeId};

use super::nested::Nested;
use super::recent::Recent;
use crate::beneath;
use crate::policy;
use crate::staging::Area;

const REMEMBERED_MAX: usize = 8192;
/// How long it is taken for true that a directory is, or is not, tagged as a cache.
const TAG_FRESH: Duration = Duration::from_secs(60);

/// A directory of the workspace.
#[derive(Debug)]
pub(super) struct Place {
    /// Workspace-relative.
    pub(super) path: Arc<Path>,
    /// Under which directory paths it holds: changes when a directory has moved.
    pub(super) epoch: u64,
    /// It or an ancestor is tagged as a cache.
    pub(super) cache: bool,
    /// Where captures out of it are staged.
    pub(super) area: Arc<Area>,
    /// The area lies on another filesystem: captures are copies.
    pub(super) by_copy: bool,
}

/// The directories met lately.
pub(super) struct Dirs {
    places: Recent<NodeId, Arc<Place>>,
    tags: Recent<Arc<Path>, (Instant, bool)>,
    /// Raised when paths are void for a reason that the mount does not know.
    voided: AtomicU64,
    nested: Nested,
}

impl Dirs {
    pub(super) fn new(nested: Nested) -> Self {
        Self {
            places: Recent::new(REMEMBERED_MAX),
            tags: Recent::new(REMEMBERED_MAX),
            voided: AtomicU64::new(0),
            nested,
        }
    }

    /// What is known of `dir`.
    pub(super) fn place(&self, dir: &Dir<'_>) -> Result<Arc<Place>, Errno> {
        let epoch = dir
            .epoch
            .wrapping_add(self.voided.load(Ordering::Acquire) << 32);
        if let Some(place) = self.places.get(&dir.id)
            && place.epoch == epoch
        {
            return Ok(place);
        }
        let path: Arc<Path> = dir.path.path()?.into();
        let place = Arc::new(self.look(path, dir.fd, epoch)?);
        self.places.insert(dir.id, place.clone());
        Ok(place)
    }

    /// What is to be known of the directory at `path`, open as `fd`.
    pub(super) fn look(
        &self,
        path: Arc<Path>,
        fd: BorrowedFd<'_>,
        epoch: u64,
    ) -> Result<Place, Errno> {
        let attr = Attr::of(fd)?;
        let site = self.nested.site(&path, &attr)?;
        Ok(Place {
            cache: self.is_cache(&path, fd),
            epoch,
            area: site.area,
            by_copy: site.by_copy,
            path,
        })
    }

    /// The directory with this number is about to go; another may get the number.
    pub(super) fn forget(&self, id: NodeId) {
        self.places.remove(&id);
    }

    /// Staged directories that were found by path must be found anew.
    pub(super) fn void(&self) {
        self.voided.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the directory or one above it, the workspace's root excepted, has a valid tag.
    /// It is asked before anything in the directory is captured, so a tag that is removed before
    /// the rest of its tree still counts.
    fn is_cache(&self, path: &Arc<Path>, fd: BorrowedFd<'_>) -> bool {
        if path.as_os_str().is_empty() {
            return false;
        }
        let now = Instant::now();
        if let Some((at, tagged)) = self.tags.get(path)
            && now.duration_since(at) < TAG_FRESH
        {
            return tagged;
        }
        let tagged = policy::is_tagged(fd) || self.parent_is_cache(path);
        self.tags.insert(path.clone(), (now, tagged));
        tagged
    }

    fn parent_is_cache(&self, path: &Path) -> bool {
        let unknown: Vec<Arc<Path>> = path
            .ancestors()
            .skip(1)
            .filter(|p| !p.as_os_str().is_empty())
            .map(Arc::from)
            .take_while(|p| self.known_tag(p).is_none())
            .collect();
        let above = path
            .ancestors()
            .nth(unknown.len() + 1)
            .map(Arc::from)
            .and_then(|p| self.known_tag(&p))
            .unwrap_or(false);
        let now = Instant::now();
        let mut tagged = above;
        for dir in unknown.iter().rev() {
            tagged = tagged || self.tagged_at(dir);
            self.tags.insert(dir.clone(), (now, tagged));
        }
        tagged
    }

    fn known_tag(&self, path: &Arc<Path>) -> Option<bool> {
        let (at, tagged) = self.tags.get(path)?;
        (at.elapsed() < TAG_FRESH).then_some(tagged)
    }

    fn tagged_at(&self, path: &Path) -> bool {
        let main = self.nested.main();
        beneath::open_dir(main.root.as_fd(), path).is_ok_and(|fd| policy::is_tagged(&fd))
    }

    /// Whether something is at the workspace-relative `path`.
    pub(super) fn exists(&self, path: &Path) -> bool {
        let main = self.nested.main();
        beneath::open_parent(main.root.as_fd(), path)
            .and_then(|(dir, name)| Attr::at(&dir, name))
            .is_ok()
    }

    /// What is to be known of the directory at `path`, found from the root.
    pub(super) fn place_at(&self, path: &Path, epoch: u64) -> Result<Place, Errno> {
        let main = self.nested.main();
        let fd = beneath::open_dir(main.root.as_fd(), path)?;
        self.look(PathBuf::from(path).into(), fd.as_fd(), epoch)
    }
}
