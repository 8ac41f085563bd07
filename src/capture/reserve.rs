//! Room kept back in a staging area, given up when the filesystem is full: a removal needs a
//! directory or two, and must not fail for want of them. It is a file with blocks, and a directory
//! of empty files for where the inodes run out before the blocks do.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use trashfs_mount::Attr;

use crate::staging::Area;
use crate::{beneath, discard};

const RESERVE_NAME: &str = "reserve";
const RESERVE_MAX_BYTES: u64 = 4 << 20;
/// The reserve is at most this part of the filesystem.
const RESERVE_PART: u64 = 64;
/// It is made anew when so many times its size is free.
const FREE_FACTOR: u64 = 2;
/// A journal can be opened and written to a little.
const JOURNAL_NEEDS_BYTES: u64 = 512 << 10;
/// Holds a file for each inode kept back, by the names `0`, `1` and so on.
const SPARE_NAME: &str = "spare";
const SPARE_MAX: u64 = 256;
/// Spare inodes are at most this part of all.
const SPARE_PART: u64 = 16;

/// Makes the area's reserve unless it is there; false while there is no room for it.
pub(super) fn replenish(area: &Area) -> bool {
    [keep_inodes_back(area), keep_blocks_back(area)]
        .into_iter()
        .all(|kept| match kept {
            Ok(()) => true,
            Err(Errno::NOSPC | Errno::DQUOT) => false,
            Err(error) => {
                tracing::debug!(%error, "no reserve in the staging area");
                true
            }
        })
}

fn keep_blocks_back(area: &Area) -> Result<(), Errno> {
    if Attr::at(&area.staging, RESERVE_NAME).is_ok() {
        return Ok(());
    }
    let space = rustix::fs::fstatvfs(&area.staging)?;
    let size = (space.f_blocks * space.f_frsize / RESERVE_PART).min(RESERVE_MAX_BYTES);
    if space.f_bavail * space.f_frsize < size * FREE_FACTOR {
        return Err(Errno::NOSPC);
    }
    if size == 0 {
        return Ok(());
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = match rustix::fs::openat(&area.staging, RESERVE_NAME, flags, mode) {
        Err(Errno::EXIST) => return Ok(()),
        other => other?,
    };
    let filled = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size);
    if filled.is_err() {
        discard::file(&area.staging, RESERVE_NAME)?;
    }
    filled
}

/// How many inodes are kept back where there are `inodes`; a filesystem that makes them as they
/// are needed has none to count.
fn spare_count(inodes: u64) -> u64 {
    (inodes / SPARE_PART).min(SPARE_MAX)
}

/// Makes the spare files that are missing, where as many again are free.
fn keep_inodes_back(area: &Area) -> Result<(), Errno> {
    let space = rustix::fs::fstatvfs(&area.staging)?;
    let count = spare_count(space.f_files);
    if count == 0 {
        return Ok(());
    }
    let spare = match beneath::open_dir_at(&area.staging, SPARE_NAME.as_ref()) {
        Err(Errno::NOENT) => {
            rustix::fs::mkdirat(&area.staging, SPARE_NAME, Mode::RWXU)?;
            beneath::open_dir_at(&area.staging, SPARE_NAME.as_ref())?
        }
        other => other?,
    };
    // They go from the last to the first.
    if Attr::at(&spare, (count - 1).to_string()).is_ok() {
        return Ok(());
    }
    if space.f_favail < count * FREE_FACTOR {
        return Err(Errno::NOSPC);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for number in 0..count {
        rustix::fs::openat(&spare, number.to_string(), flags, Mode::RUSR | Mode::WUSR)?;
    }
    Ok(())
}

/// Gives one spare inode up; false where inodes are not what is missing, and when all are used.
fn give_inode_up(area: &Area) -> bool {
    let Ok(space) = rustix::fs::fstatvfs(&area.staging) else {
        return false;
    };
    if space.f_files == 0 || space.f_favail > 0 {
        return false;
    }
    let spare: Result<OwnedFd, Errno> = beneath::open_dir_at(&area.staging, SPARE_NAME.as_ref());
    spare.is_ok_and(|spare| {
        let mut numbers = (0..SPARE_MAX).rev();
        numbers.any(|number| discard::file(&spare, number.to_string()).is_ok())
    })
}

/// Gives the reserve up where hardly anything is free, for the journal that may lie on the same
/// filesystem. It is made anew once there is room again.
pub(crate) fn make_way(area: &Area) {
    let space = match rustix::fs::fstatvfs(&area.staging) {
        Ok(space) => space,
        Err(error) => return tracing::warn!(%error, "how much is free is not known"),
    };
    if space.f_bavail * space.f_frsize < JOURNAL_NEEDS_BYTES && give_up(area) {
        tracing::warn!("the filesystem is full: the reserve was given up");
    }
}

/// Gives the reserve up; false when there is none.
fn give_up(area: &Area) -> bool {
    discard::file(area.staging.as_fd(), RESERVE_NAME).is_ok()
}

/// Does `work`, if need be again with the room that the reserve takes, as long as there is any.
pub(super) fn with_room<T>(
    area: &Arc<Area>,
    mut work: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    loop {
        match work() {
            Err(Errno::NOSPC | Errno::DQUOT) if give_inode_up(area) || give_up(area) => {}
            other => return other,
        }
    }
}
