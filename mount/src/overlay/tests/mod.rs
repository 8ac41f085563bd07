//! The overlay over a temporary directory, unmounted.

mod capture;
mod names;
mod tree;

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::numbers::ROOT;
use crate::{
    Attr, Caller, Change, Found, HandleId, Interceptor, Interests, NodeId, Overlay, OverlayOptions,
    Place, Ticket, Verdict,
};

const ROOT_USER: Caller = Caller {
    uid: 0,
    gid: 0,
    tid: 0,
};
/// Name that [`Recorder`] hides in the root, and where it moves what it captures.
const STAGING: &str = ".staging";

/// What [`Recorder`] says to everything but plain renames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Answer {
    #[default]
    Proceed,
    Move,
    Prepare,
    Refuse,
}

/// Writes down what it is asked and told.
struct Recorder {
    root: OwnedFd,
    answer: Mutex<Answer>,
    log: Mutex<Vec<String>>,
}

impl Recorder {
    fn answer(&self, answer: Answer) {
        *self.answer.lock() = answer;
    }

    fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock())
    }

    /// Moves the victim to `.staging/NAME`.
    #[expect(clippy::disallowed_methods, reason = "stands for the keeper")]
    fn capture(&self, victim: &crate::Victim<'_>) -> Verdict {
        let place = Path::new(STAGING).join(victim.name);
        match rustix::fs::renameat(victim.dir.fd, victim.name, &self.root, &place) {
            Ok(()) => Verdict::Moved(Place { path: place.into() }),
            Err(errno) => Verdict::Refuse(errno),
        }
    }
}

impl Interceptor for Recorder {
    fn interests(&self) -> Interests {
        [
            Interests::UNLINK,
            Interests::RMDIR,
            Interests::REPLACE,
            Interests::TRUNCATE,
            Interests::RENAME,
        ]
        .into_iter()
        .fold(Interests::NONE, Interests::union)
    }

    fn before(&self, _: Caller, change: &Change<'_>) -> Verdict {
        let (entry, victim) = match change {
            Change::Unlink(v) => (format!("unlink {}", shown(v)), v),
            Change::Rmdir(v) => (format!("rmdir {}", shown(v)), v),
            Change::Replace { source, target } => (
                format!("replace {} {}", shown(source), shown(target)),
                target,
            ),
            Change::Truncate {
                file,
                new_size_bytes,
            } => (format!("truncate {} {new_size_bytes}", shown(file)), file),
            Change::Rename { .. } => {
                self.log.lock().push("rename".to_owned());
                return Verdict::Proceed;
            }
        };
        self.log.lock().push(entry);
        match *self.answer.lock() {
            Answer::Proceed => Verdict::Proceed,
            Answer::Move => self.capture(victim),
            Answer::Prepare => Verdict::Prepared {
                ticket: Ticket(7),
                place: None,
            },
            Answer::Refuse => Verdict::Refuse(Errno::NOSPC),
        }
    }

    fn settled(&self, ticket: Ticket, outcome: Result<(), Errno>) {
        self.log
            .lock()
            .push(format!("settled {} {outcome:?}", ticket.0));
    }

    fn created(&self, _: Caller, _: &Attr) {}

    fn writers_gone(&self, _: NodeId) {
        self.log.lock().push("writers gone".to_owned());
    }

    fn hides(&self, dir: &Attr, name: &OsStr) -> bool {
        name == STAGING && Attr::of(&self.root).is_ok_and(|root| root.same_file(dir))
    }

    fn hidden_links(&self, attr: &Attr) -> u32 {
        u32::from(!attr.is_dir())
    }

    fn open_place(&self, place: &Place) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.root, &*place.path, flags, Mode::empty())
    }
}

fn shown(victim: &crate::Victim<'_>) -> String {
    let dir = victim.dir.path.path().unwrap();
    format!(
        "{} writers={}",
        dir.join(victim.name).display(),
        victim.writers
    )
}

/// An overlay over a directory of its own.
struct Fixture {
    dir: tempfile::TempDir,
    overlay: Overlay<Recorder>,
}

impl Fixture {
    fn new() -> Self {
        Self::with_dirs(64)
    }

    fn with_dirs(max_directory_fds: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(STAGING)).unwrap();
        let open = || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(dir.path(), flags, Mode::empty()).unwrap()
        };
        let recorder = Arc::new(Recorder {
            root: open(),
            answer: Mutex::default(),
            log: Mutex::default(),
        });
        let options = OverlayOptions {
            max_directory_fds: Some(max_directory_fds),
        };
        let overlay = Overlay::new(open(), recorder, options).unwrap();
        Self { dir, overlay }
    }

    fn recorder(&self) -> &Recorder {
        self.overlay.interceptor()
    }

    /// A file of the backing, made past the overlay.
    fn write(&self, name: impl AsRef<Path>, content: &str) {
        std::fs::write(self.dir.path().join(name), content).unwrap();
    }

    fn content(&self, name: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    fn exists(&self, name: impl AsRef<Path>) -> bool {
        self.dir.path().join(name).symlink_metadata().is_ok()
    }

    fn lookup(&self, name: &str) -> Result<Found, Errno> {
        self.overlay.lookup(ROOT, OsStr::new(name))
    }

    fn node(&self, name: &str) -> NodeId {
        self.lookup(name).unwrap().node
    }

    fn mkdir(&self, parent: NodeId, name: &str) -> NodeId {
        let made = self
            .overlay
            .mkdir(ROOT_USER, parent, OsStr::new(name), (0o755, 0o022));
        made.unwrap().node
    }

    fn create(&self, parent: NodeId, name: &str) -> (Found, HandleId) {
        let flags = libc::O_RDWR | libc::O_CREAT;
        self.overlay
            .create(ROOT_USER, parent, OsStr::new(name), (0o644, 0o022), flags)
            .unwrap()
    }

    fn unlink(&self, name: &str) -> Result<(), Errno> {
        self.overlay.unlink(ROOT_USER, ROOT, OsStr::new(name))
    }

    fn rename(&self, from: &str, to: &str, flags: u32) -> Result<(), Errno> {
        let (from, to) = (OsStr::new(from), OsStr::new(to));
        self.overlay
            .rename(ROOT_USER, (ROOT, from), (ROOT, to), flags)
    }

    fn listing(&self, node: NodeId) -> Vec<OsString> {
        let handle = self.overlay.opendir(node).unwrap();
        let mut names = Vec::new();
        self.overlay
            .readdir(handle, 0, |entry| {
                names.push(entry.name.to_owned());
                false
            })
            .unwrap();
        self.overlay.releasedir(handle);
        names.retain(|name| name != "." && name != "..");
        names.sort();
        names
    }
}
