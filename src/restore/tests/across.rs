//! Back to a path that lies on another filesystem by now: by a verified copy.

use std::path::PathBuf;

use super::bench::Bench;
use super::{spec, with_mode};
use crate::journal::State;
use crate::restore::{Mode, recover, restore, restore_stoppable};

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let detached = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        assert!(detached.is_ok() || std::thread::panicking());
    }
}

fn mounted(bench: &Bench) -> Option<Mounted> {
    let target = bench.path("m");
    let flags = rustix::mount::MountFlags::empty();
    match rustix::mount::mount("tmpfs", &target, "tmpfs", flags, None::<&std::ffi::CStr>) {
        Ok(()) => Some(Mounted(target)),
        Err(_) => {
            eprintln!("not permitted to mount: nothing to see");
            None
        }
    }
}

#[test]
fn a_tree_goes_to_another_filesystem_by_copy_and_leaves_staging() {
    let bench = Bench::new();
    bench.write("m/d/f", "text f");
    std::os::unix::fs::symlink("f", bench.path("m/d/l")).unwrap();
    let before = bench.snapshot();
    let entry = bench.removed("m/d");
    let Some(_mounted) = mounted(&bench) else {
        return;
    };
    restore(&bench.ws, &spec(&entry)).unwrap();
    let now = bench.snapshot();
    for path in ["m/d", "m/d/f", "m/d/l"] {
        let path = std::path::Path::new(path);
        assert_eq!(now[path], before[path]);
    }
    assert_eq!(bench.entry(&entry.id).state, State::Restored);
    assert_eq!(bench.contents(), ["text f"]);
}

#[test]
fn an_interrupted_copy_to_another_filesystem_is_finished_once() {
    for n in 0..30 {
        let bench = Bench::new();
        bench.write("m/d/f", "text f");
        let entry = bench.removed("m/d");
        let Some(_mounted) = mounted(&bench) else {
            return;
        };
        let mut left = n;
        let mut stop = || {
            left -= 1;
            left < 0
        };
        let whole = restore_stoppable(&bench.ws, &spec(&entry), &mut stop).is_ok();
        for _ in 0..2 {
            if bench.entry(&entry.id).state == State::Sealed {
                recover(&bench.ws, entry.id.as_str(), None).unwrap();
            }
        }
        assert_eq!(bench.read("m/d/f"), "text f", "stop {n}");
        assert_eq!(bench.contents(), ["text f"], "stop {n}");
        assert_eq!(bench.entry(&entry.id).state, State::Restored, "stop {n}");
        if whole {
            return;
        }
    }
    panic!("more changes than expected");
}

#[test]
fn a_swap_across_filesystems_without_an_area_there_changes_nothing() {
    let bench = Bench::new();
    bench.write("m/f", "text old");
    let entry = bench.removed("m/f");
    let Some(_mounted) = mounted(&bench) else {
        return;
    };
    bench.write("m/f", "text new");
    let swapped = restore(&bench.ws, &with_mode(&entry, Mode::Swap));
    match swapped {
        Ok(_) => assert_eq!(bench.read("m/f"), "text old"),
        Err(failure) => {
            assert_eq!(failure.state, "nothing was changed", "{failure:?}");
            assert_eq!(bench.read("m/f"), "text new");
        }
    }
    assert_eq!(bench.contents(), ["text new", "text old"]);
}
