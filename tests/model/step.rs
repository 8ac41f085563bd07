//! What a sequence is made of.

use proptest::collection::vec;
use proptest::prelude::*;

/// One of a few paths, so that sequences meet.
pub(crate) const PATHS: [&str; 7] = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a"];

/// Index into [`PATHS`].
pub(crate) type Path = usize;

/// A change by system calls.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write(Path),
    Append(Path),
    Truncate(Path, u8),
    Make(Path),
    Rename(Path, Path),
    Exchange(Path, Path),
    Link(Path, Path),
    Symlink(Path),
    Remove(Path),
    RemoveTree(Path),
    Mode(Path, u16),
}

/// What comes after the steps of a batch.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    Nothing,
    Undo,
    UndoReplace,
    Restore(usize),
    Swap(usize),
    Remount,
    Crash,
}

/// Steps that are one operation, and what comes then.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) steps: Vec<Step>,
    pub(crate) then: Then,
}

fn path() -> impl Strategy<Value = Path> {
    0..PATHS.len()
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => path().prop_map(Step::Write),
        1 => path().prop_map(Step::Append),
        1 => (path(), any::<u8>()).prop_map(|(p, n)| Step::Truncate(p, n)),
        3 => path().prop_map(Step::Make),
        3 => (path(), path()).prop_map(|(p, q)| Step::Rename(p, q)),
        1 => (path(), path()).prop_map(|(p, q)| Step::Exchange(p, q)),
        1 => (path(), path()).prop_map(|(p, q)| Step::Link(p, q)),
        1 => path().prop_map(Step::Symlink),
        4 => path().prop_map(Step::Remove),
        2 => path().prop_map(Step::RemoveTree),
        1 => (path(), 0u16..0o1000).prop_map(|(p, m)| Step::Mode(p, m)),
    ]
}

fn removal() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => path().prop_map(Step::Remove),
        1 => path().prop_map(Step::RemoveTree),
    ]
}

fn then() -> impl Strategy<Value = Then> {
    prop_oneof![
        4 => Just(Then::Nothing),
        3 => Just(Then::Undo),
        1 => Just(Then::UndoReplace),
        2 => any::<usize>().prop_map(Then::Restore),
        1 => any::<usize>().prop_map(Then::Swap),
        1 => Just(Then::Remount),
        1 => Just(Then::Crash),
    ]
}

/// Mostly anything; at times removals alone, whose undo has one right outcome.
pub(crate) fn batch() -> impl Strategy<Value = Batch> {
    let any = (vec(step(), 1..8), then()).prop_map(|(steps, then)| Batch { steps, then });
    let removals = vec(removal(), 1..4).prop_map(|steps| Batch {
        steps,
        then: Then::Undo,
    });
    prop_oneof![3 => any, 1 => removals]
}
