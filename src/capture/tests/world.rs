//! A workspace, and hands that do to it what the mount does.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use rustix::fs::Mode;
use rustix::io::Errno;
use trashfs_mount::{Attr, Caller, Change, Dir, Interceptor, PathSource, Ticket, Verdict, Victim};

use crate::capture::{Capture, CaptureEvent};
use crate::ids::WorkspaceId;
use crate::policy::PolicyHandle;
use crate::relocate;
use crate::staging::{Area, Staging};
use crate::{beneath, discard};

pub(in crate::capture) struct World {
    pub(in crate::capture) dir: tempfile::TempDir,
    pub(in crate::capture) capture: Arc<Capture>,
    pub(in crate::capture) staging: Arc<Staging>,
    pub(in crate::capture) events: parking_lot::Mutex<Receiver<CaptureEvent>>,
    pub(in crate::capture) caller: Caller,
}

struct Known(PathBuf);

impl PathSource for Known {
    fn path(&self) -> Result<PathBuf, Errno> {
        Ok(self.0.clone())
    }
}

/// A name opened for a victim.
struct Held {
    dir: OwnedFd,
    path: Known,
    name: OsString,
    attr: Attr,
    dir_attr: Attr,
}

impl World {
    pub(in crate::capture) fn new() -> Self {
        Self::with_policy("")
    }

    pub(in crate::capture) fn with_policy(rules: &str) -> Self {
        Self::over(tempfile::tempdir().unwrap(), rules)
    }

    pub(in crate::capture) fn over(dir: tempfile::TempDir, rules: &str) -> Self {
        if !rules.is_empty() {
            std::fs::write(dir.path().join(".trashfs.toml"), rules).unwrap();
        }
        let root = || OwnedFd::from(std::fs::File::open(dir.path()).unwrap());
        let workspace = WorkspaceId::random();
        let area = Area::open(root(), PathBuf::new(), Some(&workspace)).unwrap();
        let workspace = area.workspace.clone();
        let staging = Arc::new(Staging::new(area));
        let policy = PolicyHandle::load(Default::default(), root()).unwrap();
        let (sender, events) = channel();
        let capture = Capture::new(staging.clone(), workspace, Arc::new(policy), sender).unwrap();
        let tid = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs();
        Self {
            dir,
            capture,
            staging,
            events: events.into(),
            caller: Caller {
                uid: 0,
                gid: 0,
                tid,
            },
        }
    }

    pub(in crate::capture) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(in crate::capture) fn write(&self, path: &str, content: &str) -> Attr {
        let full = self.path(path);
        std::fs::create_dir_all(full.parent().unwrap()).unwrap();
        std::fs::write(&full, content).unwrap();
        self.attr(path)
    }

    pub(in crate::capture) fn attr(&self, path: &str) -> Attr {
        let root = std::fs::File::open(self.dir.path()).unwrap();
        Attr::at(&root, path).unwrap()
    }

    pub(in crate::capture) fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    fn hold(&self, path: impl AsRef<Path>) -> Held {
        let path = path.as_ref();
        let root = std::fs::File::open(self.dir.path()).unwrap();
        let (dir, name) = beneath::open_parent(root.as_fd(), path).unwrap();
        Held {
            attr: Attr::at(&dir, name).unwrap_or_else(|_| Attr::of(&dir).unwrap()),
            dir_attr: Attr::of(&dir).unwrap(),
            path: Known(path.parent().unwrap().to_owned()),
            name: name.to_owned(),
            dir,
        }
    }

