//! The one place that renames. Nothing here ever replaces a file.

use std::os::fd::AsFd;

use rustix::fs::RenameFlags;
use rustix::io::Errno;
use rustix::path::Arg;

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
