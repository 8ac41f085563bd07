//! The one place that deletes. Callers say why in their name for it: expiry, emptying,
//! a staged duplicate of what still exists.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::AtFlags;
use rustix::io::Errno;
use rustix::path::Arg;
use trashfs_mount::Attr;

use crate::beneath;
use crate::walk::{Flow, Step, When};

/// Removes one name that is no directory.
///
/// # Errors
/// Those of unlink(2).
#[expect(clippy::disallowed_methods, reason = "this is the home of removals")]
pub fn file(dir: impl AsFd, name: impl Arg) -> Result<(), Errno> {
    rustix::fs::unlinkat(dir, name, AtFlags::empty())
}

/// Removes one empty directory.
///
/// # Errors
/// Those of rmdir(2), `ENOTEMPTY` among them.
#[expect(clippy::disallowed_methods, reason = "this is the home of removals")]
pub fn empty_dir(dir: impl AsFd, name: impl Arg) -> Result<(), Errno> {
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// Removes `name` in `dir` with all below it, following no symbolic link and holding few
/// descriptors. What is already gone is no error.
///
/// # Errors
/// The first that a removal gives; what was removed until then stays removed.
pub fn tree(dir: BorrowedFd<'_>, name: &OsStr) -> std::io::Result<()> {
    tree_telling(dir, name, &mut |_| ())
}

/// Like [`tree`]; tells of each file that is no directory as it was just before it went.
///
/// # Errors
/// As [`tree`].
pub fn tree_telling(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    tell: &mut dyn FnMut(&Attr),
) -> std::io::Result<()> {
    let fd = match beneath::open_dir_at(dir, name) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let attr = Attr::at(dir, name)?;
            file(dir, name)?;
            tell(&attr);
            return Ok(());
        }
        Err(e) => return Err(e.into()),
    };
    crate::walk::walk(fd.as_fd(), &mut |step: &Step<'_>| {
        match step.when {
            When::Enter => make_writable(step)?,
            When::Leaf => {
                gone_is_fine(file(step.dir, step.name))?;
                tell(step.attr);
            }
            When::Leave => gone_is_fine(empty_dir(step.dir, step.name))?,
        }
        Ok(Flow::Continue)
    })?;
    Ok(gone_is_fine(empty_dir(dir, name))?)
}

/// A staged directory keeps the mode of the original, which may forbid emptying it.
fn make_writable(step: &Step<'_>) -> Result<(), Errno> {
    if step.attr.mode & 0o700 == 0o700 {
        return Ok(());
    }
    rustix::fs::chmodat(
        step.dir,
        step.name,
        rustix::fs::Mode::RWXU,
        AtFlags::empty(),
    )
}

fn gone_is_fine(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
