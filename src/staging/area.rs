//! Making, opening and locking staging areas.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use trashfs_mount::Attr;

use crate::beneath;
use crate::ids::{EntryId, WorkspaceId};
use crate::staging::EntryDir;
use crate::walk::names_in;

/// The name of a staging area, hidden by the mount.
pub const STAGING_NAME: &str = ".trashfs";

/// Version of the layout.
const AREA_FORMAT: u32 = 1;
const AREA_RECORD: &str = "area.json";

/// See <https://bford.info/cachedir/>: backup programs leave the area out.
const CACHEDIR_TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# Kept by trashfs: what was removed from this workspace.\n";

#[derive(Serialize, Deserialize)]
struct AreaRecord {
    format: u32,
    workspace: WorkspaceId,
}

/// Why an area can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AreaError {
    /// `.trashfs` exists and is not a staging area of ours.
    #[error("{STAGING_NAME} exists there and is not a staging area of trashfs")]
    Foreign,
    /// Written by a newer version.
    #[error("the staging area has format {0}; this version knows formats up to {AREA_FORMAT}")]
    Newer(u32),
    /// There is none and none should be made.
    #[error("there is no staging area")]
    Missing,
    /// Another process has it locked.
    #[error("another process is working in this staging area")]
    Locked,
    /// It belongs to another workspace.
    #[error("the staging area belongs to workspace {0}")]
    OtherWorkspace(WorkspaceId),
    /// The system said no.
    #[error("{what}: {error}")]
    Io {
        /// While doing what.
        what: &'static str,
        /// The system's answer.
        error: io::Error,
    },
}

fn while_doing<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> AreaError {
    move |error| AreaError::Io {
        what,
        error: error.into(),
    }
}

/// One staging area: the workspace's own, or that of another filesystem mounted inside it.
#[derive(Debug)]
pub struct Area {
    /// Workspace-relative path of `root`; empty for the main area.
    pub prefix: PathBuf,
    /// The directory that holds `.trashfs`, `O_PATH`.
    pub root: OwnedFd,
    /// Attributes of `root` when it was opened.
    pub root_attr: Attr,
    /// `.trashfs`, `O_PATH`.
    pub staging: OwnedFd,
    /// `.trashfs/ops`, `O_PATH`.
    pub ops: OwnedFd,
    /// Whose it is.
    pub workspace: WorkspaceId,
    lock: OwnedFd,
}

impl Area {
    /// Opens the area below `root`, making it first if `create` gives a workspace for it, and
    /// locks it for writing until it is dropped.
    ///
    /// # Errors
    /// See [`AreaError`].
    pub fn open(
        root: OwnedFd,
        prefix: PathBuf,
        create: Option<&WorkspaceId>,
    ) -> Result<Self, AreaError> {
        let staging = match beneath::open_dir_at(&root, OsStr::new(STAGING_NAME)) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => make(root.as_fd(), create.ok_or(AreaError::Missing)?)?,
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(AreaError::Foreign),
            Err(e) => return Err(while_doing("opening the staging area")(e)),
        };
        let workspace = read_record(staging.as_fd(), create)?;
        if let Some(wanted) = create
            && *wanted != workspace
            && !prefix.as_os_str().is_empty()
        {
            return Err(AreaError::OtherWorkspace(workspace));
        }
        let lock = lock(staging.as_fd())?;
        for name in ["ops", "purge", "scratch"] {
            make_dir(staging.as_fd(), name)?;
        }
        let ops = beneath::open_dir_at(&staging, OsStr::new("ops"))
            .map_err(while_doing("opening ops"))?;
        let root_attr = Attr::of(&root).map_err(while_doing("reading the root's attributes"))?;
        Ok(Self {
            prefix,
            root,
            root_attr,
            staging,
            ops,
            workspace,
            lock,
        })
    }

    /// Whether the lock is still held by this process (it is, until drop).
    pub fn lock_fd(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }
}

/// Whose area lies below `root`, without locking or changing anything.
///
/// # Errors
/// See [`AreaError`]; `Missing` when there is none.
pub fn whose(root: BorrowedFd<'_>) -> Result<WorkspaceId, AreaError> {
    match beneath::open_dir_at(root, OsStr::new(STAGING_NAME)) {
        Ok(fd) => read_record(fd.as_fd(), None),
        Err(Errno::NOENT) => Err(AreaError::Missing),
        Err(Errno::NOTDIR | Errno::LOOP) => Err(AreaError::Foreign),
        Err(e) => Err(while_doing("opening the staging area")(e)),
    }
}

