//! Mounting and unmounting: by mount(2) as root, through fusermount3 as an ordinary user. The
//! mount is known by its number, so that another one at the same path is never unmounted.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::mountinfo::{FS_TYPE, mount_id_at, mounts};

/// The kernel's door.
const FUSE_DEVICE: &str = "/dev/fuse";
const FUSERMOUNT: &str = "fusermount3";

/// How a workspace is mounted.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Let other users in (permissions still apply).
    pub allow_other: bool,
    /// What df(1) shows as the device.
    pub source_name: OsString,
}

/// Why a mount could not be made or unmade.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no `/dev/fuse`.
    #[error(
        "there is no {FUSE_DEVICE}: the kernel has no FUSE, or this container was not given it"
    )]
    NoFuse,
    /// `/dev/fuse` can't be opened.
    #[error("{FUSE_DEVICE} can't be opened: {0}")]
    FuseDenied(io::Error),
    /// fusermount3 is not installed.
    #[error("fusermount3 is not installed; an ordinary user mounts through it")]
    NoFusermount,
    /// fusermount3 said no.
    #[error("{0}")]
    Fusermount(String),
    /// mount(2) said no.
    #[error("mount: {0}")]
    Mount(io::Error),
    /// Somebody uses it: an open file or a working directory.
    #[error("the mount is busy")]
    Busy,
    /// It is not there any more, or another one covers it.
    #[error("the mount at this path is not the one that was meant")]
    AnotherMount,
    /// Another error.
    #[error("{what}: {error}")]
    Io {
        /// While doing what.
        what: &'static str,
        /// The system's answer.
        error: io::Error,
    },
}

fn while_doing<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> SessionError {
    move |error| SessionError::Io {
        what,
        error: error.into(),
    }
}

/// A mount that nobody serves yet. Dropped without [`Pending::keep`] it is unmounted again.
#[must_use]
#[derive(Debug)]
pub struct Pending {
    mount: Option<Mount>,
}

impl Pending {
    /// Which.
    pub fn mount(&self) -> &Mount {
        self.mount.as_ref().expect("only taken by `keep`")
    }

    /// It is served from now on.
    pub fn keep(mut self) -> Mount {
        self.mount.take().expect("only taken here")
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take()
            && let Err(error) = mount.unmount(true)
        {
            tracing::warn!(%error, path = %mount.path.display(), "a mount was left behind");
        }
    }
}

/// A mount that was made by this process, or that is known by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where; canonical.
    pub path: PathBuf,
    /// Its number (`mnt_id`).
    pub id: u64,
}

impl Mount {
    /// Whether it is in the tree still, be it below another one.
    ///
    /// # Errors
    /// Those of reading `/proc/self/mountinfo`.
    pub fn exists(&self) -> io::Result<bool> {
        Ok(mounts()?.iter().any(|m| m.id == self.id))
    }

    /// Unmounts it, and nothing else that may lie at its path by now. `lazily` takes it out of
    /// the tree also while it is in use.
    ///
    /// # Errors
    /// [`SessionError::Busy`], [`SessionError::AnotherMount`], or the system's.
    pub fn unmount(&self, lazily: bool) -> Result<(), SessionError> {
        let id = mount_id_at(&self.path).map_err(while_doing("looking at the mount point"))?;
        if id != self.id {
            return Err(SessionError::AnotherMount);
        }
        if rustix::process::geteuid().is_root() {
            unmount_as_root(&self.path, lazily)
        } else {
            unmount_as_user(&self.path, lazily)
        }
    }
}

/// Mounts over the directory `path`, which must be canonical; `target` is that directory, open.
/// The returned descriptor is the kernel's end, to be served before anybody can use the mount.
///
/// # Errors
/// See [`SessionError`].
pub fn mount(
    target: BorrowedFd<'_>,
    path: &Path,
    options: &MountOptions,
) -> Result<(OwnedFd, Pending), SessionError> {
    let device = if rustix::process::geteuid().is_root() {
        mount_as_root(target, options)?
    } else {
        mount_as_user(path, options)?
    };
    let id = mount_id_at(path).map_err(while_doing("looking at the new mount"))?;
    let path = path.to_owned();
    let mount = Some(Mount { path, id });
    Ok((device, Pending { mount }))
}

fn open_device() -> Result<OwnedFd, SessionError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, FUSE_DEVICE, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => SessionError::NoFuse,
        error => SessionError::FuseDenied(error.into()),
    })
}

fn mount_as_root(target: BorrowedFd<'_>, options: &MountOptions) -> Result<OwnedFd, SessionError> {
    let device = open_device()?;
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions{}",
        device.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
        if options.allow_other {
            ",allow_other"
        } else {
            ""
        },
    );
    let data = CString::new(data).expect("made of digits and letters");
    rustix::mount::mount(
        sanitised(&options.source_name),
        format!("/proc/self/fd/{}", target.as_raw_fd()),
        FS_TYPE,
        flags_of(target)?,
        data.as_c_str(),
    )
    .map_err(|e| SessionError::Mount(e.into()))?;
    Ok(device)
}

