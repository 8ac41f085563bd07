use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::bench::Bench;
use super::{members, spec, with_mode};
use crate::ids::OperationId;
use crate::journal::State;
use crate::record::{Cause, Keep};
use crate::restore::{Mode, Why, restore};

#[test]
fn a_removed_tree_goes_back_as_it_was_and_its_entry_ends() {
    let bench = Bench::new();
    bench.write("src/a/one", "text 1");
    bench.write("src/two", "text 2");
    symlink("nowhere", bench.path("src/link")).unwrap();
    std::fs::create_dir(bench.path("src/empty")).unwrap();
    std::fs::set_permissions(bench.path("src/a"), PermissionsExt::from_mode(0o2750)).unwrap();
    let before = bench.snapshot();
    let entry = bench.removed("src");
    assert!(!bench.exists("src"));
    let restored = restore(&bench.ws, &spec(&entry)).unwrap();
    assert_eq!(bench.snapshot(), before);
    assert_eq!(restored.remaining, 0);
    assert_eq!(restored.restored.len(), 1);
    assert_eq!(bench.entry(&entry.id).state, State::Restored);
    assert!(!bench.exists(&format!(".trashfs/ops/{}", entry.id)));
    let again = restore(&bench.ws, &spec(&entry)).unwrap_err();
    assert_eq!(again.code, "ended");
}

#[test]
fn an_occupied_path_is_refused_before_anything_changes() {
    let bench = Bench::new();
    bench.write("a", "text old a");
    bench.write("b", "text old b");
    let entry = bench.op().remove("a").remove("b").seal();
    bench.write("b", "text new");
    let before = bench.contents();
    let failure = restore(&bench.ws, &spec(&entry)).unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.exit_code()),
        ("occupied", 2)
    );
    assert!(
        failure.what.contains("b is occupied: a file of 8 bytes"),
        "{}",
        failure.what
    );
    assert!(failure.next.contains("--swap"));
    assert!(!bench.exists("a"));
    assert_eq!(bench.contents(), before);
    assert_eq!(bench.entry(&entry.id).state, State::Sealed);
}

#[test]
fn a_swap_captures_what_is_there_and_can_be_swapped_back() {
    let bench = Bench::new();
    bench.write("dir/f", "text old");
    let entry = bench.removed("dir/f");
    bench.write("dir/f", "text new");
    let restored = restore(&bench.ws, &with_mode(&entry, Mode::Swap)).unwrap();
    assert_eq!(bench.read("dir/f"), "text old");
    let [captured] = restored.captured.as_slice() else {
        panic!("{restored:?}")
    };
    let newer = bench.entry(captured);
    assert_eq!(newer.causes, [Cause::Replace]);
    assert_eq!(newer.made_by.as_deref(), Some("swap"));
    assert_eq!(restored.restored[0].swapped_into.as_ref(), Some(captured));
    assert_eq!(bench.entry(&entry.id).state, State::Restored);
    restore(&bench.ws, &with_mode(&newer, Mode::Swap)).unwrap();
    assert_eq!(bench.read("dir/f"), "text new");
    assert_eq!(bench.contents(), ["text new", "text old"]);
}

#[test]
fn a_swap_keeps_a_directory_that_looks_like_a_place_holder() {
    for (inner, filled) in [(false, false), (true, false), (true, true)] {
        let bench = Bench::new();
        bench.write("dir/f", "text old");
        let entry = bench.removed("dir");
        std::fs::create_dir(bench.path("dir")).unwrap();
        let alike = |path: &str| {
            let mode = PermissionsExt::from_mode(crate::staging::CONTAINER_MODE);
            std::fs::set_permissions(bench.path(path), mode).unwrap();
        };
        if inner {
            std::fs::create_dir(bench.path("dir/inner")).unwrap();
            alike("dir/inner");
        }
        if filled {
            bench.write("dir/new", "text new");
        }
        alike("dir");
        let before = bench.snapshot();
        let restored = restore(&bench.ws, &with_mode(&entry, Mode::Swap)).unwrap();
        assert_eq!(bench.read("dir/f"), "text old");
        let newer = bench.entry(&restored.captured[0]);
        assert_eq!(newer.roots[0].path, "dir".into());
        assert_eq!(newer.members, 1 + u64::from(inner) + u64::from(filled));
        restore(&bench.ws, &with_mode(&newer, Mode::Swap)).unwrap();
        assert_eq!(bench.snapshot(), before);
    }
}

#[test]
fn a_swap_exchanges_a_file_and_a_directory() {
    let bench = Bench::new();
    bench.write("x", "text file");
    let entry = bench.removed("x");
    bench.write("x/inner", "text inner");
    let restored = restore(&bench.ws, &with_mode(&entry, Mode::Swap)).unwrap();
    assert_eq!(bench.read("x"), "text file");
    let newer = bench.entry(&restored.captured[0]);
    assert_eq!(newer.keep, Keep::Hosted);
    restore(&bench.ws, &with_mode(&newer, Mode::Swap)).unwrap();
    assert_eq!(bench.read("x/inner"), "text inner");
}

