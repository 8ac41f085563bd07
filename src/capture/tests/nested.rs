use super::failures::Small;
use super::world::World;

#[test]
fn another_filesystem_inside_gets_an_area_of_its_own() {
    let world = World::new();
    std::fs::create_dir_all(world.path("a/inner")).unwrap();
    let _small = Small::at(&world.path("a/inner"), "size=8m");
    world.write("a/inner/d/x", "1");
    world.write("a/inner/f", "old");
    world.write("a/inner/new", "new");
    world.write("y", "2");
    world.remove_all("a/inner/d").unwrap();
    world.unlink("y").unwrap();
    world.rename("a/inner/new", "a/inner/f").unwrap();
    world.truncate("a/inner/f", 0).unwrap();
    assert_eq!(
        world.staged(),
        [
            "(remove-365d-1/a)",
            "(remove-365d-1/a/inner)",
            "(replace-7d-1/a)",
            "(replace-7d-1/a/inner)",
            "(truncate-7d-1/a)",
            "(truncate-7d-1/a/inner)",
            "remove-365d-1/a/inner/d/",
            "remove-365d-1/a/inner/d/x=1",
            "remove-365d-1/y=2",
            "replace-7d-1/a/inner/f=old",
            "truncate-7d-1/a/inner/f=new",
        ]
    );
    assert_eq!(world.staging.areas().len(), 2);
    let ids = world.staging.entries().unwrap();
    assert_eq!(ids.len(), 2);
    let register = std::fs::read_to_string(world.path(".trashfs/areas.json")).unwrap();
    assert_eq!(register, "[\"a/inner\"]");
    use trashfs_mount::Interceptor;
    let inner = world.attr("a/inner");
    assert!(world.capture.hides(&inner, ".trashfs".as_ref()));
}

#[test]
fn where_no_area_can_be_made_a_verified_copy_is_kept() {
    let world = World::new();
    std::fs::create_dir_all(world.path("inner")).unwrap();
    let _small = Small::at(&world.path("inner"), "size=8m");
    // A foreign directory of the staging area's name.
    world.write("inner/.trashfs/foreign", "1");
    world.write("inner/x", "content");
    world.write("inner/new", "2");
    std::os::unix::fs::symlink("target", world.path("inner/link")).unwrap();
    let fifo = world.path("inner/fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for name in ["inner/x", "inner/link", "inner/fifo"] {
        world.unlink(name).unwrap();
        assert!(!world.exists(name));
    }
    world.write("inner/x", "again");
    world.rename("inner/new", "inner/x").unwrap();
    assert_eq!(
        world.staged(),
        [
            "(remove-365d-1/inner)",
            "(replace-7d-1/inner)",
            "remove-365d-1/inner/fifo=",
            "remove-365d-1/inner/link=->target",
            "remove-365d-1/inner/x=content",
            "replace-7d-1/inner/x=again",
        ]
    );
    assert!(world.scratch_is_empty());
    assert!(world.exists("inner/.trashfs/foreign"));
}
