//! Names, numbers and links.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::{AttrChanges, NewTime, Timestamp};

#[test]
fn hard_links_share_their_node_and_outlive_one_another() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    let a = fixture.node("a");
    let linked = fixture
        .overlay
        .link(ROOT_USER, a, ROOT, OsStr::new("b"))
        .unwrap();
    assert_eq!(linked.node, a);
    fixture.unlink("a").unwrap();
    let opened = fixture.overlay.open(ROOT_USER, a, libc::O_RDONLY).unwrap();
    let mut content = [0; 8];
    assert_eq!(fixture.overlay.read(opened.handle, 0, &mut content), Ok(3));
}

#[test]
fn links_of_the_interceptor_are_not_counted() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    let staged = fixture.dir.path().join(STAGING).join("a");
    std::fs::hard_link(fixture.dir.path().join("a"), staged).unwrap();
    assert_eq!(fixture.lookup("a").unwrap().attr.nlink, 1);
}

#[test]
fn hidden_names_cannot_be_seen_reached_or_made() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    let a = fixture.node("a");
    let hidden = OsStr::new(STAGING);
    let overlay = &fixture.overlay;
    assert_eq!(fixture.lookup(STAGING).unwrap_err(), Errno::NOENT);
    assert_eq!(fixture.listing(ROOT), ["a"]);
    assert_eq!(
        overlay
            .mkdir(ROOT_USER, ROOT, hidden, (0o755, 0))
            .unwrap_err(),
        Errno::PERM
    );
    assert_eq!(
        overlay.link(ROOT_USER, a, ROOT, hidden).unwrap_err(),
        Errno::PERM
    );
    assert_eq!(fixture.rename("a", STAGING, 0), Err(Errno::PERM));
    assert_eq!(fixture.rename(STAGING, "b", 0), Err(Errno::NOENT));
    assert_eq!(overlay.rmdir(ROOT_USER, ROOT, hidden), Err(Errno::NOENT));
    let flags = libc::O_WRONLY | libc::O_CREAT;
    let created = overlay.create(ROOT_USER, ROOT, hidden, (0o644, 0), flags);
    assert_eq!(created.unwrap_err(), Errno::PERM);
}

#[test]
fn a_hidden_name_means_nothing_in_other_directories() {
    let fixture = Fixture::new();
    let dir = fixture.mkdir(ROOT, "d");
    fixture.mkdir(dir, STAGING);
    assert_eq!(fixture.listing(dir), [STAGING]);
}

#[test]
fn names_that_are_not_utf8_pass() {
    let fixture = Fixture::new();
    let name = OsStr::from_bytes(b"\xff\xfe name \x80");
    let flags = libc::O_WRONLY | libc::O_CREAT;
    let (made, _) = fixture
        .overlay
        .create(ROOT_USER, ROOT, name, (0o600, 0), flags)
        .unwrap();
    assert_eq!(fixture.overlay.lookup(ROOT, name).unwrap().node, made.node);
    assert_eq!(fixture.listing(ROOT), [name]);
}

#[test]
fn names_of_over_255_bytes_are_refused() {
    let fixture = Fixture::new();
    let name = "n".repeat(256);
    assert_eq!(fixture.lookup(&name).unwrap_err(), Errno::NAMETOOLONG);
    let made = fixture
        .overlay
        .mkdir(ROOT_USER, ROOT, OsStr::new(&name), (0o755, 0));
    assert_eq!(made.unwrap_err(), Errno::NAMETOOLONG);
    assert_eq!(fixture.lookup(&name[1..]).unwrap_err(), Errno::NOENT);
}

#[test]
fn a_reused_inode_number_gets_another_generation() {
    let fixture = Fixture::new();
    for _ in 0..200 {
        fixture.write("a", "one");
        let old = fixture.lookup("a").unwrap();
        fixture.unlink("a").unwrap();
        fixture.write("b", "two");
        let new = fixture.lookup("b").unwrap();
        assert!(old.node != new.node || old.generation != new.generation);
        fixture.unlink("b").unwrap();
    }
}

#[test]
fn forgetting_counts_references() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    let a = fixture.node("a");
    fixture.node("a");
    fixture.overlay.forget(a, 1);
    assert!(fixture.overlay.getattr(a, None).is_ok());
    fixture.overlay.forget(a, 1);
    assert_eq!(fixture.overlay.getattr(a, None).unwrap_err(), Errno::STALE);
}

#[test]
fn what_is_created_belongs_to_the_caller() {
    let fixture = Fixture::new();
    let caller = Caller {
        uid: 4321,
        gid: 1234,
        tid: 0,
    };
    let flags = libc::O_WRONLY | libc::O_CREAT;
    let (made, _) = fixture
        .overlay
        .create(caller, ROOT, OsStr::new("a"), (0o666, 0o027), flags)
        .unwrap();
    assert_eq!((made.attr.uid, made.attr.gid), (4321, 1234));
    assert_eq!(made.attr.permissions(), 0o640);
    let mine = fixture.mkdir(ROOT, "d");
    let attr = fixture.overlay.getattr(mine, None).unwrap().0;
    assert_eq!((attr.uid, attr.permissions()), (0, 0o755));
}

#[test]
fn one_time_can_be_set_without_the_other() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    let a = fixture.node("a");
    let before = fixture.overlay.getattr(a, None).unwrap().0;
    let mtime = Timestamp {
        secs: -5,
        nanos: 123_456_789,
    };
    let changes = AttrChanges {
        mtime: Some(NewTime::At(mtime)),
        ..AttrChanges::default()
    };
    let (after, _) = fixture
        .overlay
        .setattr(ROOT_USER, a, None, &changes)
        .unwrap();
    assert_eq!((after.mtime, after.atime), (mtime, before.atime));
}

#[test]
fn links_themselves_are_changed_not_what_they_point_to() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    let link = fixture
        .overlay
        .symlink(ROOT_USER, ROOT, OsStr::new("l"), Path::new("a"))
        .unwrap();
    let changes = AttrChanges {
        uid: Some(77),
        mtime: Some(NewTime::At(Timestamp { secs: 9, nanos: 0 })),
        ..AttrChanges::default()
    };
    let overlay = &fixture.overlay;
    overlay
        .setattr(ROOT_USER, link.node, None, &changes)
        .unwrap();
    let name = OsStr::new("trusted.t");
    overlay.setxattr(link.node, name, b"v", 0).unwrap();
    assert_eq!(overlay.getxattr(link.node, name).unwrap(), b"v");
    assert_eq!(overlay.readlink(link.node).unwrap(), b"a");
    let target = std::fs::metadata(fixture.dir.path().join("a")).unwrap();
    assert_eq!(target.uid(), 0);
    assert_ne!(target.mtime(), 9);
    let a = fixture.node("a");
    assert_eq!(overlay.getxattr(a, name), Err(Errno::NODATA));
}
