//! Reaching files below a directory by descriptors: no symbolic link is followed, no `..` is
//! accepted, and a path may be longer than `PATH_MAX`.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Flags under which directories are traversed.
const TRAVERSE: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The directory `name` in `dir`, as `O_PATH`.
///
/// # Errors
/// `ENOTDIR` for anything but a directory (a symbolic link to one, too), and those of open(2).
pub fn open_dir_at(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, TRAVERSE, Mode::empty())
}

/// The directory `name` in `dir`, readable: for listing and syncing.
///
/// # Errors
/// As [`open_dir_at`].
pub fn open_dir_readable(dir: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// The names of a relative path; `EINVAL` for one that is absolute or has `..`.
///
/// # Errors
/// `EINVAL`.
pub fn names(path: &Path) -> Result<Vec<&OsStr>, Errno> {
    path.components()
        .filter(|c| *c != Component::CurDir)
        .map(|c| match c {
            Component::Normal(name) => Ok(name),
            _ => Err(Errno::INVAL),
        })
        .collect()
}

/// The directory at `path` below `root`, as `O_PATH`; `root` itself for the empty path.
///
/// # Errors
/// Those of open(2), `EINVAL` for a path that leaves `root`.
pub fn open_dir(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let mut dir = rustix::fs::openat(root, c".", TRAVERSE, Mode::empty())?;
    for name in names(path)? {
        dir = open_dir_at(&dir, name)?;
    }
    Ok(dir)
}

/// The directory that holds the last name of `path`, and that name.
///
/// # Errors
/// `EINVAL` for the empty path, else as [`open_dir`].
pub fn open_parent<'p>(
    root: BorrowedFd<'_>,
    path: &'p Path,
) -> Result<(OwnedFd, &'p OsStr), Errno> {
    let mut all = names(path)?;
    let last = all.pop().ok_or(Errno::INVAL)?;
    let mut dir = rustix::fs::openat(root, c".", TRAVERSE, Mode::empty())?;
    for name in all {
        dir = open_dir_at(&dir, name)?;
    }
    Ok((dir, last))
}

/// Like [`open_dir`], making each missing directory with `mode`.
///
/// # Errors
/// Those of mkdir(2) and open(2).
pub fn make_dirs(root: BorrowedFd<'_>, path: &Path, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut dir = rustix::fs::openat(root, c".", TRAVERSE, Mode::empty())?;
    for name in names(path)? {
        dir = match open_dir_at(&dir, name) {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&dir, name, mode) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(e),
                }
                open_dir_at(&dir, name)?
            }
            other => other?,
        };
    }
    Ok(dir)
}
