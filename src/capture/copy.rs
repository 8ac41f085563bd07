//! Copies: of content that is about to be cut off, and of files that can't be moved into
//! staging because they lie on another filesystem.
//!
//! A copy is made in the area's scratch directory and moved to its place when it is complete, so
//! a crash never leaves half of one that looks whole.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Advice, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use trashfs_mount::{Attr, FileKind, Victim};

use super::attributes::{copy_xattrs, magic_path, set_mode, set_owner, set_times};
use crate::loosen::Loosened;
use crate::staging::Area;
use crate::{beneath, discard, relocate};

static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// A complete copy in scratch; discarded unless it is moved to its place.
#[must_use]
pub(super) struct Draft {
    scratch: OwnedFd,
    name: OsString,
    placed: bool,
}

impl Draft {
    /// Copies content and attributes of a file that has no name to be moved by.
    pub(super) fn of(area: &Arc<Area>, victim: &Victim<'_>, verify: bool) -> Result<Self, Errno> {
        let draft = Self::begin(area)?;
        match victim.attr.kind() {
            FileKind::Regular => draft.copy_content(victim, verify)?,
            FileKind::Symlink => draft.copy_symlink(victim)?,
            _ => draft.make_node(victim.attr)?,
        }
        draft.copy_attributes(victim)?;
        Ok(draft)
    }

    fn begin(area: &Area) -> Result<Self, Errno> {
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            scratch: beneath::open_dir_at(&area.staging, OsStr::new("scratch"))?,
            name: format!("copy-{}-{number}", std::process::id()).into(),
            placed: false,
        })
    }

    fn copy_content(&self, victim: &Victim<'_>, verify: bool) -> Result<(), Errno> {
        let from = open_victim(victim)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to = rustix::fs::openat(&self.scratch, &*self.name, flags, Mode::RUSR | Mode::WUSR)?;
        copy_all(from.as_fd(), to.as_fd())?;
        if verify && digest(from.as_fd())? != digest(to.as_fd())? {
            return Err(Errno::IO);
        }
        // Begins writing to disk without waiting for it: the filesystem's journal then orders
        // this content before the change that follows.
        rustix::fs::fadvise(&to, 0, None, Advice::DontNeed)
    }

    fn copy_symlink(&self, victim: &Victim<'_>) -> Result<(), Errno> {
        let target = rustix::fs::readlinkat(victim.dir.fd, victim.name, Vec::new())?;
        rustix::fs::symlinkat(&target, &self.scratch, &*self.name)
    }

    fn make_node(&self, attr: &Attr) -> Result<(), Errno> {
        let kind = FileType::from_raw_mode(attr.mode);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(&self.scratch, &*self.name, kind, mode, attr.rdev)
    }

    fn copy_attributes(&self, victim: &Victim<'_>) -> Result<(), Errno> {
        let attr = victim.attr;
        set_owner(&self.scratch, &self.name, attr)?;
        let copy = magic_path(&self.scratch, &self.name)?;
        copy_xattrs(victim.dir.fd, victim.name, &copy)?;
        if attr.kind() != FileKind::Symlink {
            set_mode(&self.scratch, &self.name, attr.permissions())?;
        }
        set_times(&self.scratch, &self.name, attr.atime, attr.mtime)
    }

    /// Moves it to the free name `name` in `dir`.
    pub(super) fn place(&mut self, dir: impl AsFd, name: &OsStr) -> Result<(), Errno> {
        relocate::move_new(&self.scratch, &*self.name, dir, name)?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.placed {
            return;
        }
        match discard::file(&self.scratch, &*self.name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => tracing::warn!(%error, "an abandoned copy stays in scratch"),
        }
    }
}

/// The victim, for reading: exactly that file, whatever has become of its name.
fn open_victim(victim: &Victim<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |extra| rustix::fs::openat(victim.dir.fd, victim.name, flags | extra, Mode::empty());
    let opened = match open(OFlags::NOATIME) {
        Err(Errno::PERM) => open(OFlags::empty()),
        other => other,
    };
    let fd = match opened {
        // Who may write to it and not read it may cut it off all the same.
        Err(Errno::ACCESS) => match Loosened::to_read(victim.dir.fd, victim.name)? {
            Some(loosened) => loosened.open(flags)?,
            None => return Err(Errno::ACCESS),
        },
        other => other?,
    };
    if !Attr::of(&fd)?.same_file(victim.attr) {
        return Err(Errno::STALE);
    }
    Ok(fd)
}

/// Copies content with its holes: by sharing extents, else inside the kernel, else by hand.
fn copy_all(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    if rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    let size = Attr::of(from)?.size_bytes;
    rustix::fs::ftruncate(to, size)?;
    let mut at = 0;
    while at < size {
        let (start, end) = match next_data(from, at, size)? {
            Some(range) => range,
            None => break,
        };
        copy_range(from, to, start, end)?;
        at = end;
    }
    Ok(())
}

/// The next range at or after `at` that is no hole.
fn next_data(from: BorrowedFd<'_>, at: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    match rustix::fs::seek(from, SeekFrom::Data(at)) {
        Ok(start) => Ok(Some((
            start,
            rustix::fs::seek(from, SeekFrom::Hole(start))?,
        ))),
        Err(Errno::NXIO) => Ok(None),
        // No such notion there: all of it is data.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some((at, size))),
        Err(error) => Err(error),
    }
}

fn copy_range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, start: u64, end: u64) -> Result<(), Errno> {
    let (mut in_at, mut out_at) = (start, start);
    while in_at < end {
        let length = usize::try_from(end - in_at).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(from, Some(&mut in_at), to, Some(&mut out_at), length) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return copy_by_hand(from, to, in_at, end);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn copy_by_hand(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    mut at: u64,
    end: u64,
) -> Result<(), Errno> {
    let mut buffer = vec![0u8; 128 * 1024];
    while at < end {
        let wanted = usize::try_from(end - at).map_or(buffer.len(), |n| n.min(buffer.len()));
        let read = rustix::io::pread(from, &mut buffer[..wanted], at)?;
        if read == 0 {
            break;
        }
        let mut written = 0;
        while written < read {
            let offset = at + written as u64;
            written += rustix::io::pwrite(to, &buffer[written..read], offset)?;
        }
        at += read as u64;
    }
    Ok(())
}

fn digest(file: BorrowedFd<'_>) -> Result<[u8; 32], Errno> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0u8; 128 * 1024];
    let mut at = 0;
    loop {
        let read = rustix::io::pread(file, &mut buffer[..], at)?;
        if read == 0 {
            return Ok(hasher.finalize().into());
        }
        hasher.update(&buffer[..read]);
        at += read as u64;
    }
}
