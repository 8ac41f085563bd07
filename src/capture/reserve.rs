//! Room kept back in a staging area, given up when the filesystem is full: a removal needs a
//! directory or two, and must not fail for want of them.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use trashfs_mount::Attr;

use crate::discard;
use crate::staging::Area;

const RESERVE_NAME: &str = "reserve";
const RESERVE_MAX_BYTES: u64 = 4 << 20;
/// The reserve is at most this part of the filesystem.
const RESERVE_PART: u64 = 64;
/// It is made anew when so many times its size is free.
const FREE_FACTOR: u64 = 2;
/// A journal can be opened and written to a little.
const JOURNAL_NEEDS_BYTES: u64 = 512 << 10;

/// Makes the area's reserve unless it is there; false while there is no room for it.
pub(super) fn replenish(area: &Area) -> bool {
    match try_replenish(area) {
        Ok(()) => true,
        Err(Errno::NOSPC | Errno::DQUOT) => false,
        Err(error) => {
            tracing::debug!(%error, "no reserve in the staging area");
            true
        }
    }
}

fn try_replenish(area: &Area) -> Result<(), Errno> {
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

/// Does `work`, if need be again with the room that the reserve takes.
pub(super) fn with_room<T>(
    area: &Arc<Area>,
    mut work: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match work() {
        Err(Errno::NOSPC | Errno::DQUOT) if give_up(area) => work(),
        other => other,
    }
}
