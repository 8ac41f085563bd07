//! Who calls: from a thread id to the command that it belongs to, read from procfs once per
//! thread and remembered briefly.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags};
use trashfs_mount::Caller;

use super::recent::Recent;
use crate::policy::is_git;

/// How long an answer is taken for true: the kernel can't reuse a thread id within it.
const FRESH: Duration = Duration::from_secs(1);
const REMEMBERED_MAX: usize = 4096;

/// Identifies a command as it was typed: its process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    /// Process group; 0 for a caller that can't be seen.
    pub(super) pgid: u32,
    /// Session.
    pub(super) sid: u32,
    /// Tells callers apart that can't be seen; else 0.
    pub(super) unseen_uid: u32,
}

/// A calling process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) group: Group,
    /// Start of the group's leader in ticks since boot; none when it is gone already.
    pub(super) leader_start: Option<u64>,
    /// Process id; 0 for one that can't be seen.
    pub(super) pid: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) comm: Box<str>,
    /// It is git and was asked to remove something.
    pub(super) asked_to_remove: bool,
}

/// The callers seen lately.
pub(super) struct Processes {
    seen: Recent<u32, (Instant, Arc<Process>)>,
}

impl Processes {
    pub(super) fn new() -> Self {
        Self {
            seen: Recent::new(REMEMBERED_MAX),
        }
    }

    /// The process of `caller`, as far as it can be seen.
    pub(super) fn of(&self, caller: Caller) -> Arc<Process> {
        let now = Instant::now();
        if let Some((at, process)) = self.seen.get(&caller.tid)
            && now.duration_since(at) < FRESH
            && process.uid == caller.uid
        {
            return process;
        }
        let process = Arc::new(read(caller).unwrap_or_else(|| unseen(caller)));
        if caller.tid != 0 {
            self.seen.insert(caller.tid, (now, process.clone()));
        }
        process
    }
}

fn unseen(caller: Caller) -> Process {
    Process {
        group: Group {
            pgid: 0,
            sid: 0,
            unseen_uid: caller.uid,
        },
        leader_start: None,
        pid: 0,
        uid: caller.uid,
        gid: caller.gid,
        comm: "".into(),
        asked_to_remove: false,
    }
}

fn read(caller: Caller) -> Option<Process> {
    let pid = process_of_thread(caller.tid)?;
    let stat = Stat::read(pid)?;
    if stat.pgid == 0 {
        return None;
    }
    let leader_start = if stat.pgid == pid {
        Some(stat.start_ticks)
    } else {
        Stat::read(stat.pgid).map(|leader| leader.start_ticks)
    };
    Some(Process {
        group: Group {
            pgid: stat.pgid,
            sid: stat.sid,
            unseen_uid: 0,
        },
        leader_start,
        pid,
        uid: caller.uid,
        gid: caller.gid,
        asked_to_remove: is_git(&stat.comm) && git_was_asked_to_remove(pid),
        comm: stat.comm.into(),
    })
}

/// Subcommands of git by which a person removes; what others remove is housekeeping.
const REMOVING: [&[u8]; 4] = [b"clean", b"rm", b"worktree", b"submodule"];

fn git_was_asked_to_remove(pid: u32) -> bool {
    // A process that is gone already can be asked nothing: its removals are kept for longer.
    std::fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| {
        line.split(|b| *b == 0).any(|arg| REMOVING.contains(&arg))
    })
}

/// The name of process `pid` as it is now; none when it is gone.
pub(super) fn comm_of(pid: u32) -> Option<String> {
    let comm = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned())
}

/// The id of the process that thread `tid` belongs to.
pub(super) fn process_of_thread(tid: u32) -> Option<u32> {
    let pid = Pid::from_raw(i32::try_from(tid).ok()?)?;
    // Only a process's first thread has a pidfd; that spares reading the longer file.
    if rustix::process::pidfd_open(pid, PidfdFlags::empty()).is_ok() {
        return Some(tid);
    }
    let status = std::fs::read(format!("/proc/{tid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let line = status.lines().find_map(|l| l.strip_prefix("Tgid:"))?;
    line.trim().parse().ok().filter(|tgid| *tgid != 0)
}

/// What is wanted of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) comm: String,
    pub(super) ppid: u32,
    pub(super) pgid: u32,
    pub(super) sid: u32,
    pub(super) start_ticks: u64,
}

impl Stat {
    pub(super) fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name is in parentheses and may itself have any.
    fn parse(line: &[u8]) -> Option<Self> {
        let open = line.iter().position(|b| *b == b'(')?;
        let close = line.iter().rposition(|b| *b == b')')?;
        let comm = String::from_utf8_lossy(line.get(open + 1..close)?).into_owned();
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace().skip(1);
        let ppid = fields.next()?.parse().ok()?;
        let pgid = fields.next()?.parse().ok()?;
        let sid = fields.next()?.parse().ok()?;
        let start_ticks = fields.nth(15)?.parse().ok()?;
        Some(Self {
            comm,
            ppid,
            pgid,
            sid,
            start_ticks,
        })
    }
}

/// Whether nothing of the process group is left.
pub(super) fn is_gone(group: Group) -> bool {
    let Ok(pgid) = i32::try_from(group.pgid) else {
        return false;
    };
    pgid > 1
        && nix::sys::signal::killpg(nix::unistd::Pid::from_raw(pgid), None)
            == Err(nix::errno::Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let line = b"42 (a) b (c) S 7 40 39 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 987654 1 2 3\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(
            stat,
            Stat {
                comm: "a) b (c".into(),
                ppid: 7,
                pgid: 40,
                sid: 39,
                start_ticks: 987_654
            }
        );
        assert_eq!(Stat::parse(b"42 (a"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    #[test]
    fn another_thread_of_a_process_is_the_same_process() {
        let processes = Processes::new();
        let here = |tid: Pid| Caller {
            uid: 0,
            gid: 0,
            tid: tid.as_raw_nonzero().get().unsigned_abs(),
        };
        let main = std::process::id();
        let other = std::thread::spawn(move || {
            let caller = here(rustix::thread::gettid());
            processes.of(caller)
        })
        .join()
        .unwrap();
        assert_eq!(other.pid, main);
        assert!(other.group.pgid != 0 && !is_gone(other.group));
    }

    #[test]
    fn a_caller_that_cannot_be_seen_is_told_by_its_uid() {
        let caller = Caller {
            uid: 7,
            gid: 8,
            tid: 0,
        };
        let process = Processes::new().of(caller);
        assert_eq!((process.pid, process.group.unseen_uid), (0, 7));
        assert!(!is_gone(process.group));
    }
}