/// The mount is as strict as the one below it, and no stricter.
fn flags_of(target: BorrowedFd<'_>) -> Result<MountFlags, SessionError> {
    let below = rustix::fs::fstatvfs(target)
        .map_err(while_doing("asking the filesystem"))?
        .f_flag;
    let pairs = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ];
    let set = pairs.into_iter().filter(|(have, _)| below.contains(*have));
    Ok(set.fold(MountFlags::empty(), |all, (_, flag)| all | flag))
}

/// A name that can't be taken for options, and that no table trips on.
fn sanitised(name: &OsStr) -> OsString {
    let plain = |b: &u8| match b {
        b',' | b'\\' | b'\n' | 0 => b'_',
        b => *b,
    };
    let bytes: Vec<u8> = name.as_bytes().iter().map(plain).collect();
    match bytes.is_empty() {
        true => OsString::from("trashfs"),
        false => OsString::from_vec(bytes),
    }
}

/// fusermount3 opens the device and mounts, and sends the descriptor over its standard input.
fn mount_as_user(path: &Path, options: &MountOptions) -> Result<OwnedFd, SessionError> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(while_doing("making a socket pair"))?;
    let mut list = OsString::from("nosuid,nodev,default_permissions,subtype=trashfs,fsname=");
    list.push(sanitised(&options.source_name));
    if options.allow_other {
        list.push(",allow_other");
    }
    let mut command = Command::new(FUSERMOUNT);
    command
        .arg("-o")
        .arg(list)
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(theirs);
    run_fusermount(command)?;
    receive_device(ours.as_fd())
}

fn run_fusermount(mut command: Command) -> Result<(), SessionError> {
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .env("LC_ALL", "C")
        .spawn();
    // The command holds our copy of its standard input.
    drop(command);
    let done = match child {
        Ok(child) => child
            .wait_with_output()
            .map_err(while_doing("waiting for fusermount3"))?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(SessionError::NoFusermount),
        Err(e) => return Err(while_doing("running fusermount3")(e)),
    };
    if done.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&done.stderr);
    let text = text.trim();
    if text.contains("busy") {
        return Err(SessionError::Busy);
    }
    Err(SessionError::Fusermount(if text.is_empty() {
        format!("fusermount3 ended with {}", done.status)
    } else {
        text.to_owned()
    }))
}

fn receive_device(socket: BorrowedFd<'_>) -> Result<OwnedFd, SessionError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    rustix::net::recvmsg(
        socket,
        &mut [io::IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )
    .map_err(while_doing("taking the descriptor from fusermount3"))?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok(fd);
        }
    }
    Err(SessionError::Fusermount(
        "fusermount3 ended without giving a descriptor".into(),
    ))
}

fn unmount_as_root(path: &Path, lazily: bool) -> Result<(), SessionError> {
    let mut flags = UnmountFlags::NOFOLLOW;
    if lazily {
        flags |= UnmountFlags::DETACH;
    }
    rustix::mount::unmount(path, flags).map_err(|error| match error {
        Errno::BUSY => SessionError::Busy,
        Errno::INVAL | Errno::NOENT => SessionError::AnotherMount,
        error => while_doing("unmounting")(error),
    })
}

fn unmount_as_user(path: &Path, lazily: bool) -> Result<(), SessionError> {
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-u");
    if lazily {
        command.arg("-z");
    }
    command.arg("--").arg(path).stdin(Stdio::null());
    run_fusermount(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_name_injects_no_options() {
        let plain = sanitised(OsStr::new("/a,allow_other\\,b"));
        assert_eq!(plain, OsStr::new("/a_allow_other__b"));
        assert_eq!(sanitised(OsStr::new("")), OsStr::new("trashfs"));
    }

    #[test]
    fn another_mount_at_the_path_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mount = Mount {
            path: dir.path().to_owned(),
            id: u64::MAX,
        };
        assert!(matches!(
            mount.unmount(true),
            Err(SessionError::AnotherMount)
        ));
    }

    #[test]
    fn an_unserved_mount_is_unmounted_when_dropped() {
        if !rustix::process::geteuid().is_root() || open_device().is_err() {
            eprintln!("skipped: needs root and {FUSE_DEVICE}");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let target = std::fs::File::open(&path).unwrap();
        let options = MountOptions {
            allow_other: true,
            source_name: "a,b c".into(),
        };
        let (device, pending) = mount(target.as_fd(), &path, &options).unwrap();
        drop(target);
        let here = || {
            let mounts = mounts().unwrap();
            crate::mountinfo::topmost_at(&mounts, &path).cloned()
        };
        let entry = here().unwrap();
        assert!(entry.is_trashfs());
        assert_eq!(entry.source, OsStr::new("a_b c"));
        drop(device);
        assert_eq!(
            crate::mountinfo::health(&path, std::time::Duration::from_secs(5)),
            crate::mountinfo::Health::Stale
        );
        drop(pending);
        assert!(here().is_none());
    }
}
