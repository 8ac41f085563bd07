//! With an interceptor: what the kernel does in one call reaches it all the same.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::io::Errno;
use trashfs_mount::{Attr, Caller, Change, Interests, NodeId, Place, Ticket, Verdict};

use super::*;

/// Refuses everything, and remembers what it was.
#[derive(Default)]
struct Refuser {
    asked: Mutex<Vec<&'static str>>,
}

impl Refuser {
    fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Interceptor for Refuser {
    fn interests(&self) -> Interests {
        Interests::UNLINK
            .union(Interests::RMDIR)
            .union(Interests::REPLACE)
            .union(Interests::TRUNCATE)
    }
    fn before(&self, caller: Caller, change: &Change<'_>) -> Verdict {
        assert_ne!(caller.tid, 0);
        self.asked.lock().unwrap().push(match change {
            Change::Unlink(_) => "unlink",
            Change::Rmdir(_) => "rmdir",
            Change::Replace { .. } => "replace",
            Change::Truncate { .. } => "truncate",
            _ => "other",
        });
        Verdict::Refuse(Errno::NOSPC)
    }
    fn settled(&self, _: Ticket, _: Result<(), Errno>) {}
    fn created(&self, _: Caller, _: &Attr) {}
    fn writers_gone(&self, _: NodeId) {}
    fn hides(&self, _: &Attr, name: &OsStr) -> bool {
        name == ".hidden"
    }
    fn hidden_links(&self, _: &Attr) -> u32 {
        0
    }
    fn open_place(&self, _: &Place) -> Result<OwnedFd, Errno> {
        Err(Errno::STALE)
    }
}

#[test]
fn nothing_that_is_refused_is_lost() {
    let refuser = Arc::new(Refuser::default());
    let m = Mounted::with(Arc::clone(&refuser), true);
    m.shell("mkdir d; echo precious > f; echo other > g");
    let refused = [
        ("rm f", "unlink"),
        ("rmdir d", "rmdir"),
        ("mv -f g f", "replace"),
        ("true > f", "truncate"),
        ("truncate -s 2 f", "truncate"),
        ("cp /dev/null f", "truncate"),
    ];
    for (script, asked) in refused {
        m.shell(&format!("not '{script}'"));
        assert_eq!(refuser.asked().first(), Some(&asked), "{script}");
    }
    assert_eq!(fs::read(m.path("f")).unwrap(), b"precious\n");
    assert_eq!(fs::read(m.path("g")).unwrap(), b"other\n");
    assert!(m.path("d").is_dir());
}

#[test]
fn creating_over_what_came_back_unseen_is_a_truncation() {
    let refuser = Arc::new(Refuser::default());
    let m = Mounted::with(Arc::clone(&refuser), true);
    assert!(!m.path("f").exists());
    fs::write(m.below("f"), "restored").unwrap();
    // The kernel still believes that there is no such file.
    let created = fs::File::create(m.path("f"));
    assert_eq!(created.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(refuser.asked(), ["truncate"]);
    assert_eq!(fs::read(m.path("f")).unwrap(), b"restored");
}

#[test]
fn hidden_names_do_not_exist() {
    let m = Mounted::with(Arc::new(Refuser::default()), true);
    fs::write(m.below(".hidden"), "x").unwrap();
    m.shell(
        "test ! -e .hidden; test -z \"$(ls -A)\"; not 'mkdir .hidden'
         not 'echo x > .hidden'; echo > f; not 'mv f .hidden'",
    );
    assert_eq!(fs::read(m.below(".hidden")).unwrap(), b"x");
}
