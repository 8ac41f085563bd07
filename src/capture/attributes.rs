//! Carrying attributes from a file to its copy.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use trashfs_mount::{Attr, Timestamp};

use crate::loosen::Loosened;

/// The kernel's bounds (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const XATTR_MAX_BYTES: usize = 65_536;

/// A name in a directory, for the calls that take neither a descriptor nor a directory: no
/// symbolic link is followed.
pub(super) fn magic_path(dir: impl AsFd, name: &OsStr) -> Result<CString, Errno> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name.as_bytes());
    CString::new(path).map_err(|_| Errno::INVAL)
}

/// Names of the extended attributes at `path`; none where the filesystem has none.
fn xattr_names(path: &CStr) -> Result<Vec<CString>, Errno> {
    let mut small = [0u8; 512];
    let list = match rustix::fs::llistxattr(path, &mut small[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Ok(length) => small[..length].to_vec(),
        Err(Errno::RANGE) => {
            let mut large = vec![0u8; XATTR_MAX_BYTES];
            let length = rustix::fs::llistxattr(path, &mut large[..])?;
            large.truncate(length);
            large
        }
        Err(error) => return Err(error),
    };
    Ok(list
        .split_inclusive(|b| *b == 0)
        .filter_map(|name| CStr::from_bytes_with_nul(name).ok())
        .map(CStr::to_owned)
        .collect())
}

/// Whether this daemon may leave an attribute out that it can't carry: those of namespaces that
/// are not an ordinary user's to set.
fn may_be_left_out(name: &CStr) -> bool {
    !rustix::process::geteuid().is_root()
        && (name.to_bytes().starts_with(b"security.") || name.to_bytes().starts_with(b"trusted."))
}

/// Carries extended attributes, ACLs among them, from `name` in `dir`; also of what its owner may
/// not read.
pub(super) fn copy_xattrs(dir: impl AsFd, name: &OsStr, to: &CStr) -> Result<(), Errno> {
    let from = &*magic_path(&dir, name)?;
    let names = xattr_names(from)?;
    let _loosened = match names.is_empty() {
        true => None,
        false => Loosened::to_read(&dir, name)?,
    };
    for name in names {
        let mut value = vec![0u8; XATTR_MAX_BYTES];
        let length = match rustix::fs::lgetxattr(from, &name, &mut value[..]) {
            Err(Errno::NODATA) => continue,
            Err(_) if may_be_left_out(&name) => continue,
            other => other?,
        };
        match rustix::fs::lsetxattr(to, &name, &value[..length], XattrFlags::empty()) {
            Err(_) if may_be_left_out(&name) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Takes away every extended attribute that can be.
pub(super) fn clear_xattrs(path: &CStr) -> Result<(), Errno> {
    for name in xattr_names(path)? {
        match rustix::fs::lremovexattr(path, &name) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(_) if name.to_bytes().starts_with(b"security.") => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sets the owner as far as this daemon may: root must succeed.
pub(super) fn set_owner(dir: impl AsFd, name: &OsStr, attr: &Attr) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(attr.uid), Gid::from_raw(attr.gid));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    match rustix::fs::chownat(&dir, name, Some(uid), Some(gid), flags) {
        Err(Errno::PERM) if !rustix::process::geteuid().is_root() => {
            match rustix::fs::chownat(&dir, name, None, Some(gid), flags) {
                Err(Errno::PERM) => Ok(()),
                other => other,
            }
        }
        other => other,
    }
}

/// Sets the permission bits; not for a symbolic link.
pub(super) fn set_mode(dir: impl AsFd, name: &OsStr, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmodat(
        dir,
        name,
        Mode::from_raw_mode(mode & 0o7777),
        AtFlags::empty(),
    )
}

/// Sets both times. Last of all: what is done to a file's content moves them.
pub(super) fn set_times(
    dir: impl AsFd,
    name: &OsStr,
    atime: Timestamp,
    mtime: Timestamp,
) -> Result<(), Errno> {
    let time = |t: Timestamp| Timespec {
        tv_sec: t.secs,
        tv_nsec: t.nanos.into(),
    };
    let times = Timestamps {
        last_access: time(atime),
        last_modification: time(mtime),
    };
    rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)
}
