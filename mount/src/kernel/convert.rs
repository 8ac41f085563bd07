//! Between the overlay's types and those of the FUSE protocol.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, Request, TimeOrNow};
use rustix::io::Errno;

use crate::overlay::NewTime;
use crate::{Attr, Caller, FileKind, Timestamp};

/// The one place that turns errors into what the kernel hears.
pub(super) fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

pub(super) fn caller(request: &Request) -> Caller {
    Caller {
        uid: request.uid(),
        gid: request.gid(),
        tid: request.pid(),
    }
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// Number 0 makes an entry mean that there is no such name.
pub(super) const NOTHING: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: UNIX_EPOCH,
    mtime: UNIX_EPOCH,
    ctime: UNIX_EPOCH,
    crtime: UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};

/// For entries of which the kernel looks at number and type only.
pub(super) fn only_type(node: u64, kind: FileKind) -> FileAttr {
    FileAttr {
        ino: INodeNo(node),
        kind: file_type(kind),
        ..NOTHING
    }
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size_bytes,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind()),
        perm: attr.permissions() as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: encode_device(attr.rdev),
        blksize: attr.block_size_bytes,
        flags: 0,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(time.nanos.into());
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let at = if time.secs < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    at.and_then(|t| t.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

pub(super) fn new_time(time: TimeOrNow) -> NewTime {
    match time {
        TimeOrNow::Now => NewTime::Now,
        TimeOrNow::SpecificTime(time) => NewTime::At(timestamp(time)),
    }
}

/// Undoes what fuser does to times before the epoch: it takes the nanoseconds off, where the
/// kernel means them to be added.
fn timestamp(time: SystemTime) -> Timestamp {
    let (secs, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs().cast_signed(), since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            (-before.as_secs().cast_signed(), before.subsec_nanos())
        }
    };
    Timestamp { secs, nanos }
}

/// As the kernel's `new_encode_dev` does.
fn encode_device(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

/// As the kernel's `new_decode_dev` does.
pub(super) fn decode_device(device: u32) -> u64 {
    let major = (device & 0xf_ff00) >> 8;
    let minor = device & 0xff | device >> 12 & 0xf_ff00;
    rustix::fs::makedev(major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_the_protocol() {
        for (major, minor) in [(1, 3), (8, 1), (259, 70_000), (0xfff, 0xf_ffff)] {
            let device = rustix::fs::makedev(major, minor);
            assert_eq!(decode_device(encode_device(device)), device);
        }
    }

    #[test]
    fn times_before_the_epoch_keep_their_nanoseconds() {
        let half_a_second_before = Timestamp {
            secs: -1,
            nanos: 500_000_000,
        };
        let expected = UNIX_EPOCH - Duration::from_millis(500);
        assert_eq!(system_time(half_a_second_before), expected);
        // What fuser makes of (-1, 500_000_000).
        let from_fuser = UNIX_EPOCH - Duration::new(1, 500_000_000);
        assert_eq!(timestamp(from_fuser), half_a_second_before);
    }
}
