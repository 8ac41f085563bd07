use super::world::World;

/// The tree that the built-in rules choose for a removal.
const TREE: &str = "remove-365d-1";

#[test]
fn a_tree_lies_in_staging_as_it_was() {
    let world = World::new();
    world.write("a/b/x", "1");
    world.write("a/y", "22");
    std::fs::create_dir(world.path("a/empty")).unwrap();
    std::os::unix::fs::symlink("../nowhere", world.path("a/link")).unwrap();
    world.remove_all("a").unwrap();
    assert!(!world.exists("a"));
    assert_eq!(
        world.staged(),
        [
            "remove-365d-1/a/",
            "remove-365d-1/a/b/",
            "remove-365d-1/a/b/x=1",
            "remove-365d-1/a/empty/",
            "remove-365d-1/a/link=->../nowhere",
            "remove-365d-1/a/y=22",
        ]
    );
    assert_eq!(world.told(), ["opened hosted"]);
    world.capture.close_all();
    assert_eq!(world.told(), ["closed 6 3"]);
}

#[test]
fn a_directory_that_stays_is_only_a_container() {
    let world = World::new();
    world.write("a/b/x", "1");
    world.unlink("a/b/x").unwrap();
    assert_eq!(
        world.staged(),
        [
            "(remove-365d-1/a)",
            "(remove-365d-1/a/b)",
            "remove-365d-1/a/b/x=1"
        ]
    );
}

#[test]
fn the_same_path_many_times_goes_to_one_slot_after_the_other() {
    let world = World::new();
    for round in 1..=5 {
        world.write("d/x", &round.to_string());
        world.unlink("d/x").unwrap();
    }
    let files: Vec<_> = world
        .staged()
        .into_iter()
        .filter(|line| line.contains('='))
        .collect();
    let wanted: Vec<_> = (1..=5)
        .map(|n| format!("remove-365d-{n}/d/x={n}"))
        .collect();
    assert_eq!(files, wanted);
}

#[test]
fn a_directory_removed_twice_keeps_both() {
    let world = World::new();
    for round in 1..=3 {
        world.write("d/sub/x", &round.to_string());
        world.write(&format!("d/sub/only{round}"), "");
        world.remove_all("d").unwrap();
    }
    let staged = world.staged();
    for n in 1..=3 {
        for line in [
            format!("remove-365d-{n}/d/"),
            format!("remove-365d-{n}/d/sub/"),
            format!("remove-365d-{n}/d/sub/x={n}"),
            format!("remove-365d-{n}/d/sub/only{n}="),
        ] {
            assert!(staged.contains(&line), "{line} in {staged:#?}");
        }
    }
    assert_eq!(staged.len(), 12);
}

#[test]
fn a_file_and_a_directory_of_the_same_name_do_not_mix() {
    let world = World::new();
    world.write("n", "file");
    world.unlink("n").unwrap();
    world.write("n/x", "in a directory");
    world.remove_all("n").unwrap();
    world.write("n", "file again");
    world.unlink("n").unwrap();
    assert_eq!(
        world.staged(),
        [
            "remove-365d-1/n=file",
            "remove-365d-2/n/",
            "remove-365d-2/n/x=in a directory",
            "remove-365d-3/n=file again",
        ]
    );
}

#[test]
fn a_directory_that_is_not_empty_stays_and_leaves_no_trace() {
    let world = World::new();
    world.write("d/x", "1");
    assert!(world.rmdir("d").is_err());
    world.capture.close_all();
    assert!(world.told().is_empty());
    assert_eq!(
        std::fs::read_dir(world.path(".trashfs/ops"))
            .unwrap()
            .count(),
        0
    );
    assert!(world.exists("d/x"));
}

#[test]
fn a_directory_that_could_not_be_removed_is_a_container_again() {
    let world = World::new();
    world.write("d/x", "1");
    world.write("d/y", "2");
    world.unlink("d/x").unwrap();
    world.fail_after_preparing("d", true);
    assert!(world.staged().contains(&format!("({TREE}/d)")));
    world.unlink("d/y").unwrap();
    world.rmdir("d").unwrap();
    assert_eq!(
        world.staged(),
        [
            "remove-365d-1/d/",
            "remove-365d-1/d/x=1",
            "remove-365d-1/d/y=2"
        ]
    );
}

