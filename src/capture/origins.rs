//! Where files came from lately: who made them, and what they were called before.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use trashfs_mount::NodeId;

use super::links::FileId;
use super::process::{Group, Process, comm_of};
use super::recent::Recent;

/// What a process makes and removes within this time is scratch.
pub(super) const SCRATCH_MAX: Duration = Duration::from_secs(10);
const BIRTHS_MAX: usize = 1 << 15;
const FORMER_MAX: usize = 1024;
const OVERWROTE_MAX: usize = 1 << 13;
/// How long an editor may take between moving the original away and removing it.
const FORMER_FRESH: Duration = Duration::from_secs(60);

/// Makers of new files and former names of moved ones.
pub(super) struct Origins {
    births: Recent<FileId, (Instant, Arc<Process>)>,
    former: Recent<FileId, (Instant, Group, Arc<Path>)>,
    overwrote: Recent<NodeId, Group>,
}

impl Origins {
    pub(super) fn new() -> Self {
        Self {
            births: Recent::new(BIRTHS_MAX),
            former: Recent::new(FORMER_MAX),
            overwrote: Recent::new(OVERWROTE_MAX),
        }
    }

    /// `maker` has just made `file`.
    pub(super) fn born(&self, file: FileId, maker: Arc<Process>) {
        if maker.pid != 0 {
            self.births.insert(file, (Instant::now(), maker));
        }
    }

    /// Whether `process` made `file` within [`SCRATCH_MAX`]. A process that has become another
    /// program since (execve(2)) is not the same.
    pub(super) fn is_scratch(&self, file: FileId, process: &Process) -> bool {
        let Some((at, maker)) = self.births.get(&file) else {
            return false;
        };
        at.elapsed() <= SCRATCH_MAX
            && maker.pid == process.pid
            && comm_of(process.pid).is_none_or(|now| now == *maker.comm)
    }

    /// A command of `group` has put `node` in the place of what it captured, or has captured
    /// what was in it.
    pub(super) fn overwritten_by(&self, node: NodeId, group: Group) {
        self.overwrote.insert(node, group);
    }

    /// Whose command wrote to `node` last by overwriting, lately.
    pub(super) fn overwrote(&self, node: NodeId) -> Option<Group> {
        self.overwrote.get(&node)
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

    fn process(pid: u32, comm: &str) -> Arc<Process> {
        Arc::new(Process {
            group: Group {
                pgid: pid,
                sid: 1,
                unseen_uid: 0,
            },
            leader_start: None,
            pid,
            uid: 0,
            gid: 0,
            comm: comm.into(),
            asked_to_remove: false,
        })
    }

    #[test]
    fn what_a_process_made_is_scratch_until_it_becomes_another_program() {
        let origins = Origins::new();
        let pid = std::process::id();
        let here = process(pid, &comm_of(pid).unwrap());
        origins.born((1, 2), here.clone());
        assert!(origins.is_scratch((1, 2), &here));
        assert!(!origins.is_scratch((1, 3), &here));
        assert!(!origins.is_scratch((1, 2), &process(1, &here.comm)));
        origins.born((1, 4), process(here.pid, "bash"));
        assert!(!origins.is_scratch((1, 4), &here));
    }
}
