use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::world::World;

/// A small filesystem over a temporary directory, gone when dropped.
pub(super) struct Small(std::path::PathBuf);

impl Small {
    pub(super) fn at(path: &std::path::Path, options: &str) -> Self {
        let options = std::ffi::CString::new(options).unwrap();
        mount("tmpfs", path, "tmpfs", MountFlags::empty(), &*options).unwrap();
        Self(path.to_owned())
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_copy_for_which_there_is_no_room_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let _small = Small::at(dir.path(), "size=8m");
    let world = World::over(dir, "");
    world.write("big", &"x".repeat(5 << 20));
    assert_eq!(world.truncate("big", 0), Err(Errno::NOSPC));
    assert_eq!(world.attr("big").size_bytes, 5 << 20);
    assert!(world.scratch_is_empty());
    world.capture.close_all();
    assert!(world.staged().is_empty() && world.told().is_empty());
}

#[test]
fn a_removal_on_a_full_filesystem_works() {
    let dir = tempfile::tempdir().unwrap();
    let _small = Small::at(dir.path(), "size=8m");
    let world = World::over(dir, "");
    world.write("d/e/small", "1");
    let file = std::fs::File::create(world.path("big")).unwrap();
    let mut file = std::io::BufWriter::new(file);
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    drop(file);
    world.remove_all("d").unwrap();
    world.unlink("big").unwrap();
    let entry = world.staging.entries().unwrap().remove(0);
    let entry = world.staging.entry(&entry).unwrap().unwrap();
    assert!(
        entry.op_record().unwrap().is_some(),
        "the reserve made room for it"
    );
    world.capture.close_all();
    assert!(!world.exists(".trashfs/reserve"));
    assert!(world.capture.tick().is_some(), "it waits for room");
    let root = std::fs::File::open(world.dir.path()).unwrap();
    crate::discard::file(&root, world.tree("remove-365d-1").join("big")).unwrap();
    assert!(world.capture.tick().is_none());
    assert!(world.exists(".trashfs/reserve"));
}

#[test]
fn a_removal_on_a_filesystem_without_free_inodes_works() {
    let dir = tempfile::tempdir().unwrap();
    let _small = Small::at(dir.path(), "size=8m,nr_inodes=400");
    let world = World::over(dir, "");
    world.write("d/e/f/small", "1");
    world.write("other", "2");
    let mut made = 0;
    while std::fs::File::create(world.path(&format!("n{made}"))).is_ok() {
        made += 1;
    }
    world.remove_all("d").unwrap();
    world.unlink("other").unwrap();
    let entry = world.staging.entries().unwrap().remove(0);
    let entry = world.staging.entry(&entry).unwrap().unwrap();
    assert!(
        entry.op_record().unwrap().is_some(),
        "the spare inodes made room for it"
    );
    world.capture.close_all();
    assert!(world.capture.tick().is_some(), "it waits for inodes");
    let root = std::fs::File::open(world.dir.path()).unwrap();
    for number in 0..made {
        crate::discard::file(&root, format!("n{number}")).unwrap();
    }
    assert!(world.capture.tick().is_none());
    assert!(world.exists(".trashfs/spare/24"));
}

#[test]
fn where_nothing_can_be_staged_everything_is_refused() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let world = World::new();
    world.write("d/x", "1");
    world.write("new", "1");
    std::fs::create_dir(world.path("empty")).unwrap();
    let ops = std::fs::File::open(world.path(".trashfs/ops")).unwrap();
    let flags = ioctl_getflags(&ops).unwrap();
    if ioctl_setflags(&ops, flags | IFlags::IMMUTABLE).is_err() {
        return;
    }
    assert_eq!(world.unlink("d/x"), Err(Errno::PERM));
    assert_eq!(world.rmdir("empty"), Err(Errno::PERM));
    assert_eq!(world.rename("new", "d/x"), Err(Errno::PERM));
    assert_eq!(world.truncate("d/x", 0), Err(Errno::PERM));
    ioctl_setflags(&ops, flags).unwrap();
    assert_eq!(std::fs::read_to_string(world.path("d/x")).unwrap(), "1");
    assert!(world.exists("new") && world.exists("empty"));
    world.capture.close_all();
    assert!(world.staged().is_empty() && world.told().is_empty());
}

#[test]
fn a_staging_area_that_has_gone_refuses_and_harms_nothing() {
    let world = World::new();
    world.write("x", "1");
    super::world::move_aside(&world, ".trashfs/ops", "elsewhere");
    let root = std::fs::File::open(world.dir.path()).unwrap();
    crate::discard::tree(
        std::os::fd::AsFd::as_fd(&root),
        std::ffi::OsStr::new("elsewhere"),
    )
    .unwrap();
    assert_eq!(world.unlink("x"), Err(Errno::NOENT));
    assert!(world.exists("x"));
}