#[test]
fn merging_enters_directories_and_refuses_occupied_files() {
    let bench = Bench::new();
    bench.write("src/sub/a", "text a");
    bench.write("src/b", "text b");
    let entry = bench.removed("src");
    bench.write("src/b", "text newer b");
    let failure = restore(&bench.ws, &with_mode(&entry, Mode::Merge)).unwrap_err();
    assert!(
        failure.what.contains("src/b is occupied"),
        "{}",
        failure.what
    );
    assert!(!bench.exists("src/sub"));
    restore(&bench.ws, &members_merge(&entry, &["src/sub"])).unwrap();
    assert_eq!(bench.read("src/sub/a"), "text a");
    assert_eq!(bench.entry(&entry.id).state, State::Sealed);
    bench.write("src/b.new", "text x");
    #[expect(clippy::disallowed_methods, reason = "a test clears a path")]
    std::fs::remove_file(bench.path("src/b")).unwrap();
    restore(&bench.ws, &with_mode(&entry, Mode::Merge)).unwrap();
    assert_eq!(bench.read("src/b"), "text b");
    assert_eq!(bench.entry(&entry.id).state, State::Restored);
}

fn members_merge(entry: &crate::record::Entry, paths: &[&str]) -> crate::restore::RestoreSpec {
    crate::restore::RestoreSpec {
        mode: Mode::Merge,
        ..members(entry, paths)
    }
}

#[test]
fn a_member_goes_back_alone_and_brings_its_directories() {
    let bench = Bench::new();
    bench.write("src/deep/a", "text a");
    bench.write("src/deep/b", "text b");
    std::fs::set_permissions(bench.path("src/deep"), PermissionsExt::from_mode(0o711)).unwrap();
    let before = bench.snapshot();
    let entry = bench.removed("src");
    let restored = restore(&bench.ws, &members(&entry, &["src/deep/a"])).unwrap();
    assert_eq!(bench.read("src/deep/a"), "text a");
    assert!(!bench.exists("src/deep/b"));
    assert_eq!(restored.recreated.len(), 2);
    assert_eq!(
        bench.snapshot()[std::path::Path::new("src/deep")],
        before[std::path::Path::new("src/deep")]
    );
    let rest = bench.entry(&entry.id);
    assert_eq!((rest.state, rest.members), (State::Sealed, 3));
    restore(&bench.ws, &with_mode(&rest, Mode::Merge)).unwrap();
    assert_eq!(
        bench.snapshot().keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>()
    );
}

#[test]
fn parents_that_another_entry_removed_come_back_with_their_attributes() {
    let bench = Bench::new();
    bench.write("a/b/f", "text f");
    std::fs::set_permissions(bench.path("a/b"), PermissionsExt::from_mode(0o2731)).unwrap();
    let file = bench.removed("a/b/f");
    let dir = bench.removed("a");
    let restored = restore(&bench.ws, &spec(&file)).unwrap();
    assert_eq!(restored.recreated.len(), 2);
    assert_eq!(
        bench.path("a/b").metadata().unwrap().mode() & 0o7777,
        0o2731
    );
    restore(&bench.ws, &with_mode(&dir, Mode::Merge)).unwrap();
    assert_eq!(bench.entry(&dir.id).state, State::Restored);
    assert_eq!(bench.read("a/b/f"), "text f");
}

#[test]
fn a_file_where_a_directory_is_needed_is_refused_and_a_link_is_not_followed() {
    let bench = Bench::new();
    bench.write("d/f", "text f");
    let entry = bench.removed("d/f");
    #[expect(clippy::disallowed_methods, reason = "a test clears a path")]
    std::fs::remove_dir(bench.path("d")).unwrap();
    std::fs::create_dir(bench.dir.path().join("elsewhere")).unwrap();
    symlink(bench.dir.path().join("elsewhere"), bench.path("d")).unwrap();
    let failure = restore(&bench.ws, &spec(&entry)).unwrap_err();
    assert!(
        failure
            .what
            .contains("d is not a directory: a symbolic link"),
        "{}",
        failure.what
    );
    assert!(!bench.dir.path().join("elsewhere/f").exists());
}

#[test]
fn versions_are_chosen_by_number_and_the_newest_otherwise() {
    let bench = Bench::new();
    bench.write("f", "text 1");
    let op = bench.op().remove("f");
    bench.write("f", "text 2");
    let entry = op.remove_into("remove-365d-2", "f").seal();
    let restored = restore(&bench.ws, &spec(&entry)).unwrap();
    assert_eq!(bench.read("f"), "text 2");
    assert_eq!(restored.left_alone[0].why, Why::OtherVersion);
    assert_eq!(bench.entry(&entry.id).state, State::Sealed);

    bench.write("g", "text 1");
    let op = bench.op().remove("g");
    bench.write("g", "text 2");
    let entry = op.remove_into("remove-365d-2", "g").seal();
    restore(&bench.ws, &members(&entry, &["g@1"])).unwrap();
    assert_eq!(bench.read("g"), "text 1");
    assert_eq!(
        restore(&bench.ws, &members(&entry, &["h"]))
            .unwrap_err()
            .code,
        "no-such-member"
    );
}

