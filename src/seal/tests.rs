use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};

use super::manifest::{self, Depth};
use super::*;
use crate::clock;
use crate::fixture::{DAY, Fixture};
use crate::record::{Keep, Left};
use crate::staging::MANIFEST;

fn sealed(f: &Fixture, id: &EntryId, present: Present) -> Shape {
    let dir = f.ws.staging.entry(id).unwrap().unwrap();
    match seal(&f.ws, &dir, None, present).unwrap() {
        Sealed::Whole(shape) => *shape,
        Sealed::Empty => panic!("nothing in it"),
    }
}

fn roots(entry: &Entry) -> Vec<String> {
    let say = |r: &Root| format!("{} {} {}", r.path.display(), r.cause, r.version);
    entry.roots.iter().map(say).collect()
}

#[test]
fn a_removed_tree_is_one_root_with_all_its_members_counted() {
    let f = Fixture::new();
    f.write("keep/src/a.rs", "aaa");
    f.write("keep/src/deep/b.rs", "bb");
    let op = f.begin(Keep::Hosted, clock::now());
    f.capture(&op.entry, "keep/src", Cause::Remove, DAY * 365);
    let shape = sealed(&f, &op.entry, Present::Compared);
    let entry = &shape.entry;
    assert_eq!(roots(entry), ["keep/src remove 1"]);
    assert_eq!(
        (entry.members, entry.bytes, entry.kind),
        (4, 5, Kind::Directory)
    );
    assert_eq!(entry.path.display(), "keep/src");
    assert_eq!(entry.command.as_deref(), Some(r"rm -rf 'it'\''s'"));
    assert_eq!(entry.retain_until, op.started.plus(DAY * 365));
    assert_eq!(shape.next_expiry, entry.retain_until);
    assert_eq!(
        Summary::read(&f.ws.staging.entry(&op.entry).unwrap().unwrap())
            .unwrap()
            .unwrap()
            .members,
        4
    );
}

#[test]
fn files_of_one_directory_have_it_in_common() {
    let f = Fixture::new();
    for name in ["a/b/1", "a/b/2", "a/c/3"] {
        f.write(name, "x");
    }
    let op = f.begin(Keep::Hosted, clock::now());
    f.capture(&op.entry, "a/b/1", Cause::Remove, DAY);
    f.capture(&op.entry, "a/b/2", Cause::Remove, DAY);
    assert_eq!(
        sealed(&f, &op.entry, Present::Compared)
            .entry
            .path
            .display(),
        "a/b"
    );
    f.capture(&op.entry, "a/c/3", Cause::Remove, DAY);
    let entry = sealed(&f, &op.entry, Present::Compared).entry;
    assert_eq!(
        (entry.path.display().as_ref(), entry.kind),
        ("a", Kind::File)
    );
    assert_eq!(
        roots(&entry),
        ["a/b/1 remove 1", "a/b/2 remove 1", "a/c/3 remove 1"]
    );
}

#[test]
fn what_the_operation_put_in_its_place_makes_a_removal_a_replacement() {
    let f = Fixture::new();
    f.write("notes", "old");
    let op = f.begin(Keep::Local, clock::now());
    f.capture(&op.entry, "notes", Cause::Remove, DAY * 7);
    f.write("notes", "newer");
    let entry = sealed(&f, &op.entry, Present::Compared).entry;
    assert_eq!(entry.causes, [Cause::Replace]);
    let meta = std::fs::metadata(f.path("notes")).unwrap();
    let left = entry.roots[0].left.unwrap();
    assert_eq!((left.ino, left.size_bytes), (meta.ino(), 5));
    assert_eq!(
        left.mtime_ns,
        i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec())
    );
    let later = sealed(&f, &op.entry, Present::Unknown).entry;
    assert_eq!(
        (later.roots[0].cause, later.roots[0].left),
        (Cause::Replace, None::<Left>)
    );
}