#[test]
fn an_overwritten_file_is_kept_and_a_failed_overwriting_takes_it_back() {
    let world = World::new();
    world.write("f", "old");
    world.write("new", "new");
    world.fail_after_preparing("f", false);
    assert_eq!(world.attr("f").nlink, 1);
    assert!(world.staged().is_empty());
    world.rename("new", "f").unwrap();
    assert_eq!(world.staged(), ["replace-7d-1/f=old"]);
    assert_eq!(std::fs::read_to_string(world.path("f")).unwrap(), "new");
    world.capture.close_all();
    assert_eq!(world.told(), ["opened local", "closed 1 3"]);
}

#[test]
fn an_overwritten_empty_directory_is_kept() {
    let world = World::new();
    world.write("new/x", "1");
    std::fs::create_dir(world.path("d")).unwrap();
    world.rename("new", "d").unwrap();
    assert_eq!(world.staged(), ["replace-7d-1/d/"]);
    assert!(world.exists("d/x"));
}

#[test]
fn what_is_cut_off_is_copied_first() {
    let world = World::new();
    let old = world.write("f", "0123456789");
    world.truncate("f", 4).unwrap();
    assert_eq!(std::fs::read_to_string(world.path("f")).unwrap(), "0123");
    assert_eq!(
        world.staged(),
        ["replace-7d-1/f=0123456789".replace("replace", "truncate")]
    );
    let copy = world.tree("truncate-7d-1").join("f");
    let root = std::fs::File::open("/").unwrap();
    let copy = trashfs_mount::Attr::at(&root, &copy).unwrap();
    assert_eq!(
        (copy.mode, copy.mtime, copy.uid),
        (old.mode, old.mtime, old.uid)
    );
    assert!(world.scratch_is_empty());
    world.truncate("f", 0).unwrap();
    world.truncate("f", 0).unwrap();
    world.capture.close_all();
    assert_eq!(world.told(), ["opened local", "closed 2 14"]);
}

#[test]
fn of_one_path_only_so_many_versions_are_kept() {
    let world = World::new();
    for round in 1..=25 {
        world.write("f", &format!("version {round}"));
        world.truncate("f", 0).unwrap();
    }
    let mut versions: Vec<u32> = world
        .staged()
        .iter()
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    versions.sort_unstable();
    assert_eq!(versions[0], 1, "what the operation found is kept");
    assert_eq!(versions[1..], (17..=25).collect::<Vec<_>>());
    world.capture.close_all();
    assert_eq!(world.told(), ["opened local", "closed 10 99"]);
}

#[test]
fn an_editors_save_through_a_backup_is_a_new_version_of_the_file() {
    let world = World::new();
    world.write("f", "old");
    world.rename("f", "f~").unwrap();
    world.write("f", "new");
    world.unlink("f~").unwrap();
    assert_eq!(world.staged(), ["replace-7d-1/f=old"]);
    // A file that was merely moved is removed under its present name.
    world.write("g", "moved");
    world.rename("g", "h").unwrap();
    world.unlink("h").unwrap();
    assert!(world.staged().contains(&format!("{TREE}/h=moved")));
}

#[test]
fn what_the_policy_lets_go_is_not_kept_but_told() {
    let world = World::with_policy("[[rule]]\nmatch = \"tmp/**\"\nkeep = \"none\"\n");
    world.write("tmp/x", "1");
    world.unlink("tmp/x").unwrap();
    assert!(!world.exists("tmp/x"));
    assert!(world.staged().is_empty());
    assert_eq!(world.told(), ["gone tmp/x"]);
}

#[test]
fn what_the_same_process_made_a_moment_ago_is_scratch() {
    use trashfs_mount::Interceptor;
    let world = World::new();
    let attr = world.write("x", "1");
    world.capture.created(world.caller, &attr);
    world.unlink("x").unwrap();
    assert_eq!(world.staged(), ["remove-1h-1/x=1"]);
}