    /// Asks about a change and does what the mount does with the verdict.
    fn put(
        &self,
        change: &Change<'_>,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        match self.capture.before(self.caller, change) {
            Verdict::Proceed => act(),
            Verdict::Moved(place) => {
                self.capture.open_place(&place).unwrap();
                Ok(())
            }
            Verdict::Prepared { ticket, place } => {
                let outcome = act();
                self.capture.settled(ticket, outcome);
                if let (Some(place), Ok(())) = (place, outcome) {
                    self.capture.open_place(&place).unwrap();
                }
                outcome
            }
            Verdict::Refuse(errno) => Err(errno),
        }
    }

    pub(in crate::capture) fn unlink(&self, path: &str) -> Result<(), Errno> {
        self.unlink_open(path, 0)
    }

    pub(in crate::capture) fn unlink_open(&self, path: &str, writers: u32) -> Result<(), Errno> {
        let held = self.hold(path);
        let dir = held.dir();
        let change = Change::Unlink(held.victim(&dir, writers));
        self.put(&change, || discard::file(&held.dir, &*held.name))
    }

    pub(in crate::capture) fn rmdir(&self, path: &str) -> Result<(), Errno> {
        self.rmdir_at(Path::new(path))
    }

    pub(in crate::capture) fn rmdir_at(&self, path: &Path) -> Result<(), Errno> {
        let held = self.hold(path);
        let dir = held.dir();
        let change = Change::Rmdir(held.victim(&dir, 0));
        self.put(&change, || discard::empty_dir(&held.dir, &*held.name))
    }

    /// As `rm -r`.
    pub(in crate::capture) fn remove_all(&self, path: &str) -> Result<(), Errno> {
        let full = self.path(path);
        if !full.symlink_metadata().unwrap().is_dir() {
            return self.unlink(path);
        }
        for item in std::fs::read_dir(full).unwrap() {
            let below = Path::new(path).join(item.unwrap().file_name());
            self.remove_all(below.to_str().unwrap())?;
        }
        self.rmdir(path)
    }

    pub(in crate::capture) fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        let (source, target) = (self.hold(from), self.hold(to));
        let (from_dir, to_dir) = (source.dir(), target.dir());
        let act = || {
            #[expect(clippy::disallowed_methods, reason = "a test does what the mount does")]
            rustix::fs::renameat(&source.dir, &*source.name, &target.dir, &*target.name)
        };
        let change = if self.exists(to) {
            Change::Replace {
                source: source.victim(&from_dir, 0),
                target: target.victim(&to_dir, 0),
            }
        } else {
            Change::Rename {
                source: source.victim(&from_dir, 0),
                to_dir: &to_dir,
                to_name: &target.name,
            }
        };
        self.put(&change, act)
    }

    pub(in crate::capture) fn truncate(&self, path: &str, size: u64) -> Result<(), Errno> {
        let held = self.hold(path);
        let dir = held.dir();
        let change = Change::Truncate {
            file: held.victim(&dir, 0),
            new_size_bytes: size,
        };
        self.put(&change, || {
            let flags = rustix::fs::OFlags::WRONLY;
            let file = rustix::fs::openat(&held.dir, &*held.name, flags, Mode::empty())?;
            rustix::fs::ftruncate(file, size)
        })
    }

    /// As the mount does when the system call itself fails.
    pub(in crate::capture) fn fail_after_preparing(&self, path: &str, rmdir: bool) {
        let held = self.hold(path);
        let dir = held.dir();
        let victim = held.victim(&dir, 0);
        let verdict = if rmdir {
            self.capture.before(self.caller, &Change::Rmdir(victim))
        } else {
            let change = Change::Replace {
                source: held.victim(&dir, 0),
                target: victim,
            };
            self.capture.before(self.caller, &change)
        };
        let Verdict::Prepared { ticket, .. } = verdict else {
            panic!("{verdict:?}");
        };
        self.capture.settled(ticket, Err(Errno::IO));
    }

    pub(in crate::capture) fn prepare_rmdir(&self, path: &str) -> Ticket {
        let held = self.hold(path);
        let dir = held.dir();
        let change = Change::Rmdir(held.victim(&dir, 0));
        match self.capture.before(self.caller, &change) {
            Verdict::Prepared { ticket, .. } => ticket,
            other => panic!("{other:?}"),
        }
    }

    pub(in crate::capture) fn prepare_replace(&self, path: &str, writers: u32) -> Ticket {
        let held = self.hold(path);
        let dir = held.dir();
        let change = Change::Replace {
            source: held.victim(&dir, 0),
            target: held.victim(&dir, writers),
        };
        match self.capture.before(self.caller, &change) {
            Verdict::Prepared { ticket, .. } => ticket,
            other => panic!("{other:?}"),
        }
    }

    /// Everything staged: `tree/path`, with `/` after a directory and `=content` after a file;
    /// containers are in parentheses.
    pub(in crate::capture) fn staged(&self) -> Vec<String> {
        let mut all = Vec::new();
        for area in self.staging.areas() {
            for (id, _) in crate::walk::names_in(area.ops.as_fd()).unwrap() {
                let entry = beneath::open_dir_at(&area.ops, &id).unwrap();
                crate::walk::walk(entry.as_fd(), &mut |step| {
                    let path = step.path.to_str().unwrap();
                    let container = step.attr.permissions() == crate::staging::CONTAINER_MODE;
                    match step.when {
                        crate::walk::When::Enter if container => all.push(format!("({path})")),
                        crate::walk::When::Enter if path.contains('/') => {
                            all.push(format!("{path}/"));
                        }
                        crate::walk::When::Leaf if path.contains('/') => {
                            let target = rustix::fs::readlinkat(step.dir, step.name, Vec::new());
                            let text = match target {
                                Ok(target) => format!("->{}", target.to_str().unwrap()),
                                Err(_) => read(step.dir, step.name),
                            };
                            all.push(format!("{path}={text}"));
                        }
                        _ => {}
                    }
                    Ok(crate::walk::Flow::Continue)
                })
                .unwrap();
            }
        }
        all.sort();
        all
    }

    /// Where the only entry's tree lies.
    pub(in crate::capture) fn tree(&self, tree: &str) -> PathBuf {
        let ops = self.path(".trashfs/ops");
        let entries: Vec<_> = std::fs::read_dir(ops)
            .unwrap()
            .map(|e| e.unwrap().path().join(tree))
            .filter(|p| p.exists())
            .collect();
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries[0].clone()
    }

    /// Opened entries, and closed ones with their counts.
    pub(in crate::capture) fn told(&self) -> Vec<String> {
        self.events
            .lock()
            .try_iter()
            .map(|event| match event {
                CaptureEvent::Opened(record) => format!("opened {}", record.keep.as_str()),
                CaptureEvent::Closed { members, bytes, .. } => format!("closed {members} {bytes}"),
                CaptureEvent::Waiting { members, bytes, .. } => {
                    format!("waiting {members} {bytes}")
                }
                CaptureEvent::DeletedOutright { path, .. } => format!("gone {}", path.display()),
                other => format!("{other:?}"),
            })
            .collect()
    }

    pub(in crate::capture) fn scratch_is_empty(&self) -> bool {
        std::fs::read_dir(self.path(".trashfs/scratch"))
            .unwrap()
            .next()
            .is_none()
    }
}

fn read(dir: std::os::fd::BorrowedFd<'_>, name: &OsStr) -> String {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    rustix::fs::openat(dir, name, flags, Mode::empty())
        .map(|fd| std::io::read_to_string(std::fs::File::from(fd)).unwrap_or_default())
        .unwrap_or_default()
}

impl Held {
    fn dir(&self) -> Dir<'_> {
        Dir {
            id: node(&self.dir_attr),
            epoch: 1,
            fd: self.dir.as_fd(),
            path: &self.path,
        }
    }

    fn victim<'a>(&'a self, dir: &'a Dir<'a>, writers: u32) -> Victim<'a> {
        Victim {
            dir,
            name: &self.name,
            attr: &self.attr,
            node: node(&self.attr),
            writers,
        }
    }
}

/// As the mount numbers files of several filesystems.
pub(in crate::capture) fn node(attr: &Attr) -> trashfs_mount::NodeId {
    attr.dev << 40 ^ attr.ino
}

/// Moves without asking anybody.
pub(in crate::capture) fn move_aside(world: &World, from: &str, to: &str) {
    let root = std::fs::File::open(world.dir.path()).unwrap();
    relocate::move_new(&root, from, &root, to).unwrap();
}
