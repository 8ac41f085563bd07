//! Which trees of an entry captures of the same path have taken.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::record::{Cause, Keep};

/// Paths remembered; when there are more, all are forgotten and found anew by trying.
const PATHS_MAX: usize = 1 << 16;

/// Trees that differ in their slot only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Series {
    pub(super) keep: Keep,
    pub(super) cause: Cause,
    pub(super) retain: Duration,
}

/// For each path that was met more than once, the lowest slot that may still be free.
#[derive(Default)]
pub(super) struct Slots {
    any: AtomicBool,
    next: Mutex<HashMap<Series, HashMap<PathBuf, u32>>>,
}

impl Slots {
    /// Where to begin for `name` in `dir`.
    pub(super) fn first(&self, series: &Series, dir: &Path, name: &OsStr) -> u32 {
        if !self.any.load(Ordering::Acquire) {
            return 1;
        }
        let next = self.next.lock();
        let Some(known) = next.get(series) else {
            return 1;
        };
        dir.join(name)
            .ancestors()
            .filter_map(|path| known.get(path))
            .max()
            .copied()
            .unwrap_or(1)
    }

    /// Below `slot` nothing is free for `path` and what lies below it.
    pub(super) fn taken_below(&self, series: &Series, path: PathBuf, slot: u32) {
        let mut next = self.next.lock();
        let known = next.entry(*series).or_default();
        if known.len() >= PATHS_MAX {
            known.clear();
        }
        known.insert(path, slot);
        self.any.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_of_a_directory_holds_of_what_is_in_it() {
        let slots = Slots::default();
        let series = Series {
            keep: Keep::Local,
            cause: Cause::Remove,
            retain: Duration::ZERO,
        };
        let first = |dir: &str, name: &str| slots.first(&series, Path::new(dir), OsStr::new(name));
        assert_eq!(first("a", "x"), 1);
        slots.taken_below(&series, "a".into(), 3);
        slots.taken_below(&series, "a/y".into(), 5);
        assert_eq!((first("a", "x"), first("a/b", "x")), (3, 3));
        assert_eq!(
            (first("a", "y"), first("", "a"), first("", "ab")),
            (5, 3, 1)
        );
        let other = Series {
            keep: Keep::Hosted,
            ..series
        };
        assert_eq!(slots.first(&other, Path::new("a"), OsStr::new("x")), 1);
    }
}