#[test]
fn captures_of_one_path_are_numbered_from_the_oldest() {
    let f = Fixture::new();
    let op = f.begin(Keep::Local, clock::now());
    for (slot, content) in [(3, "first"), (2, "second")] {
        f.write("notes", content);
        f.capture_slot(&op.entry, "notes", Cause::Replace, DAY * 7, slot);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let shape = sealed(&f, &op.entry, Present::Compared);
    let dir = f.ws.staging.entry(&op.entry).unwrap().unwrap();
    let summary = Summary::read(&dir).unwrap().unwrap();
    assert_eq!(roots(&shape.entry), ["notes replace 1", "notes replace 2"]);
    assert_eq!(summary.trees, ["replace-7d-3", "replace-7d-2"]);
}

#[test]
fn a_removed_directory_with_a_containers_mode_is_told_by_the_exceptions() {
    let f = Fixture::new();
    std::fs::create_dir(f.path("odd")).unwrap();
    std::fs::set_permissions(f.path("odd"), PermissionsExt::from_mode(0o1700)).unwrap();
    let op = f.begin(Keep::Hosted, clock::now());
    f.capture(&op.entry, "odd", Cause::Remove, DAY);
    let dir = f.ws.staging.entry(&op.entry).unwrap().unwrap();
    assert!(matches!(
        seal(&f.ws, &dir, None, Present::Compared).unwrap(),
        Sealed::Empty
    ));
    let tree = "remove-1d-1".parse().unwrap();
    let line = crate::staging::Exceptions::line(tree, std::path::Path::new("odd"), false);
    let cut = &line[..line.len() / 2];
    std::fs::write(
        f.staged(&op.entry).join("exceptions.jsonl"),
        format!("{line}{cut}"),
    )
    .unwrap();
    assert_eq!(
        roots(&sealed(&f, &op.entry, Present::Compared).entry),
        ["odd remove 1"]
    );
}

#[test]
fn names_of_any_bytes_survive_the_summary() {
    use std::os::unix::ffi::OsStrExt as _;
    let f = Fixture::new();
    let name = std::ffi::OsStr::from_bytes(b"b\xff\xfe\nd");
    std::fs::write(f.ws.path.join(name), "x").unwrap();
    let op = f.begin(Keep::Hosted, clock::now());
    let tree = f.staged(&op.entry).join("remove-1d-1");
    std::fs::create_dir(&tree).unwrap();
    f.ws.with_root(|root| {
        let to = std::fs::File::open(&tree).unwrap();
        crate::relocate::move_new(root, name, to.as_fd(), name).unwrap();
    });
    let shape = sealed(&f, &op.entry, Present::Compared);
    let dir = f.ws.staging.entry(&op.entry).unwrap().unwrap();
    let summary = Summary::read(&dir).unwrap().unwrap();
    assert_eq!(summary.roots[0].path.as_bytes(), b"b\xff\xfe\nd");
    f.ws.journal.batch(|rows| record(rows, &shape)).unwrap();
    assert_eq!(f.ws.journal.entry(&op.entry).unwrap(), Some(shape.entry));
}

#[test]
fn a_damaged_summary_counts_as_none() {
    let f = Fixture::new();
    let id = f.removed("a", "x", Keep::Hosted, clock::now());
    let dir = f.ws.staging.entry(&id).unwrap().unwrap();
    for text in ["", "{", "{\"format\":99}"] {
        std::fs::write(f.staged(&id).join(SUMMARY), text).unwrap();
        assert_eq!(Summary::read(&dir).unwrap(), None);
    }
}

#[test]
fn a_lost_record_costs_the_attribution_and_nothing_else() {
    let f = Fixture::new();
    f.write("a", "x");
    let op = f.begin(Keep::Local, clock::now());
    f.capture(&op.entry, "a", Cause::Remove, DAY);
    std::fs::write(f.staged(&op.entry).join("op.json"), "{\"form").unwrap();
    let one = sealed(&f, &op.entry, Present::Unknown).entry;
    assert_eq!(
        (one.agent.clone(), one.keep, one.path.display().as_ref()),
        (None, Keep::Hosted, "a")
    );
    let again = sealed(&f, &op.entry, Present::Unknown).entry;
    assert_eq!(one, again);
}

fn awkward(f: &Fixture) -> EntryId {
    f.write("d/file", &"content".repeat(100_000));
    f.write("d/empty", "");
    f.write("d/shut/in", "x");
    std::fs::hard_link(f.path("d/file"), f.path("d/link")).unwrap();
    std::os::unix::fs::symlink("nowhere\u{e9}", f.path("d/symlink")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        f.path("d/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let op = f.begin(Keep::Hosted, clock::now());
    f.capture(&op.entry, "d", Cause::Remove, DAY * 365);
    seal_now(&f.ws, &op.entry).unwrap().unwrap();
    op.entry
}

#[test]
fn a_manifest_names_everything_and_verifies() {
    let f = Fixture::new();
    let id = awkward(&f);
    let dir = f.ws.staging.entry(&id).unwrap().unwrap();
    assert!(
        !manifest::verify_entry(&dir, Depth::Content)
            .unwrap()
            .manifest
    );
    manifest::write(&dir, &mut || Ok(())).unwrap();
    let lines = manifest::read(&dir).unwrap().unwrap();
    assert_eq!(lines.len(), 8);
    let of = |path: &str| lines.iter().find(|l| l.path.display() == path).unwrap();
    assert_eq!(of("d/symlink").target, Some("nowhere\u{e9}".into()));
    assert_eq!(of("d/file").links, of("d/link").links);
    assert!(of("d/file").links.is_some() && of("d/empty").links.is_none());
    assert_eq!(
        of("d/empty").sha256.as_deref(),
        Some("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    );
    for depth in [Depth::Fingerprint, Depth::Content] {
        let verdict = manifest::verify_entry(&dir, depth).unwrap();
        assert_eq!(
            (verdict.intact, verdict.changed, verdict.absent),
            (8, vec![], vec![])
        );
    }
}

#[test]
fn changes_in_staging_are_noticed() {
    let f = Fixture::new();
    let id = awkward(&f);
    let dir = f.ws.staging.entry(&id).unwrap().unwrap();
    manifest::write(&dir, &mut || Ok(())).unwrap();
    let tree = f.staged(&id).join("remove-365d-1");
    std::fs::write(tree.join("d/shut/in"), "y").unwrap();
    std::fs::write(tree.join("d/extra"), "z").unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test damages its own scratch")]
    std::fs::remove_file(tree.join("d/symlink")).unwrap();
    let verdict = manifest::verify_entry(&dir, Depth::Fingerprint).unwrap();
    let named = |paths: &[Bytes]| {
        paths
            .iter()
            .map(|p| p.display().into_owned())
            .collect::<Vec<_>>()
    };
    // The directory that lost a name has another modification time.
    assert_eq!(named(&verdict.changed), ["d", "d/extra", "d/shut/in"]);
    assert_eq!(named(&verdict.absent), ["d/symlink"]);
}

#[test]
fn a_manifest_that_was_cut_off_or_altered_says_nothing() {
    let f = Fixture::new();
    let id = awkward(&f);
    let dir = f.ws.staging.entry(&id).unwrap().unwrap();
    manifest::write(&dir, &mut || Ok(())).unwrap();
    let file = f.staged(&id).join(MANIFEST);
    let whole = std::fs::read_to_string(&file).unwrap();
    for cut in (0..whole.len()).step_by(37) {
        std::fs::write(&file, &whole[..cut]).unwrap();
        assert_eq!(manifest::read(&dir).unwrap(), None, "{cut} bytes");
    }
    std::fs::write(&file, whole.replacen("d/empty", "d/emptz", 1)).unwrap();
    assert_eq!(manifest::read(&dir).unwrap(), None);
    std::fs::write(&file, whole).unwrap();
    assert!(manifest::read(&dir).unwrap().is_some());
}

#[test]
fn hashing_that_is_stopped_leaves_no_manifest() {
    let f = Fixture::new();
    let id = awkward(&f);
    let dir = f.ws.staging.entry(&id).unwrap().unwrap();
    let mut left = 4;
    let stopped = manifest::write(&dir, &mut || {
        left -= 1;
        if left == 0 {
            Err(io::ErrorKind::Interrupted.into())
        } else {
            Ok(())
        }
    });
    assert!(stopped.is_err());
    assert_eq!(manifest::read(&dir).unwrap(), None);
}
