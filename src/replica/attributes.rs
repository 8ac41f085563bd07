//! Owner, mode, times, extended attributes and ACLs.

use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use trashfs_mount::{Attr, Timestamp};

use super::Spot;
use crate::loosen::Loosened;

/// Bytes of one extended attribute or of the list of names; the kernel's own bound.
const XATTR_BYTES_MAX: usize = 1 << 16;

/// Sets the owner unless it is right already.
///
/// # Errors
/// Those of chown(2).
pub fn set_owner(at: Spot<'_>, uid: u32, gid: u32) -> Result<(), Errno> {
    let now = Attr::at(at.dir, at.name)?;
    if (now.uid, now.gid) == (uid, gid) {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::fs::chownat(
        at.dir,
        at.name,
        Some(uid),
        Some(gid),
        AtFlags::SYMLINK_NOFOLLOW,
    )
}

/// Sets permission bits of anything but a symbolic link.
///
/// # Errors
/// Those of chmod(2).
pub fn set_mode(at: Spot<'_>, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmodat(
        at.dir,
        at.name,
        Mode::from_raw_mode(mode & 0o7777),
        AtFlags::empty(),
    )
}

/// Sets both times, of the link itself where it is one.
///
/// # Errors
/// Those of utimensat(2).
pub fn set_times(at: Spot<'_>, atime: Timestamp, mtime: Timestamp) -> Result<(), Errno> {
    let spec = |t: Timestamp| Timespec {
        tv_sec: t.secs,
        tv_nsec: i64::from(t.nanos),
    };
    let times = Timestamps {
        last_access: spec(atime),
        last_modification: spec(mtime),
    };
    rustix::fs::utimensat(at.dir, at.name, &times, AtFlags::SYMLINK_NOFOLLOW)
}

/// A path to a name in an open directory for calls that take no descriptor.
fn proc_path(at: Spot<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", at.dir.as_raw_fd())).join(at.name)
}

/// Copies extended attributes, ACLs among them, and clears ACLs that the copy inherited.
/// Gives those that could not be set.
pub fn copy_xattrs(from: Spot<'_>, to: Spot<'_>) -> Vec<(String, Errno)> {
    let mut failed = Vec::new();
    let names = xattr_names(from).unwrap_or_else(|e| {
        if e != Errno::OPNOTSUPP {
            failed.push(("list".to_owned(), e));
        }
        Vec::new()
    });
    for inherited in ["system.posix_acl_access", "system.posix_acl_default"] {
        if !names.iter().any(|n| n == inherited.as_bytes()) {
            match rustix::fs::lremovexattr(proc_path(to), inherited) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => {}
                Err(e) => failed.push((inherited.to_owned(), e)),
            }
        }
    }
    // What stays closed fails below, and is told there.
    let _loosened = (!names.is_empty()).then(|| {
        let to = Loosened::to_write(to.dir, to.name);
        (Loosened::to_read(from.dir, from.name), to)
    });
    let mut value = vec![0; XATTR_BYTES_MAX];
    for name in names {
        let copied =
            rustix::fs::lgetxattr(proc_path(from), &name[..], &mut value[..]).and_then(|n| {
                rustix::fs::lsetxattr(proc_path(to), &name[..], &value[..n], XattrFlags::empty())
            });
        if let Err(e) = copied {
            failed.push((String::from_utf8_lossy(&name).into_owned(), e));
        }
    }
    failed
}

fn xattr_names(at: Spot<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let mut list = vec![0; XATTR_BYTES_MAX];
    let n = rustix::fs::llistxattr(proc_path(at), &mut list[..])?;
    Ok(list[..n]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect())
}
