//! Taking a mount away, whether its daemon lives, is stuck or is dead.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
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
/// Users of a busy mount that a message names.
const USERS_NAMED: usize = 5;

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
    unmount_at(&path, lazily).map_err(|failure| match failure.code.as_str() {
        "busy" => with_users(failure, &path),
        _ => failure,
    })
}

/// Names processes that use the mount, as far as they can be seen.
fn with_users(failure: Failure, path: &Path) -> Failure {
    let users = users_of(path);
    if users.is_empty() {
        return failure;
    }
    failure.state(format!("it stays mounted; used by {}", users.join(", ")))
}

fn users_of(path: &Path) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = processes.filter_map(|p| p.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    numbers
        .filter(|pid| uses(*pid, path))
        .map(|pid| (name(pid).trim_end().to_owned(), pid))
        // The daemon holds what lies below, and this command was typed inside perhaps: neither
        // is in the way.
        .filter(|(name, _)| name != "trash")
        .take(USERS_NAMED)
        .map(|(name, pid)| format!("{name} ({pid})"))
        .collect()
}

/// Whether a process works in the mount or has a file of it open. Only links are read: their
/// targets are not asked.
fn uses(pid: u32, path: &Path) -> bool {
    let below = |link: PathBuf| std::fs::read_link(link).is_ok_and(|to| to.starts_with(path));
    let process = PathBuf::from(format!("/proc/{pid}"));
    if below(process.join("cwd")) || below(process.join("root")) || below(process.join("exe")) {
        return true;
    }
    let Ok(open) = std::fs::read_dir(process.join("fd")) else {
        return false;
    };
    open.filter_map(Result::ok).any(|fd| below(fd.path()))
}

fn unmount_at(path: &Path, lazily: bool) -> Result<Unmounted, Failure> {
    let path = path.to_owned();
    // The register may lie under the very mount whose daemon is dead.
    let known = station::all().unwrap_or_else(|failure| {
        tracing::debug!("{}", failure.what);
        Vec::new()
    });
    let located = known
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
    let me = rustix::process::geteuid();
    if !me.is_root() && there.user_id().is_some_and(|owner| owner != me.as_raw()) {
        let what = format!("{} was mounted by another user", path.display());
        return Err(Failure::refused("not-yours", what)
            .state("it stays mounted")
            .next(format!(
                "as that user or as root: trash unmount {}",
                path.display()
            )));
    }
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
