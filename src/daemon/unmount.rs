//! Taking a mount away, whether its daemon lives, is stuck or is dead.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};
use serde::Serialize;
use trashfs_mount::mountinfo::{self, Health};
use trashfs_mount::session::Mount;

use crate::control::{self, Request};
use crate::daemon::serving::unmount_failure;
use crate::failure::Failure;
use crate::record::Bytes;
use crate::station::{self, Located, Presence, normalised};

/// A daemon writes its last records within this time.
const DAEMON_PATIENCE: Duration = Duration::from_secs(30);
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);

/// What was unmounted.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unmounted {
    /// Where.
    pub path: Bytes,
    /// Its daemon was dead already.
    pub was_stale: bool,
}

/// Unmounts the workspace at `dir` and returns once its daemon has ended.
///
/// # Errors
/// `not-mounted`, `busy` unless `lazily`, and what the system gives.
pub fn unmount(dir: &Path, lazily: bool) -> Result<Unmounted, Failure> {
    let path = normalised(dir);
    let located = station::all()?
        .into_iter()
        .find(|l| l.path() == path && l.presence == Presence::Live);
    if let Some(located) = located
        && let Ok(pong) = control::ping(&located.registered.id, ANSWER_PATIENCE)
    {
        return by_daemon(&located, pong.pid, lazily);
    }
    let mounts =
        mountinfo::mounts().map_err(|e| Failure::io("reading /proc/self/mountinfo", &e))?;
    let Some(there) = mountinfo::topmost_at(&mounts, &path).filter(|m| m.is_trashfs()) else {
        return Err(
            Failure::failed("not-mounted", format!("{} is not mounted", path.display()))
                .state("nothing was changed")
                .next("trash status"),
        );
    };
    let stale = mountinfo::health(&path, ANSWER_PATIENCE) == Health::Stale;
    let mount = Mount {
        path: path.clone(),
        id: there.id,
    };
    unmount_failure(&mount, mount.unmount(lazily || stale))?;
    Ok(Unmounted {
        path: path.into(),
        was_stale: stale,
    })
}

fn by_daemon(located: &Located, pid: u32, lazily: bool) -> Result<Unmounted, Failure> {
    let process = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    control::call(located, Request::Unmount { lazily }, Vec::new())?;
    if let Some(process) = process
        && !ended_within(process.as_fd(), DAEMON_PATIENCE)
    {
        let what = format!("the daemon {pid} is still at work");
        return Err(Failure::failed("still-running", what)
            .state("the workspace is unmounted")
            .next("trash doctor"));
    }
    Ok(Unmounted {
        path: located.path().into(),
        was_stale: false,
    })
}

fn ended_within(process: std::os::fd::BorrowedFd<'_>, patience: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: 0,
    };
    let mut fds = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
    matches!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(1..))
}
