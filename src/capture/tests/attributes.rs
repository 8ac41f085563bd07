use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{Timespec, Timestamps, XattrFlags};
use trashfs_mount::Attr;

use super::world::World;

fn attr(path: &Path) -> Attr {
    Attr::at(std::fs::File::open("/").unwrap(), path).unwrap()
}

fn set_times(path: &Path, secs: i64, nanos: i64) {
    let time = Timespec {
        tv_sec: secs,
        tv_nsec: nanos,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
}

#[test]
fn a_removed_directory_keeps_its_attributes_and_the_time_before_it_was_emptied() {
    let world = World::new();
    world.write("d/x", "1");
    world.write("d/y", "1");
    let dir = world.path("d");
    std::os::unix::fs::chown(&dir, Some(1234), Some(4321)).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o2751)).unwrap();
    rustix::fs::setxattr(&dir, "user.note", b"kept", XattrFlags::empty()).unwrap();
    set_times(&dir, 1_000_000, 123_456_789);
    let before = attr(&dir);
    world.remove_all("d").unwrap();
    let staged = world.tree("remove-365d-1").join("d");
    let after = attr(&staged);
    assert_eq!(
        (after.mode, after.uid, after.gid),
        (before.mode, 1234, 4321)
    );
    assert_eq!(after.mtime, before.mtime);
    let mut value = [0u8; 16];
    let length = rustix::fs::getxattr(&staged, "user.note", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"kept");
}

#[test]
fn a_directory_that_could_not_be_removed_leaves_no_attributes_in_staging() {
    let world = World::new();
    world.write("d/x", "1");
    let dir = world.path("d");
    std::os::unix::fs::chown(&dir, Some(1234), Some(4321)).unwrap();
    rustix::fs::setxattr(&dir, "user.note", b"kept", XattrFlags::empty()).unwrap();
    set_times(&dir, 1_000_000, 1);
    let before = attr(&dir);
    world.unlink("d/x").unwrap();
    world.fail_after_preparing("d", true);
    let staged = world.tree("remove-365d-1").join("d");
    assert_eq!(
        (attr(&staged).permissions(), attr(&staged).uid),
        (0o1700, 0)
    );
    assert_eq!(
        rustix::fs::listxattr(&staged, &mut [0u8; 64][..]).unwrap(),
        0
    );
    world.rmdir("d").unwrap();
    assert_eq!(attr(&staged).mtime, before.mtime);
}

#[test]
fn a_removed_directory_with_the_mode_of_a_container_is_told_apart() {
    let world = World::new();
    world.write("d/x", "1");
    std::fs::set_permissions(world.path("d"), std::fs::Permissions::from_mode(0o1700)).unwrap();
    world.remove_all("d").unwrap();
    world.write("d/x", "2");
    world.remove_all("d").unwrap();
    let id = world.staging.entries().unwrap().remove(0);
    let entry = world.staging.entry(&id).unwrap().unwrap();
    let exceptions = entry.exceptions().unwrap();
    let tree = |n: u32| format!("remove-365d-{n}").parse().unwrap();
    assert!(exceptions.contains(tree(1), Path::new("d")));
    assert!(!exceptions.contains(tree(2), Path::new("d")));
    assert!(world.tree("remove-365d-2").join("d/x").exists());
}

#[test]
fn a_copy_has_the_attributes_and_the_holes_of_the_original() {
    let world = World::new();
    let path = world.path("f");
    let file = std::fs::File::create(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", 8 << 20).unwrap();
    std::os::unix::fs::chown(&path, Some(1234), Some(4321)).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4711)).unwrap();
    rustix::fs::setxattr(&path, "user.note", b"kept", XattrFlags::empty()).unwrap();
    set_times(&path, 1_000_000, 123_456_789);
    let before = attr(&path);
    world.truncate("f", 0).unwrap();
    let staged = world.tree("truncate-7d-1").join("f");
    let after = attr(&staged);
    assert_eq!(
        (after.mode, after.uid, after.gid),
        (before.mode, 1234, 4321)
    );
    assert_eq!(
        (after.mtime, after.size_bytes),
        (before.mtime, before.size_bytes)
    );
    assert!(
        after.blocks <= before.blocks + 8,
        "{} {}",
        after.blocks,
        before.blocks
    );
    assert_eq!(&std::fs::read(&staged).unwrap()[8 << 20..], b"end");
    let mut value = [0u8; 16];
    let length = rustix::fs::getxattr(&staged, "user.note", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"kept");
}
