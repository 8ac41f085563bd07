//! System calls that need more than one line each, and the homes of removal and renaming.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sched::CloneFlags;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitiesSecureBits;

use crate::Caller;

/// Longest name that the kernel allows.
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// Removes a name that is no directory.
#[expect(clippy::disallowed_methods, reason = "home of removal in this crate")]
pub(crate) fn unlink(dir: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    rustix::fs::unlinkat(dir, name, AtFlags::empty())
}

/// Removes an empty directory.
#[expect(clippy::disallowed_methods, reason = "home of removal in this crate")]
pub(crate) fn rmdir(dir: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// `renameat2(2)`.
#[expect(clippy::disallowed_methods, reason = "home of renaming in this crate")]
pub(crate) fn rename(
    from: (impl AsFd, &OsStr),
    to: (impl AsFd, &OsStr),
    flags: RenameFlags,
) -> Result<(), Errno> {
    if flags.is_empty() {
        return rustix::fs::renameat(from.0, from.1, to.0, to.1);
    }
    rustix::fs::renameat_with(from.0, from.1, to.0, to.1, flags)
}

/// Opens `name` only to name it: nothing is followed, nothing blocks.
pub(crate) fn open_path(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(
        dir,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Like [`open_path`], for what has to be a directory.
pub(crate) fn open_dir_path(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(
        dir,
        name,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// A path that leads to exactly the file that `fd` is open on, whatever its name is by now; for
/// calls that have no form for `O_PATH` descriptors.
pub(crate) fn magic_link(fd: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// Opens once more, with other flags, what `fd` is open on.
pub(crate) fn reopen(fd: &impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags.difference(OFlags::NOFOLLOW) | OFlags::CLOEXEC;
    rustix::fs::openat(rustix::fs::CWD, magic_link(fd), flags, Mode::empty())
}

/// The soft limit of open files.
pub(crate) fn max_open_files() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit
        .current
        .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// While it lives, what this thread creates belongs to the caller and obeys the caller's umask.
///
/// Only the identity for filesystem access is switched, and capabilities are kept: the kernel has
/// checked the caller's permissions already, with the supplementary groups that we don't know.
#[must_use]
pub(crate) struct Persona {
    identity: Option<(Uid, Gid)>,
    umask: Option<Mode>,
}

/// What a thread needs to be able to put on a [`Persona`].
struct ThreadTraits {
    /// The process's umask, if the thread has one of its own now.
    umask: Option<Mode>,
    /// The process's own identity; known only if it may take on others.
    identity: Option<(Uid, Gid)>,
}

thread_local! {
    static TRAITS: OnceCell<ThreadTraits> = const { OnceCell::new() };
}

impl ThreadTraits {
    fn establish() -> Self {
        let own_umask = nix::sched::unshare(CloneFlags::CLONE_FS).is_ok();
        let uid = nix::unistd::geteuid();
        let identity = uid.is_root().then(|| (uid, nix::unistd::getegid()));
        if identity.is_some() {
            keep_capabilities_across_identities();
        }
        Self {
            umask: own_umask.then(current_umask),
            identity,
        }
    }
}

/// Only for threads that have an umask of their own: there is no reading without setting.
fn current_umask() -> Mode {
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    umask
}

/// Without this, creation in a directory that only a supplementary group of the caller may write
/// to is refused; that is the lesser evil where the kernel doesn't let us.
fn keep_capabilities_across_identities() {
    let kept = rustix::thread::capabilities_secure_bits().and_then(|bits| {
        rustix::thread::set_capabilities_secure_bits(bits | CapabilitiesSecureBits::NO_SETUID_FIXUP)
    });
    if let Err(error) = kept {
        tracing::warn!(%error, "cannot keep capabilities while acting for other users");
    }
}

impl Persona {
    /// Puts on `caller` and `umask`. Gives, beside the guard, the part of `mode` to ask the
    /// kernel for.
    pub(crate) fn assume(caller: Caller, mode: u32, umask: u32) -> (Self, Mode) {
        let wanted = Mode::from_raw_mode(umask & 0o777);
        TRAITS.with(|cell| {
            let traits = cell.get_or_init(ThreadTraits::establish);
            let other = (Uid::from_raw(caller.uid), Gid::from_raw(caller.gid));
            let persona = Self {
                identity: traits.identity.filter(|own| *own != other),
                umask: traits.umask.filter(|own| *own != wanted),
            };
            if persona.umask.is_some() {
                rustix::process::umask(wanted);
            }
            if persona.identity.is_some() {
                setfsgid(other.1);
                setfsuid(other.0);
            }
            let masked = if traits.umask.is_some() { 0 } else { umask };
            (persona, Mode::from_raw_mode(mode & 0o7777 & !masked))
        })
    }
}

impl Drop for Persona {
    fn drop(&mut self) {
        if let Some((uid, gid)) = self.identity {
            setfsuid(uid);
            setfsgid(gid);
        }
        if let Some(umask) = self.umask {
            rustix::process::umask(umask);
        }
    }
}

/// Has the kernel serve the calling thread's reads and writes when nobody else wants the disk
/// (ioprio_set(2)).
///
/// # Errors
/// Those of ioprio_set(2).
#[expect(unsafe_code, reason = "no crate wraps ioprio_set(2)")]
pub fn idle_io_priority() -> std::io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3;
    const CLASS_SHIFT: libc::c_int = 13;
    // SAFETY: three integers; the kernel reads and writes no memory of ours.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ioprio_set,
            WHO_PROCESS,
            0,
            CLASS_IDLE << CLASS_SHIFT,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}