#[test]
fn links_in_staging_are_hidden() {
    use trashfs_mount::Interceptor;
    let world = World::new();
    world.write("f", "1");
    std::fs::hard_link(world.path("f"), world.path("g")).unwrap();
    world.unlink("f").unwrap();
    let attr = world.attr("g");
    assert_eq!((attr.nlink, world.capture.hidden_links(&attr)), (2, 1));
    world.write("new", "2");
    world.rename("new", "g").unwrap();
    let attr = world.attr("g");
    assert_eq!(attr.nlink, 1);
    let root = world.attr(".");
    assert_eq!(world.capture.hidden_links(&root), 1);
    assert!(world.capture.hides(&root, ".trashfs".as_ref()));
    std::fs::create_dir(world.path("d")).unwrap();
    assert!(!world.capture.hides(&world.attr("d"), ".trashfs".as_ref()));
}

#[test]
fn versions_of_a_file_with_several_links_are_bounded_and_counted() {
    use trashfs_mount::Interceptor;
    let world = World::new();
    for round in 0..12 {
        world.write("f", &format!("{round:02}"));
        let other = format!("link{round}");
        std::fs::hard_link(world.path("f"), world.path(&other)).unwrap();
        world.write("new", "");
        world.rename("new", "f").unwrap();
    }
    let staged = world.staged();
    assert_eq!(staged.len(), 10);
    assert!(
        !staged
            .iter()
            .any(|line| line.ends_with("=01") || line.ends_with("=02"))
    );
    let hidden = |name: &str| world.capture.hidden_links(&world.attr(name));
    assert_eq!((hidden("link11"), hidden("link0")), (1, 1));
    assert_eq!(world.attr("link1").nlink, 1, "its version was given up");
}

#[test]
fn names_of_any_bytes_and_paths_of_any_length_are_kept() {
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    let odd = std::ffi::OsStr::from_bytes(b"\xff\n(x)");
    let mut path = std::path::PathBuf::from(odd);
    path.extend(std::iter::repeat_n("d".repeat(200), 40));
    let root = std::fs::File::open(world.dir.path()).unwrap();
    let last = crate::beneath::make_dirs(root.as_fd(), &path, rustix::fs::Mode::RWXU).unwrap();
    let name = "n".repeat(255);
    rustix::fs::mkdirat(&last, &*name, rustix::fs::Mode::RWXU).unwrap();
    world.rmdir_at(&path.join(&name)).unwrap();
    for dir in path.ancestors().filter(|p| !p.as_os_str().is_empty()) {
        world.rmdir_at(dir).unwrap();
    }
    let staged = std::fs::File::open(world.tree(TREE)).unwrap();
    let kept = crate::beneath::open_dir(staged.as_fd(), &path.join(name)).unwrap();
    assert_eq!(trashfs_mount::Attr::of(&kept).unwrap().permissions(), 0o700);
    assert!(!world.dir.path().join(odd).exists());
    world.capture.close_all();
    assert_eq!(world.told(), ["opened hosted", "closed 42 0"]);
}

#[test]
fn threads_of_one_command_capture_side_by_side() {
    let world = World::new();
    for dir in 0..4 {
        for file in 0..200 {
            world.write(&format!("d{dir}/s{}/f{file}", file % 7), "x");
        }
    }
    std::thread::scope(|scope| {
        for dir in 0..4 {
            let world = &world;
            scope.spawn(move || world.remove_all(&format!("d{dir}")).unwrap());
        }
    });
    world.capture.close_all();
    let told = world.told();
    assert_eq!(told, ["opened hosted", "closed 832 800"]);
}

#[test]
fn where_no_further_name_can_be_made_source_and_target_change_places() {
    let world = World::new();
    world.write("d/f", "old");
    let mut links = 0;
    let full = loop {
        match std::fs::hard_link(world.path("d/f"), world.path(&format!("d/{links}"))) {
            Ok(()) if links < 70_000 => links += 1,
            Ok(()) => break false,
            Err(_) => break true,
        }
    };
    if !full {
        // This filesystem knows no bound that could be met here.
        return;
    }
    world.write("s/new", "new");
    world.rename("s/new", "d/f").unwrap();
    assert_eq!(std::fs::read_to_string(world.path("d/f")).unwrap(), "new");
    assert!(!world.exists("s/new"));
    assert_eq!(world.staged(), ["(replace-7d-1/d)", "replace-7d-1/d/f=old"]);
    world.capture.close_all();
    assert_eq!(world.told(), ["opened local", "closed 1 3"]);
}
