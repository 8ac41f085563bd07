//! What the interceptor is asked, and that its answer is obeyed.

use super::*;
use crate::AttrChanges;

fn truncated(size: u64) -> AttrChanges {
    AttrChanges {
        size_bytes: Some(size),
        ..AttrChanges::default()
    }
}

#[test]
fn a_refused_removal_leaves_the_target() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    fixture.recorder().answer(Answer::Refuse);
    assert_eq!(fixture.unlink("a"), Err(Errno::NOSPC));
    assert_eq!(fixture.content("a"), "one");
}

#[test]
fn a_moved_victim_is_not_removed_again() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    fixture.recorder().answer(Answer::Move);
    fixture.unlink("a").unwrap();
    assert!(!fixture.exists("a"));
    assert_eq!(fixture.content(format!("{STAGING}/a")), "one");
    assert_eq!(fixture.recorder().take_log(), ["unlink a writers=0"]);
}

#[test]
fn a_captured_file_that_is_open_answers_from_its_handle() {
    let fixture = Fixture::new();
    let (a, handle) = fixture.create(ROOT, "a");
    fixture.recorder().answer(Answer::Move);
    fixture.unlink("a").unwrap();
    let overlay = &fixture.overlay;
    assert_eq!(overlay.write(handle, 0, b"late", false), Ok(4));
    let (attr, _) = overlay.getattr(a.node, Some(handle)).unwrap();
    assert_eq!((attr.size_bytes, attr.nlink), (4, 0));
    overlay
        .setattr(ROOT_USER, a.node, Some(handle), &truncated(2))
        .unwrap();
    overlay.release(handle);
    assert_eq!(
        fixture.recorder().take_log(),
        ["unlink a writers=1", "writers gone"]
    );
}

#[test]
fn a_captured_file_that_is_not_open_answers_from_its_place() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    let a = fixture.node("a");
    fixture.recorder().answer(Answer::Move);
    fixture.unlink("a").unwrap();
    let (attr, _) = fixture.overlay.getattr(a, None).unwrap();
    assert_eq!((attr.size_bytes, attr.nlink), (3, 0));
    assert!(fixture.overlay.open(ROOT_USER, a, libc::O_RDONLY).is_ok());
    let written = fixture.overlay.open(ROOT_USER, a, libc::O_RDWR);
    assert_eq!(written.unwrap_err(), Errno::STALE);
    let linked = fixture.overlay.link(ROOT_USER, a, ROOT, OsStr::new("b"));
    assert_eq!(linked.unwrap_err(), Errno::NOENT);
}

#[test]
fn links_that_nobody_has_looked_at_count() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    std::fs::hard_link(fixture.dir.path().join("a"), fixture.dir.path().join("b")).unwrap();
    let a = fixture.node("a");
    let opened = fixture.overlay.open(ROOT_USER, a, libc::O_RDONLY).unwrap();
    fixture.unlink("a").unwrap();
    let (attr, _) = fixture.overlay.getattr(a, Some(opened.handle)).unwrap();
    assert_eq!(attr.nlink, 1);
}

#[test]
fn a_removed_file_works_as_long_as_the_kernel_knows_it() {
    let fixture = Fixture::new();
    let (a, handle) = fixture.create(ROOT, "a");
    fixture.unlink("a").unwrap();
    let (attr, _) = fixture.overlay.getattr(a.node, None).unwrap();
    assert_eq!(attr.nlink, 0);
    assert_eq!(fixture.overlay.write(handle, 0, b"x", false), Ok(1));
    fixture.overlay.release(handle);
    assert!(
        fixture
            .overlay
            .open(ROOT_USER, a.node, libc::O_RDONLY)
            .is_ok()
    );
    fixture.overlay.forget(a.node, 1);
    assert_eq!(
        fixture.overlay.getattr(a.node, None).unwrap_err(),
        Errno::STALE
    );
}

#[test]
fn a_file_that_comes_back_is_the_same_to_the_kernel() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    let before = fixture.lookup("a").unwrap();
    fixture.recorder().answer(Answer::Move);
    fixture.unlink("a").unwrap();
    let staged = fixture.dir.path().join(STAGING).join("a");
    std::fs::hard_link(staged, fixture.dir.path().join("a")).unwrap();
    let after = fixture.lookup("a").unwrap();
    assert_eq!(
        (before.node, before.generation),
        (after.node, after.generation)
    );
}

