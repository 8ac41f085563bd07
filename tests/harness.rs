//! The test harness itself: what it calls the same is the same, and it notices each difference.
mod common;

use common::{Snapshot, assert_same, sh, tree};

#[test]
fn a_faithful_copy_of_the_awkward_tree_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    tree::awkward(&dir.path().join("tree"), false);
    let before = Snapshot::of(&dir.path().join("tree"));
    assert!(before.len() > 350, "{}", before.len());
    sh(dir.path(), "cp -a tree copy").ok();
    assert_same(&before, &Snapshot::of(&dir.path().join("copy")), "cp -a");
    tree::awkward(&dir.path().join("deeper"), true);
    let deeper = Snapshot::of(&dir.path().join("deeper"));
    assert!(deeper.len() > before.len() + 60, "{}", deeper.len());
}

#[test]
fn each_kind_of_difference_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    tree::awkward(&root, false);
    let before = Snapshot::of(&root);
    for (change, back) in [
        ("chmod 640 modes/644", "chmod 644 modes/644"),
        (
            "touch -hd @5.000000001 links/dangling",
            "touch -hd @1100000000.000000001 links/dangling",
        ),
        (
            "setfattr -n user.colour -v 1 marked/xattr",
            "setfattr -n user.colour -v 0x6772006e marked/xattr",
        ),
        (
            "setfacl -m u:1234:--- marked/acl",
            "setfacl -n -m u:1234:rw-,m::rwx marked/acl",
        ),
        (
            "touch -d @1300000000.000000008 directories/a/b/c/empty",
            "touch -d @1300000000.000000007 directories/a/b/c/empty",
        ),
    ] {
        sh(&root, change).ok();
        assert_ne!(before, Snapshot::of(&root), "{change}");
        sh(&root, back).ok();
        assert_same(&before, &Snapshot::of(&root), back);
    }
    for change in [
        "rm special/fifo",
        "fallocate --punch-hole -o 1048576 -l 4096 holes",
        "cp --remove-destination -a links/one links/x && mv links/x links/two",
        "rmdir directories/empty",
        "echo x > names/new",
    ] {
        let before = Snapshot::of(&root);
        sh(&root, change).ok();
        assert_ne!(before, Snapshot::of(&root), "{change}");
    }
}
