//! What `statx(2)` says of a file, in one plain struct.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Statx, StatxFlags};
use rustix::io::Errno;

/// Seconds and nanoseconds since the epoch, as the kernel keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01T00:00:00Z; negative before it.
    pub secs: i64,
    /// Nanoseconds past `secs`, below 1,000,000,000.
    pub nanos: u32,
}

/// The type bits of `st_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of inode(7)")]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

impl FileKind {
    /// From a full `st_mode`; unknown type bits count as a regular file.
    pub fn from_mode(mode: u32) -> Self {
        match mode & libc::S_IFMT {
            libc::S_IFDIR => Self::Directory,
            libc::S_IFLNK => Self::Symlink,
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFSOCK => Self::Socket,
            libc::S_IFCHR => Self::CharDevice,
            libc::S_IFBLK => Self::BlockDevice,
            _ => Self::Regular,
        }
    }
}

/// Attributes of a file as the backing filesystem has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Backing `st_ino`.
    pub ino: u64,
    /// Backing `st_dev`, as `makedev(3)` packs it.
    pub dev: u64,
    /// Mount that the file was reached through (`STATX_MNT_ID`); 0 where the kernel has none.
    pub mnt_id: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Hard links, staged ones included.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as `makedev(3)` packs it.
    pub rdev: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub block_size_bytes: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last modification of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth, where the filesystem records it.
    pub btime: Option<Timestamp>,
}

/// Everything in [`Attr`], in one call.
const MASK: StatxFlags = StatxFlags::BASIC_STATS
    .union(StatxFlags::BTIME)
    .union(StatxFlags::MNT_ID);

impl Attr {
    /// Of `name` in `dir`; a symbolic link is not followed.
    pub fn at<P: rustix::path::Arg>(dir: impl AsFd, name: P) -> Result<Self, Errno> {
        let statx = rustix::fs::statx(
            dir,
            name,
            AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
            MASK,
        )?;
        Ok(Self::from_statx(&statx))
    }

    /// Of an open descriptor (`O_PATH` will do).
    pub fn of(fd: impl AsFd) -> Result<Self, Errno> {
        let statx = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, MASK)?;
        Ok(Self::from_statx(&statx))
    }

    fn from_statx(s: &Statx) -> Self {
        let time = |t: &rustix::fs::StatxTimestamp| Timestamp {
            secs: t.tv_sec,
            nanos: t.tv_nsec,
        };
        let has = |flag: StatxFlags| s.stx_mask & flag.bits() != 0;
        Self {
            ino: s.stx_ino,
            dev: rustix::fs::makedev(s.stx_dev_major, s.stx_dev_minor),
            mnt_id: if has(StatxFlags::MNT_ID) {
                s.stx_mnt_id
            } else {
                0
            },
            mode: u32::from(s.stx_mode),
            nlink: s.stx_nlink,
            uid: s.stx_uid,
            gid: s.stx_gid,
            rdev: rustix::fs::makedev(s.stx_rdev_major, s.stx_rdev_minor),
            size_bytes: s.stx_size,
            blocks: s.stx_blocks,
            block_size_bytes: s.stx_blksize,
            atime: time(&s.stx_atime),
            mtime: time(&s.stx_mtime),
            ctime: time(&s.stx_ctime),
            btime: has(StatxFlags::BTIME).then(|| time(&s.stx_btime)),
        }
    }

    /// The type bits of `mode`.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode)
    }

    /// Whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory
    }

    /// Whether this is a regular file.
    pub fn is_regular(&self) -> bool {
        self.kind() == FileKind::Regular
    }

    /// Permission bits with set-id and sticky bits, without the type.
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Whether `other` is the same file: number, device and birth (inode numbers are reused).
    pub fn same_file(&self, other: &Self) -> bool {
        self.ino == other.ino && self.dev == other.dev && self.btime == other.btime
    }
}
