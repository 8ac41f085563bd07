use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::bench::{Bench, snapshot};
use super::{members, spec};
use crate::journal::State;
use crate::record::Entry;
use crate::restore::{RestoreSpec, Target, recover, restore};

fn to(entry: &Entry, dir: &Path) -> RestoreSpec {
    RestoreSpec {
        to: Some(target(dir)),
        ..spec(entry)
    }
}

fn target(dir: &Path) -> Target {
    Target::Outside {
        dir: OwnedFd::from(std::fs::File::open(dir).unwrap()),
        display: dir.to_owned(),
    }
}

#[test]
fn copies_are_exact_and_the_entry_stays() {
    let bench = Bench::new();
    bench.write("x/tree/a/one", "text 1");
    std::fs::hard_link(bench.path("x/tree/a/one"), bench.path("x/tree/two")).unwrap();
    symlink("../nowhere", bench.path("x/tree/link")).unwrap();
    std::fs::set_permissions(bench.path("x/tree/a"), PermissionsExt::from_mode(0o1751)).unwrap();
    std::fs::set_permissions(bench.path("x/tree/two"), PermissionsExt::from_mode(0o4711)).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        bench.path("x/tree/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let sparse = std::fs::File::create(bench.path("x/tree/sparse")).unwrap();
    sparse.write_all_at(b"end", 8 << 20).unwrap();
    drop(sparse);
    let before = snapshot(&bench.path("x"));
    let entry = bench.removed("x/tree");
    let out = tempfile::tempdir().unwrap();
    let restored = restore(&bench.ws, &to(&entry, out.path())).unwrap();
    assert_eq!(restored.notes, Vec::<String>::new());
    assert_eq!(snapshot(out.path()), before);
    let meta = |path: &str| out.path().join(path).metadata().unwrap();
    assert_eq!(meta("tree/a/one").ino(), meta("tree/two").ino());
    assert!(meta("tree/sparse").blocks() * 512 < 1 << 20);
    assert_eq!(bench.entry(&entry.id).state, State::Sealed);
    assert!(!bench.exists("x/tree"));
    restore(&bench.ws, &spec(&entry)).unwrap();
    assert_eq!(snapshot(&bench.path("x")), before);
}

#[test]
fn a_name_that_is_taken_is_refused() {
    let bench = Bench::new();
    bench.write("f", "text f");
    let entry = bench.removed("f");
    let out = tempfile::tempdir().unwrap();
    std::fs::write(out.path().join("f"), "precious").unwrap();
    let failure = restore(&bench.ws, &to(&entry, out.path())).unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.exit_code()),
        ("occupied", 2)
    );
    assert_eq!(
        std::fs::read_to_string(out.path().join("f")).unwrap(),
        "precious"
    );
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 1);
}

#[test]
fn members_of_several_roots_keep_their_places_to_each_other() {
    let bench = Bench::new();
    bench.write("p/a/f", "text f");
    bench.write("p/g", "text g");
    let entry = bench.op().remove("p/a/f").remove("p/g").seal();
    let out = tempfile::tempdir().unwrap();
    restore(&bench.ws, &to(&entry, out.path())).unwrap();
    assert_eq!(
        std::fs::read_to_string(out.path().join("a/f")).unwrap(),
        "text f"
    );
    assert_eq!(
        std::fs::read_to_string(out.path().join("g")).unwrap(),
        "text g"
    );
    let out = tempfile::tempdir().unwrap();
    let one = RestoreSpec {
        to: Some(target(out.path())),
        ..members(&entry, &["p/a/f"])
    };
    restore(&bench.ws, &one).unwrap();
    assert_eq!(
        std::fs::read_to_string(out.path().join("f")).unwrap(),
        "text f"
    );
}

#[test]
fn a_directory_of_the_workspace_will_do_but_not_one_that_is_missing_or_staging() {
    let bench = Bench::new();
    bench.write("f", "text f");
    let entry = bench.removed("f");
    let inside = |path: &str| RestoreSpec {
        to: Some(Target::Inside(path.into())),
        ..spec(&entry)
    };
    assert_eq!(
        restore(&bench.ws, &inside("missing")).unwrap_err().code,
        "no-such-directory"
    );
    assert_eq!(
        restore(&bench.ws, &inside(".trashfs/ops"))
            .unwrap_err()
            .code,
        "outside"
    );
    assert_eq!(
        restore(&bench.ws, &inside("../x")).unwrap_err().code,
        "outside"
    );
    std::fs::create_dir(bench.path("d")).unwrap();
    restore(&bench.ws, &inside("d")).unwrap();
    assert_eq!(bench.read("d/f"), "text f");
}

#[test]
fn what_an_interrupted_copy_left_is_cleared_or_finished() {
    let bench = Bench::new();
    bench.write("a", "text a");
    bench.write("b", "text b");
    let entry = bench.op().remove("a").remove("b").seal();
    let out = tempfile::tempdir().unwrap();
    let building = out.path().join(format!(".trashfs-restoring-{}", entry.id));
    std::fs::create_dir_all(building.join("items")).unwrap();
    std::fs::write(building.join("items/a"), "tex").unwrap();
    restore(&bench.ws, &to(&entry, out.path())).unwrap();
    assert_eq!(
        std::fs::read_to_string(out.path().join("a")).unwrap(),
        "text a"
    );
    assert!(!building.exists());

    let out = tempfile::tempdir().unwrap();
    let building = out.path().join(format!(".trashfs-restoring-{}", entry.id));
    std::fs::create_dir_all(building.join("items")).unwrap();
    std::fs::write(building.join("items/b"), "text b").unwrap();
    std::fs::write(building.join("complete"), "").unwrap();
    std::fs::write(out.path().join("a"), "text a").unwrap();
    let recovered = recover(&bench.ws, entry.id.as_str(), Some(&target(out.path()))).unwrap();
    assert!(recovered.interrupted);
    assert_eq!(
        std::fs::read_to_string(out.path().join("b")).unwrap(),
        "text b"
    );
    assert!(!building.exists());
}
