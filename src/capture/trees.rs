//! The staged directories of open entries: made when first needed, held open while used.

use std::ffi::OsStr;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use trashfs_mount::Attr;

use super::dirs::Place;
use super::operation::OpenEntry;
use super::recent::Recent;
use super::reserve::with_room;
use crate::staging::{Area, CONTAINER_MODE, Exceptions, OP_RECORD, STAGING_NAME, TreeName};
use crate::{beneath, relocate};

/// A staged directory to move things into.
#[derive(Debug)]
pub(super) struct StagedDir {
    pub(super) fd: OwnedFd,
    pub(super) area: Arc<Area>,
    pub(super) tree: TreeName,
    /// Workspace-relative path of the directory that it stands for.
    pub(super) path: Arc<Path>,
    /// Its own path from the root of the backing.
    pub(super) place: Box<Path>,
    /// Owner of what is made in it.
    pub(super) owner: (u32, u32),
    /// Whether anything was put into it, and not only below it.
    used: AtomicBool,
}

impl StagedDir {
    /// Where `name` in it lies, from the root of the backing.
    pub(super) fn place_of(&self, name: &OsStr) -> trashfs_mount::Place {
        trashfs_mount::Place {
            path: self.place.join(name).into(),
        }
    }
}

/// Why a tree has no room for a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Something captured earlier is in the way: try the next slot.
    Taken,
    /// The system said no.
    Failed(Errno),
}

impl From<Errno> for Obstacle {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

#[derive(Clone, Debug)]
struct Key {
    entry: u64,
    /// An entry has a tree of the same name in each area. Areas stay where they are.
    area: usize,
    tree: TreeName,
    epoch: u64,
    path: Arc<Path>,
    path_hash: u64,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.entry == other.entry
            && self.area == other.area
            && self.tree == other.tree
            && self.epoch == other.epoch
            && (Arc::ptr_eq(&self.path, &other.path)
                || self.path.as_os_str() == other.path.as_os_str())
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.entry, self.path_hash, self.tree.slot).hash(state);
    }
}

/// The staged directories used lately, of all entries.
pub(super) struct Trees {
    open: Recent<Key, Arc<StagedDir>>,
    hasher: RandomState,
}

impl Trees {
    /// With at most `descriptors_max` directories open.
    pub(super) fn new(descriptors_max: usize) -> Self {
        Self {
            open: Recent::new(descriptors_max / 2),
            hasher: RandomState::new(),
        }
    }

    fn key(&self, entry: &OpenEntry, tree: TreeName, place: &Place, path: Arc<Path>) -> Key {
        Key {
            entry: entry.number,
            area: Arc::as_ptr(&place.area).addr(),
            tree,
            epoch: place.epoch,
            path_hash: self.hasher.hash_one(path.as_os_str().as_bytes()),
            path,
        }
    }

    /// The directory of `tree` that stands for `place`; says whether this is its first use since
    /// it was opened.
    pub(super) fn dir(
        &self,
        entry: &OpenEntry,
        tree: TreeName,
        place: &Place,
    ) -> Result<(Arc<StagedDir>, bool), Obstacle> {
        let key = self.key(entry, tree, place, place.path.clone());
        if let Some(dir) = self.open.get(&key) {
            let first = !dir.used.load(Ordering::Relaxed);
            if first {
                dir.used.store(true, Ordering::Relaxed);
            }
            return Ok((dir, first));
        }
        let mut missing = Vec::new();
        let mut found = None;
        for path in place.path.ancestors() {
            let key = self.key(entry, tree, place, path.into());
            found = self.open.get(&key);
            if found.is_some() {
                break;
            }
            missing.push(key);
        }
        let mut above = match (found, missing.pop()) {
            (Some(dir), last) => {
                missing.extend(last);
                dir
            }
            (None, None) => return Err(Errno::INVAL.into()),
            (None, Some(key)) => {
                let root = Arc::new(open_tree(entry, tree, place)?);
                self.open.insert(key, root.clone());
                root
            }
        };
        while let Some(key) = missing.pop() {
            let dir = Arc::new(container(entry, &above, key.path.clone())?);
            self.open.insert(key, dir.clone());
            above = dir;
        }
        above.used.store(true, Ordering::Relaxed);
        Ok((above, true))
    }

    /// The staged directory for `path`, which lies in `place`, is no container any more: nothing
    /// goes into it.
    pub(super) fn finished(&self, entry: &OpenEntry, tree: TreeName, place: &Place, path: &Path) {
        self.open.remove(&self.key(entry, tree, place, path.into()));
    }

    /// Lets go of an entry's directories.
    pub(super) fn close(&self, entry: &OpenEntry) {
        self.open.retain(|key, _| key.entry != entry.number);
    }
}