fn make_dir(dir: BorrowedFd<'_>, name: &str) -> Result<(), AreaError> {
    match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(while_doing("making the staging area")(e)),
    }
}

fn make(root: BorrowedFd<'_>, workspace: &WorkspaceId) -> Result<OwnedFd, AreaError> {
    make_dir(root, STAGING_NAME)?;
    let staging = beneath::open_dir_readable(root, STAGING_NAME)
        .map_err(while_doing("opening the staging area"))?;
    // A default ACL or a set-group-id bit of the workspace must not open or mark what is staged.
    match rustix::fs::fremovexattr(&staging, "system.posix_acl_default") {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
        Err(e) => return Err(while_doing("clearing the staging area's default ACL")(e)),
    }
    rustix::fs::fchmod(&staging, Mode::RWXU)
        .map_err(while_doing("setting the staging area's mode"))?;
    write_new(staging.as_fd(), ".gitignore", b"*\n")?;
    write_new(staging.as_fd(), "CACHEDIR.TAG", CACHEDIR_TAG.as_bytes())?;
    let record = AreaRecord {
        format: AREA_FORMAT,
        workspace: workspace.clone(),
    };
    let text = serde_json::to_vec(&record).map_err(while_doing("writing the area's record"))?;
    // Last: an area without it is half-made and is taken up again.
    write_new(staging.as_fd(), AREA_RECORD, &text)?;
    beneath::open_dir_at(root, OsStr::new(STAGING_NAME))
        .map_err(while_doing("opening the staging area"))
}

fn write_new(dir: BorrowedFd<'_>, name: &str, content: &[u8]) -> Result<(), AreaError> {
    let what = "writing the staging area's own files";
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd =
        rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR).map_err(while_doing(what))?;
    let mut file = std::fs::File::from(fd);
    file.write_all(content)
        .and_then(|()| file.sync_all())
        .map_err(while_doing(what))
}

/// Reads whose area this is; finishes one that was left half-made by an interruption (only our
/// own file names in it) when `create` says for whom.
fn read_record(
    staging: BorrowedFd<'_>,
    create: Option<&WorkspaceId>,
) -> Result<WorkspaceId, AreaError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let text = match rustix::fs::openat(staging, AREA_RECORD, flags, Mode::empty()) {
        Ok(fd) => io::read_to_string(std::fs::File::from(fd))
            .map_err(while_doing("reading the area's record"))?,
        Err(Errno::NOENT) => String::new(),
        Err(e) => return Err(while_doing("reading the area's record")(e)),
    };
    match serde_json::from_str::<AreaRecord>(&text) {
        Ok(record) if record.format > AREA_FORMAT => Err(AreaError::Newer(record.format)),
        Ok(record) => Ok(record.workspace),
        Err(_) => finish_half_made(staging, create),
    }
}

fn finish_half_made(
    staging: BorrowedFd<'_>,
    create: Option<&WorkspaceId>,
) -> Result<WorkspaceId, AreaError> {
    let names = names_in(staging).map_err(while_doing("listing the staging area"))?;
    let ours = |name: &OsStr| {
        [
            ".gitignore",
            "CACHEDIR.TAG",
            AREA_RECORD,
            "ops",
            "purge",
            "scratch",
            "lock",
        ]
        .iter()
        .any(|o| name == *o)
    };
    let Some(workspace) = create.filter(|_| names.iter().all(|(name, _)| ours(name))) else {
        return Err(AreaError::Foreign);
    };
    let record = AreaRecord {
        format: AREA_FORMAT,
        workspace: workspace.clone(),
    };
    let text = serde_json::to_vec(&record).map_err(while_doing("writing the area's record"))?;
    write_new(staging, ".gitignore", b"*\n")?;
    write_new(staging, "CACHEDIR.TAG", CACHEDIR_TAG.as_bytes())?;
    write_new(staging, AREA_RECORD, &text)?;
    Ok(workspace.clone())
}

fn lock(staging: BorrowedFd<'_>) -> Result<OwnedFd, AreaError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(staging, "lock", flags, Mode::RUSR | Mode::WUSR)
        .map_err(while_doing("opening the lock"))?;
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(fd),
        Err(Errno::WOULDBLOCK) => Err(AreaError::Locked),
        Err(e) => Err(while_doing("locking the staging area")(e)),
    }
}

/// All staging areas of one workspace.
#[derive(Debug)]
pub struct Staging {
    areas: RwLock<Vec<Arc<Area>>>,
    pub(super) pins: super::pins::Pins,
    base: Option<OwnedFd>,
}