#[test]
fn a_rename_over_asks_about_its_target_and_reports_once() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    fixture.write("b", "two");
    fixture.recorder().answer(Answer::Prepare);
    fixture.rename("a", "b", 0).unwrap();
    assert_eq!(fixture.content("b"), "one");
    assert_eq!(
        fixture.recorder().take_log(),
        ["replace a writers=0 b writers=0", "settled 7 Ok(())"]
    );
}

#[test]
fn a_failed_rename_is_reported_as_failed() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.mkdir(ROOT, "a"), fixture.mkdir(ROOT, "b"));
    fixture.create(b, "inside");
    fixture.recorder().answer(Answer::Prepare);
    assert_eq!(fixture.rename("a", "b", 0), Err(Errno::NOTEMPTY));
    let log = fixture.recorder().take_log();
    assert_eq!(log.len(), 2);
    assert!(log[1].starts_with("settled 7 Err"), "{log:?}");
    assert!(fixture.overlay.getattr(a, None).is_ok());
}

#[test]
fn renames_that_destroy_nothing_are_not_taken_for_replacing() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    fixture.write("b", "two");
    std::fs::hard_link(fixture.dir.path().join("a"), fixture.dir.path().join("c")).unwrap();
    let (noreplace, exchange) = (libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE);
    assert_eq!(fixture.rename("a", "b", noreplace), Err(Errno::EXIST));
    fixture.rename("a", "c", 0).unwrap();
    assert!(fixture.exists("a") && fixture.exists("c"));
    let (a, b) = (fixture.node("a"), fixture.node("b"));
    fixture.rename("a", "b", exchange).unwrap();
    assert_eq!((fixture.node("b"), fixture.node("a")), (a, b));
    assert!(fixture.recorder().take_log().is_empty());
    fixture.rename("a", "d", noreplace).unwrap();
    assert_eq!(fixture.recorder().take_log(), ["rename"]);
}

#[test]
fn shortening_asks_and_lengthening_does_not() {
    let fixture = Fixture::new();
    fixture.write("a", "content");
    let a = fixture.node("a");
    let set = |size| {
        fixture
            .overlay
            .setattr(ROOT_USER, a, None, &truncated(size))
            .map(|_| ())
    };
    set(9).unwrap();
    set(9).unwrap();
    assert!(fixture.recorder().take_log().is_empty());
    fixture.recorder().answer(Answer::Refuse);
    assert_eq!(set(0), Err(Errno::NOSPC));
    assert_eq!(fixture.content("a").len(), 9);
    fixture.recorder().answer(Answer::Prepare);
    set(1).unwrap();
    assert_eq!(
        fixture.recorder().take_log(),
        [
            "truncate a writers=0 0",
            "truncate a writers=0 1",
            "settled 7 Ok(())"
        ]
    );
    assert_eq!(fixture.content("a"), "c");
}

#[test]
fn creating_what_has_come_to_exist_destroys_nothing() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    let create = |flags| {
        let flags = flags | libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
        let name = OsStr::new("a");
        let made = fixture
            .overlay
            .create(ROOT_USER, ROOT, name, (0o644, 0), flags);
        made.unwrap_err()
    };
    assert_eq!(create(0), Errno::STALE);
    assert_eq!(create(libc::O_EXCL), Errno::EXIST);
    assert_eq!(fixture.content("a"), "one");
}

#[test]
fn a_removed_directory_is_still_reachable_from_inside() {
    let fixture = Fixture::new();
    let dir = fixture.mkdir(ROOT, "d");
    fixture
        .overlay
        .rmdir(ROOT_USER, ROOT, OsStr::new("d"))
        .unwrap();
    let (attr, _) = fixture.overlay.getattr(dir, None).unwrap();
    assert_eq!(attr.nlink, 0);
    let made = fixture
        .overlay
        .mkdir(ROOT_USER, dir, OsStr::new("x"), (0o755, 0));
    assert_eq!(made.unwrap_err(), Errno::NOENT);
}
