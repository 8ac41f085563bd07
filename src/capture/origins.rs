//! Where files came from lately: who made them, and what they were called before.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::links::FileId;
use super::process::{Group, process_of_thread};
use super::recent::Recent;

/// What a process makes and removes within this time is scratch.
pub(super) const SCRATCH_MAX: Duration = Duration::from_secs(10);
const BIRTHS_MAX: usize = 1 << 15;
const FORMER_MAX: usize = 1024;
/// How long an editor may take between moving the original away and removing it.
const FORMER_FRESH: Duration = Duration::from_secs(60);

/// Makers of new files and former names of moved ones.
pub(super) struct Origins {
    births: Recent<FileId, (Instant, u32)>,
    former: Recent<FileId, (Instant, Group, Arc<Path>)>,
}

impl Origins {
    pub(super) fn new() -> Self {
        Self {
            births: Recent::new(BIRTHS_MAX),
            former: Recent::new(FORMER_MAX),
        }
    }

    /// Thread `tid` has just made `file`.
    pub(super) fn born(&self, file: FileId, tid: u32) {
        if tid != 0 {
            self.births.insert(file, (Instant::now(), tid));
        }
    }

    /// Whether the process of thread `tid` (process `pid`) made `file` within [`SCRATCH_MAX`].
    pub(super) fn is_scratch(&self, file: FileId, tid: u32, pid: u32) -> bool {
        let Some((at, maker)) = self.births.get(&file) else {
            return false;
        };
        if at.elapsed() > SCRATCH_MAX {
            return false;
        }
        maker == tid || (pid != 0 && process_of_thread(maker) == Some(pid))
    }

    /// `file` was moved away from `path` by a command.
    pub(super) fn moved(&self, file: FileId, group: Group, path: PathBuf) {
        self.former
            .insert(file, (Instant::now(), group, path.into()));
    }

    /// What the same command called `file` before, lately.
    pub(super) fn former_name(&self, file: FileId, group: Group) -> Option<Arc<Path>> {
        let (at, mover, path) = self.former.get(&file)?;
        (mover == group && at.elapsed() < FORMER_FRESH).then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_thread_of_the_process_made_is_its_own_too() {
        let origins = Origins::new();
        let tid = |t: rustix::process::Pid| t.as_raw_nonzero().get().unsigned_abs();
        let maker = tid(rustix::thread::gettid());
        origins.born((1, 2), maker);
        let pid = std::process::id();
        assert!(origins.is_scratch((1, 2), maker, pid));
        assert!(origins.is_scratch((1, 2), maker + 100_000, pid));
        assert!(!origins.is_scratch((1, 2), 1, 1));
        assert!(!origins.is_scratch((1, 3), maker, pid));
    }
}
