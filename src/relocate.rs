//! The one place that renames. Nothing here ever replaces a file.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::RenameFlags;
use rustix::io::Errno;
use rustix::path::Arg;

use crate::loosen::Loosened;

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

/// [`exchange`], also of directories that their owner may not write.
pub(crate) fn exchange_even_readonly(
    (a_dir, a): (&OwnedFd, &OsStr),
    (b_dir, b): (&OwnedFd, &OsStr),
) -> Result<(), Errno> {
    match exchange(a_dir, a, b_dir, b) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let _a = Loosened::to_write(a_dir, a)?;
    let _b = Loosened::to_write(b_dir, b)?;
    exchange(a_dir, a, b_dir, b)
}

/// A directory that its owner may not write can't be moved to another one by that owner, since
/// its `..` changes.
pub(crate) fn move_even_readonly(
    (from_dir, from): (&OwnedFd, &OsStr),
    (to_dir, to): (&OwnedFd, &OsStr),
) -> Result<(), Errno> {
    match move_new(from_dir, from, to_dir, to) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    let _loosened = Loosened::to_write(from_dir, from)?;
    move_new(from_dir, from, to_dir, to)
}
