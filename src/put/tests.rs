use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;
use crate::journal::State;
use crate::record::Cause;
use crate::restore::tests::bench::Bench;
use crate::restore::{RestoreSpec, UndoSpec, restore, undo};

fn spec(paths: &[&str]) -> PutSpec {
    PutSpec {
        paths: paths.iter().map(|p| Bytes::from(*p)).collect(),
        ..PutSpec::by_caller(None, false)
    }
}

#[test]
fn a_path_is_put_away_by_one_rename_and_comes_back() {
    let bench = Bench::new();
    bench.write("a/b/f", "text f");
    bench.write("g", "text g");
    std::fs::set_permissions(bench.path("a/b"), PermissionsExt::from_mode(0o1700)).unwrap();
    let ino = bench.path("a/b/f").metadata().unwrap().ino();
    let before = bench.snapshot();
    let put = put_inside(&bench.ws, &spec(&["a/b", "g"])).unwrap();
    assert!(!bench.exists("a/b") && !bench.exists("g") && bench.exists("a"));
    let entry = bench.entry(put.put[0].entry.as_ref().unwrap());
    assert_eq!(
        (entry.state, entry.causes.as_slice()),
        (State::Sealed, [Cause::Remove].as_slice())
    );
    assert_eq!((entry.roots_total, entry.members), (2, 3));
    assert!(entry.command.is_some() && entry.made_by.as_deref() == Some("put"));
    undo(&bench.ws, &UndoSpec::default()).unwrap();
    assert_eq!(bench.path("a/b/f").metadata().unwrap().ino(), ino);
    for path in ["a/b", "a/b/f", "g"] {
        assert_eq!(bench.snapshot()[Path::new(path)], before[Path::new(path)]);
    }
}

#[test]
fn what_must_not_go_is_refused_before_anything_does() {
    let bench = Bench::new();
    bench.write("f", "text f");
    for (path, code) in [
        ("", "workspace"),
        (".trashfs/ops", "staging"),
        ("../x", "outside"),
        ("missing", "no-such-file"),
    ] {
        let failure = put_inside(&bench.ws, &spec(&["f", path])).unwrap_err();
        assert_eq!(failure.code, code, "{path}");
        assert!(bench.exists("f"));
    }
    let days = PutSpec {
        retention_days: Some(366),
        ..spec(&["f"])
    };
    assert_eq!(put_inside(&bench.ws, &days).unwrap_err().code, "retention");
}

#[test]
fn a_mount_point_is_refused_also_inside_of_what_is_named() {
    let bench = Bench::new();
    bench.write("d/m/x", "text x");
    let target = bench.path("d/m");
    let flags = rustix::mount::MountFlags::empty();
    if rustix::mount::mount("tmpfs", &target, "tmpfs", flags, None::<&std::ffi::CStr>).is_err() {
        eprintln!("not permitted to mount: nothing to see");
        return;
    }
    let at_it = put_inside(&bench.ws, &spec(&["d/m"])).unwrap_err();
    let around_it = put_inside(&bench.ws, &spec(&["d"])).unwrap_err();
    rustix::mount::unmount(&target, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_eq!(
        (at_it.code.as_str(), around_it.code.as_str()),
        ("mount-point", "mount-point")
    );
    assert!(bench.exists("d/m/x"));
}

#[test]
fn permanent_deletes_and_keeps_nothing() {
    let bench = Bench::new();
    bench.write("d/f", "text f");
    let permanent = PutSpec {
        permanent: true,
        ..spec(&["d"])
    };
    let put = put_inside(&bench.ws, &permanent).unwrap();
    assert_eq!(put.put[0].entry, None);
    assert!(!bench.exists("d"));
    assert!(bench.entries().is_empty() && bench.contents().is_empty());
}

#[test]
fn retention_is_that_which_was_asked_for() {
    let bench = Bench::new();
    bench.write("f", "text f");
    let put = put_inside(
        &bench.ws,
        &PutSpec {
            retention_days: Some(3),
            ..spec(&["f"])
        },
    )
    .unwrap();
    let entry = bench.entry(put.put[0].entry.as_ref().unwrap());
    assert_eq!(
        entry.retain_until.since(entry.removed_at).as_secs(),
        3 * 86_400
    );
    restore(
        &bench.ws,
        &RestoreSpec {
            entry: entry.id.to_string(),
            ..RestoreSpec::default()
        },
    )
    .unwrap();
    assert_eq!(bench.read("f"), "text f");
}

#[test]
fn typed_paths_are_resolved_and_the_odd_ones_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let cwd = scratch.path().canonicalize().unwrap();
    std::fs::create_dir(cwd.join("d")).unwrap();
    std::fs::write(cwd.join("d/f"), "").unwrap();
    symlink("d", cwd.join("link")).unwrap();
    let resolve = |typed: &str| resolve::resolve(&cwd, Path::new(typed), &[]);
    assert_eq!(resolve("link/f").unwrap(), cwd.join("d/f"));
    assert_eq!(resolve("link").unwrap(), cwd.join("link"));
    assert_eq!(resolve("d/").unwrap(), cwd.join("d"));
    for (typed, code) in [
        ("/", "root"),
        ("//", "root"),
        (".", "dot"),
        ("d/..", "dot"),
        ("d/.", "dot"),
        ("link/", "trailing-slash"),
        ("d/f/", "io"),
        ("missing", "no-such-file"),
    ] {
        assert_eq!(resolve(typed).unwrap_err().code, code, "{typed}");
    }
    assert_eq!(
        outermost(vec!["/a/b".into(), "/a".into(), "/a".into(), "/ab".into()]),
        [PathBuf::from("/a"), "/ab".into()]
    );
}
