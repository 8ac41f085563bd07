//! The one place that renames. Nothing here ever replaces a file.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::RenameFlags;
use rustix::io::Errno;
use rustix::path::Arg;
use trashfs_mount::Attr;

use crate::replica::{self, Spot};

/// Moves `from` in `from_dir` to the free name `to` in `to_dir` (`RENAME_NOREPLACE`).
///
/// # Errors
/// `EEXIST` when `to` is taken, `EXDEV` between mounts, and those of rename(2).
#[expect(clippy::disallowed_methods, reason = "this is the home of renames")]
pub fn move_new(
    from_dir: impl AsFd,
    from: impl Arg,
    to_dir: impl AsFd,
    to: impl Arg,
) -> Result<(), Errno> {
    rustix::fs::renameat_with(from_dir, from, to_dir, to, RenameFlags::NOREPLACE)
}

/// Lets two existing names change places (`RENAME_EXCHANGE`).
///
/// # Errors
/// `ENOENT` when either is missing, `EXDEV` between mounts, and those of rename(2).
#[expect(clippy::disallowed_methods, reason = "this is the home of renames")]
pub fn exchange(a_dir: impl AsFd, a: impl Arg, b_dir: impl AsFd, b: impl Arg) -> Result<(), Errno> {
    rustix::fs::renameat_with(a_dir, a, b_dir, b, RenameFlags::EXCHANGE)
}

/// Replaces a record of the product's own (never a user's file) by its freshly written and
/// synced successor.
///
/// # Errors
/// Those of rename(2).
#[expect(clippy::disallowed_methods, reason = "this is the home of renames")]
pub fn replace_record(dir: impl AsFd, fresh: impl Arg, record: impl Arg) -> Result<(), Errno> {
    let dir = dir.as_fd();
    rustix::fs::renameat(dir, fresh, dir, record)
}

/// A directory that its owner may not write can't be moved to another one by that owner, since
/// its `..` changes.
pub(crate) fn move_even_readonly(
    (from_dir, from): (&OwnedFd, &OsStr),
    (to_dir, to): (&OwnedFd, &OsStr),
    attr: &Attr,
) -> Result<(), Errno> {
    match move_new(from_dir, from, to_dir, to) {
        Err(Errno::ACCESS) if attr.is_dir() && attr.permissions() & 0o200 == 0 => {}
        other => return other,
    }
    let (was, now) = (
        Spot {
            dir: from_dir.as_fd(),
            name: from,
        },
        Spot {
            dir: to_dir.as_fd(),
            name: to,
        },
    );
    replica::set_mode(was, attr.permissions() | 0o700)?;
    let moved = move_new(from_dir, from, to_dir, to);
    let at = if moved.is_ok() { now } else { was };
    replica::set_mode(at, attr.permissions())?;
    moved
}