impl Staging {
    /// With the workspace's own area.
    pub fn new(main: Area) -> Self {
        Self {
            areas: RwLock::new(vec![Arc::new(main)]),
            pins: super::pins::Pins::default(),
            base: None,
        }
    }

    /// With an area that does not lie in the directory that paths are relative to: that is
    /// `base`.
    #[must_use]
    pub fn based_at(mut self, base: OwnedFd) -> Self {
        self.base = Some(base);
        self
    }

    /// Does `work` with the directory that workspace-relative paths start from.
    pub fn with_base<T>(&self, work: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        match &self.base {
            Some(base) => work(base.as_fd()),
            None => work(self.main().root.as_fd()),
        }
    }

    /// The workspace's own area.
    pub fn main(&self) -> Arc<Area> {
        self.areas.read()[0].clone()
    }

    /// Every area, the main one first.
    pub fn areas(&self) -> Vec<Arc<Area>> {
        self.areas.read().clone()
    }

    /// Whether `dir` holds one of the areas.
    pub fn is_root(&self, dir: &Attr) -> bool {
        self.areas
            .read()
            .iter()
            .any(|a| a.root_attr.ino == dir.ino && a.root_attr.dev == dir.dev)
    }

    /// Adds the area of another filesystem inside the workspace, unless it is there already.
    pub fn add(&self, area: Area) -> Arc<Area> {
        let mut areas = self.areas.write();
        if let Some(known) = areas.iter().find(|a| a.prefix == area.prefix) {
            return known.clone();
        }
        let area = Arc::new(area);
        areas.push(area.clone());
        area
    }

    /// Ids of all entries that have a directory in any area. What is no entry's is left out
    /// here; reconciliation reports it.
    ///
    /// # Errors
    /// Those of reading a directory.
    pub fn entries(&self) -> io::Result<Vec<EntryId>> {
        let mut ids = std::collections::BTreeSet::new();
        for area in self.areas() {
            for (name, _) in names_in(area.ops.as_fd())? {
                if let Some(id) = name.to_str().and_then(|text| text.parse::<EntryId>().ok()) {
                    ids.insert(id);
                }
            }
        }
        Ok(ids.into_iter().collect())
    }

    /// The directories of one entry in all areas; `None` when there is none.
    ///
    /// # Errors
    /// Those of opening a directory.
    pub fn entry(&self, id: &EntryId) -> io::Result<Option<EntryDir>> {
        let mut parts = Vec::new();
        for area in self.areas() {
            match beneath::open_dir_at(&area.ops, OsStr::new(id.as_str())) {
                Ok(fd) => parts.push((area, fd)),
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok((!parts.is_empty()).then(|| EntryDir::new(id.clone(), parts)))
    }

    /// The area whose root holds the workspace-relative `path`, by the longest prefix.
    pub fn area_of(&self, path: &Path) -> Arc<Area> {
        let areas = self.areas.read();
        areas
            .iter()
            .filter(|a| path.starts_with(&a.prefix))
            .max_by_key(|a| a.prefix.as_os_str().len())
            .unwrap_or(&areas[0])
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, impl Fn() -> OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        (dir, move || {
            OwnedFd::from(std::fs::File::open(&path).unwrap())
        })
    }

    #[test]
    fn an_area_is_made_once_and_locked() {
        let (_dir, open) = root();
        let id = WorkspaceId::random();
        let area = Area::open(open(), PathBuf::new(), Some(&id)).unwrap();
        assert_eq!(area.workspace, id);
        assert!(matches!(
            Area::open(open(), PathBuf::new(), None),
            Err(AreaError::Locked)
        ));
        drop(area);
        let again = Area::open(open(), PathBuf::new(), Some(&WorkspaceId::random())).unwrap();
        assert_eq!(again.workspace, id);
    }

    #[test]
    fn a_foreign_directory_is_refused_and_a_half_made_one_finished() {
        let (dir, open) = root();
        std::fs::create_dir(dir.path().join(".trashfs")).unwrap();
        std::fs::write(dir.path().join(".trashfs/precious"), "x").unwrap();
        let id = WorkspaceId::random();
        assert!(matches!(
            Area::open(open(), PathBuf::new(), Some(&id)),
            Err(AreaError::Foreign)
        ));
        #[expect(clippy::disallowed_methods, reason = "a test clears its scratch")]
        std::fs::remove_file(dir.path().join(".trashfs/precious")).unwrap();
        std::fs::write(dir.path().join(".trashfs/area.json"), "").unwrap();
        assert!(Area::open(open(), PathBuf::new(), Some(&id)).is_ok());
    }
}
