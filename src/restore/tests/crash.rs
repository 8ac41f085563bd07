//! Stopping between any two changes, as a crash would, and recovering twice.

use super::bench::Bench;
use super::with_mode;
use crate::journal::State;
use crate::record::{Cause, Entry};
use crate::restore::recover::recover_stoppable;
use crate::restore::undo::undo_stoppable;
use crate::restore::{Mode, UndoSpec, interrupted, recover, restore_stoppable};

/// More changes than any of these restores makes.
const STOPS_MAX: usize = 60;

fn stop_at(n: usize) -> impl FnMut() -> bool {
    let mut left = n;
    move || {
        let stop = left == 0;
        left = left.saturating_sub(1);
        stop
    }
}

/// Runs `work` on a fresh bench, stopped at each point in turn, and recovers; `check` looks at
/// the end. With `twice`, the first recovery is stopped as well.
fn at_every_point(
    prepare: impl Fn(&Bench) -> Entry,
    work: impl Fn(&Bench, &Entry, &mut dyn FnMut() -> bool) -> bool,
    check: impl Fn(&Bench, &Entry),
) {
    for n in 0..STOPS_MAX {
        for second in [None, Some(0), Some(1), Some(2), Some(4)] {
            let bench = Bench::new();
            let entry = prepare(&bench);
            let contents = bench.contents();
            if work(&bench, &entry, &mut stop_at(n)) {
                check(&bench, &entry);
                return;
            }
            assert_eq!(bench.contents(), contents, "after stop {n}");
            if let Some(m) = second {
                let _ = recover_stoppable(&bench.ws, entry.id.as_str(), None, &mut stop_at(m));
                assert_eq!(bench.contents(), contents, "after stops {n} and {m}");
            }
            for _ in 0..2 {
                for id in interrupted(&bench.ws).unwrap() {
                    recover(&bench.ws, id.as_str(), None).unwrap();
                }
                if bench.entry(&entry.id).state == State::Sealed {
                    // The journal's reconciliation would end what the crash left empty.
                    let ended = recover(&bench.ws, entry.id.as_str(), None).unwrap();
                    assert!(!ended.interrupted, "stop {n}: {ended:?}");
                }
            }
            check(&bench, &entry);
            assert_eq!(bench.contents(), contents, "stop {n}");
        }
    }
    panic!("more than {STOPS_MAX} changes");
}

#[test]
fn a_restore_of_several_roots_is_finished_from_any_point() {
    at_every_point(
        |bench| {
            bench.write("a/x", "text x");
            bench.write("b", "text b");
            bench.write("c/d/e", "text e");
            let entry = bench.op().remove("a").remove("b").remove("c/d/e").seal();
            bench.removed("c");
            entry
        },
        |bench, entry, stop| {
            restore_stoppable(&bench.ws, &with_mode(entry, Mode::Refuse), stop).is_ok()
        },
        |bench, entry| {
            assert_eq!(bench.read("a/x"), "text x");
            assert_eq!(bench.read("b"), "text b");
            assert_eq!(bench.read("c/d/e"), "text e");
            assert!(bench.entry(&entry.id).state == State::Restored);
        },
    );
}

#[test]
fn a_swap_is_finished_from_any_point() {
    at_every_point(
        |bench| {
            bench.write("f", "text old");
            bench.write("d/g", "text old g");
            let entry = bench.op().remove("f").remove("d").seal();
            bench.write("f", "text new");
            bench.write("d/h", "text new h");
            entry
        },
        |bench, entry, stop| {
            restore_stoppable(&bench.ws, &with_mode(entry, Mode::Swap), stop).is_ok()
        },
        |bench, entry| {
            assert_eq!(bench.read("f"), "text old");
            assert_eq!(bench.read("d/g"), "text old g");
            assert_eq!(bench.entry(&entry.id).state, State::Restored);
            let swapped = bench
                .entries()
                .into_iter()
                .filter(|e| e.made_by.is_some())
                .count();
            assert_eq!(swapped, 2);
        },
    );
}

#[test]
fn an_undo_of_overwriting_is_finished_from_any_point() {
    at_every_point(
        |bench| {
            bench.write("f", "text 1");
            bench.write("g", "text g");
            bench.op().replace("f", "text 2").remove("g").seal()
        },
        |bench, _, stop| undo_stoppable(&bench.ws, &UndoSpec::default(), stop).is_ok(),
        |bench, entry| {
            assert_eq!(bench.read("f"), "text 1");
            assert_eq!(bench.read("g"), "text g");
            assert_eq!(bench.entry(&entry.id).state, State::Restored);
            let kept: Vec<_> = bench
                .entries()
                .into_iter()
                .filter(|e| e.made_by.is_some())
                .collect();
            assert_eq!(kept.len(), 1);
            assert_eq!(kept[0].causes, [Cause::Replace]);
        },
    );
}

#[test]
fn a_merge_is_finished_from_any_point() {
    at_every_point(
        |bench| {
            bench.write("p/a/x", "text x");
            bench.write("p/b", "text b");
            let entry = bench.removed("p");
            bench.write("p/a/y", "text y");
            entry
        },
        |bench, entry, stop| {
            restore_stoppable(&bench.ws, &with_mode(entry, Mode::Merge), stop).is_ok()
        },
        |bench, entry| {
            assert_eq!(bench.read("p/a/x"), "text x");
            assert_eq!(bench.read("p/a/y"), "text y");
            assert_eq!(bench.read("p/b"), "text b");
            assert_eq!(bench.entry(&entry.id).state, State::Restored);
        },
    );
}