/// Opens the root of a tree, making it and the entry's directory if need be.
fn open_tree(entry: &OpenEntry, tree: TreeName, place: &Place) -> Result<StagedDir, Errno> {
    let area = &place.area;
    let below_ops = Path::new(entry.id().as_str()).join(tree.to_string());
    let open = || rustix::fs::openat(&area.ops, &below_ops, DIRECTORY, Mode::empty());
    let make = || match rustix::fs::mkdirat(&area.ops, &below_ops, Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    };
    let fd = match open() {
        Err(Errno::NOENT) => {
            match with_room(area, make) {
                Err(Errno::NOENT) => {
                    make_entry(entry, area)?;
                    with_room(area, make)?;
                }
                other => other?,
            }
            open()?
        }
        other => other?,
    };
    let attr = Attr::of(&fd)?;
    let staging = area.prefix.join(STAGING_NAME).join("ops");
    Ok(StagedDir {
        fd,
        area: area.clone(),
        tree,
        path: Path::new("").into(),
        place: staging.join(below_ops).into(),
        owner: (attr.uid, attr.gid),
        used: AtomicBool::new(false),
    })
}

const DIRECTORY: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Makes the entry's directory in `area`. It appears with the record in it: nothing can be moved
/// there before. A record that can't be written costs the attribution, not the capture.
fn make_entry(entry: &OpenEntry, area: &Arc<Area>) -> Result<(), Errno> {
    let id = entry.id().as_str();
    let _alone = entry.making.lock();
    if Attr::at(&area.ops, id).is_ok() {
        return Ok(());
    }
    let draft = Path::new("scratch").join(id);
    let make = || match rustix::fs::mkdirat(&area.staging, &draft, Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    };
    with_room(area, make)?;
    if let Err(error) = write_op(entry, area, &draft) {
        tracing::warn!(entry = id, %error, "who removed this could not be recorded");
    }
    with_room(area, || {
        relocate::move_new(&area.staging, &draft, &area.ops, id)
    })
}

fn write_op(entry: &OpenEntry, area: &Arc<Area>, draft: &Path) -> std::io::Result<()> {
    let text = serde_json::to_vec(&entry.record)?;
    let path = draft.join(OP_RECORD);
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = with_room(area, || {
        rustix::fs::openat(&area.staging, &path, flags, mode)
    })?;
    let mut rest = &text[..];
    while !rest.is_empty() {
        let written = with_room(area, || rustix::io::write(&file, rest))?;
        rest = &rest[written..];
    }
    // Begins writing to disk without waiting for it: the filesystem's journal then orders the
    // content, and not only the name, before what follows.
    Ok(rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Opens the container for `path` in the one above it, making it if need be.
fn container(
    entry: &OpenEntry,
    above: &Arc<StagedDir>,
    path: Arc<Path>,
) -> Result<StagedDir, Obstacle> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let fd = match beneath::open_dir_at(&above.fd, name) {
        Err(Errno::NOENT) => {
            make_container(above, name)?;
            beneath::open_dir_at(&above.fd, name)?
        }
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(Obstacle::Taken),
        other => {
            let fd = other?;
            if !is_container(entry, above, &path, &Attr::of(&fd)?) {
                return Err(Obstacle::Taken);
            }
            fd
        }
    };
    Ok(StagedDir {
        fd,
        area: above.area.clone(),
        tree: above.tree,
        place: above.place.join(name).into(),
        owner: above.owner,
        path,
        used: AtomicBool::new(false),
    })
}

/// Makes a directory that stands for one left in place.
pub(super) fn make_container(above: &StagedDir, name: &OsStr) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(CONTAINER_MODE);
    match with_room(&above.area, || rustix::fs::mkdirat(&above.fd, name, mode)) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(()),
        Err(error) => return Err(error),
    }
    // The umask may have taken bits away.
    if Attr::at(&above.fd, name)?.permissions() == CONTAINER_MODE {
        return Ok(());
    }
    rustix::fs::chmodat(&above.fd, name, mode, AtFlags::empty())
}

/// Whether the staged directory only stands for one that was left in place.
pub(super) fn is_container(entry: &OpenEntry, above: &StagedDir, path: &Path, attr: &Attr) -> bool {
    attr.is_dir() && attr.permissions() == CONTAINER_MODE && !entry.is_exception(above.tree, path)
}

/// Notes that the removed directory at `path` really has the mode of a container, or takes
/// that back.
pub(super) fn note_exception(
    entry: &OpenEntry,
    above: &StagedDir,
    path: &Path,
    retracted: bool,
) -> Result<(), Errno> {
    let line = Exceptions::line(above.tree, path, retracted);
    let file = Path::new(entry.id().as_str()).join(Exceptions::NAME);
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let area = &above.area;
    let fd = with_room(area, || {
        rustix::fs::openat(&area.ops, &file, flags, Mode::RUSR | Mode::WUSR)
    })?;
    let written = with_room(area, || rustix::io::write(&fd, line.as_bytes()))?;
    if written != line.len() {
        return Err(Errno::NOSPC);
    }
    let key = (above.tree, PathBuf::from(path));
    let mut known = entry.exceptions.lock();
    if retracted {
        known.remove(&key);
    } else {
        known.insert(key);
    }
    Ok(())
}