#[test]
fn what_one_command_scattered_over_trees_comes_together() {
    let bench = Bench::new();
    bench.write("p/sub/kept", "text kept");
    bench.write("p/sub/short", "text short");
    std::fs::set_permissions(bench.path("p/sub"), PermissionsExt::from_mode(0o750)).unwrap();
    let before = bench.snapshot();
    // `short` is kept otherwise, and so is the directory `sub` itself.
    let op = bench.op().remove_into("remove-1h-1", "p/sub/short");
    let stat = |path: &str| bench.path(path).metadata().unwrap();
    let (sub, p) = (stat("p/sub"), stat("p"));
    let staged = bench.path(&format!(".trashfs/ops/{}/remove-1h-1/p/sub", op.entry));
    let op = op.remove_into("remove-365d-1", "p/sub/kept");
    imitate(&staged, 0o750, &bench, "p/sub", &before);
    #[expect(clippy::disallowed_methods, reason = "the removal that is imitated")]
    std::fs::remove_dir(bench.path("p/sub")).unwrap();
    let staged = bench.path(&format!(".trashfs/ops/{}/remove-365d-1/p", op.entry));
    imitate(&staged, p.mode() & 0o7777, &bench, "p", &before);
    #[expect(clippy::disallowed_methods, reason = "the removal that is imitated")]
    std::fs::remove_dir(bench.path("p")).unwrap();
    assert_eq!(sub.mode() & 0o7777, 0o750);
    let entry = op.seal();
    restore(&bench.ws, &spec(&entry)).unwrap();
    assert_eq!(bench.snapshot(), before);
    assert_eq!(bench.entry(&entry.id).state, State::Restored);
}

/// Gives a staged directory the attributes of the real one, as a capture of rmdir does.
fn imitate(
    staged: &std::path::Path,
    mode: u32,
    _bench: &Bench,
    path: &str,
    before: &std::collections::BTreeMap<std::path::PathBuf, String>,
) {
    std::fs::set_permissions(staged, PermissionsExt::from_mode(mode)).unwrap();
    let line = &before[std::path::Path::new(path)];
    let (secs, nanos) = line.split(' ').nth(2).unwrap().split_once('.').unwrap();
    let time = std::time::UNIX_EPOCH
        + std::time::Duration::new(secs.parse().unwrap(), nanos.parse().unwrap());
    let times = std::fs::FileTimes::new()
        .set_modified(time)
        .set_accessed(time);
    std::fs::File::open(staged)
        .unwrap()
        .set_times(times)
        .unwrap();
}

#[test]
fn a_place_holder_inside_a_removed_tree_gets_a_mode_of_use() {
    for mode in [Mode::Refuse, Mode::Swap] {
        let bench = Bench::new();
        bench.write("p/moved/f", "text f");
        let op = bench.op().remove("p/moved/f");
        let staged = bench.path(&format!(".trashfs/ops/{}/remove-365d-1/p", op.entry));
        std::fs::set_permissions(staged, PermissionsExt::from_mode(0o755)).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the command that is imitated")]
        std::fs::rename(bench.path("p/moved"), bench.path("elsewhere")).unwrap();
        #[expect(clippy::disallowed_methods, reason = "the command that is imitated")]
        std::fs::remove_dir(bench.path("p")).unwrap();
        let entry = op.seal();
        if mode == Mode::Swap {
            bench.write("p", "text there");
        }
        restore(&bench.ws, &with_mode(&entry, mode)).unwrap();
        assert_eq!(bench.read("p/moved/f"), "text f");
        assert_eq!(
            bench.path("p/moved").metadata().unwrap().mode() & 0o7777,
            0o755
        );
    }
}

#[test]
fn a_dry_run_changes_nothing() {
    let bench = Bench::new();
    bench.write("a/f", "text f");
    let entry = bench.removed("a");
    let dry = crate::restore::RestoreSpec {
        dry_run: true,
        ..spec(&entry)
    };
    let told = restore(&bench.ws, &dry).unwrap();
    assert!(told.dry_run && told.restored.len() == 1);
    assert!(!bench.exists("a"));
    assert_eq!(bench.entry(&entry.id).state, State::Sealed);
}

#[test]
fn hard_links_that_were_captured_one_by_one_are_one_file_again() {
    let bench = Bench::new();
    bench.write("one", "text 1");
    std::fs::hard_link(bench.path("one"), bench.path("two")).unwrap();
    let entry = bench
        .op_of(&OperationId::random(), Keep::Hosted, None)
        .remove("one")
        .remove("two")
        .seal();
    restore(&bench.ws, &spec(&entry)).unwrap();
    let ino = |path: &str| bench.path(path).metadata().unwrap().ino();
    assert_eq!(ino("one"), ino("two"));
}

#[test]
fn an_unknown_id_and_an_empty_one_are_told_apart() {
    let bench = Bench::new();
    let unknown = crate::restore::RestoreSpec {
        entry: "zzzz".into(),
        ..Default::default()
    };
    assert_eq!(restore(&bench.ws, &unknown).unwrap_err().code, "unknown-id");
}
