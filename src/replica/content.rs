//! The bytes of regular files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::Spot;
use crate::loosen::Loosened;

/// Bytes read at once.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

/// Opens a regular file for reading without marking it as read, where that is allowed.
///
/// # Errors
/// Those of open(2).
pub fn open_readable(at: Spot<'_>) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat(at.dir, at.name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::openat(at.dir, at.name, flags, Mode::empty()),
        other => other,
    };
    match opened {
        Err(Errno::ACCESS) => match Loosened::to_read(at.dir, at.name)? {
            Some(loosened) => loosened.open(flags),
            None => Err(Errno::ACCESS),
        },
        other => other,
    }
    .map(File::from)
}

/// Copies content to a new file: by sharing blocks where the filesystem can, else by reading,
/// with holes kept and what was written read again.
pub(super) fn regular(from: Spot<'_>, to: Spot<'_>) -> io::Result<()> {
    let source = open_readable(from)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = File::from(rustix::fs::openat(
        to.dir,
        to.name,
        flags,
        Mode::RUSR | Mode::WUSR,
    )?);
    if rustix::fs::ioctl_ficlone(&target, &source).is_err() {
        copy_bytes(&source, &target)?;
    }
    if target.metadata()?.len() != source.metadata()?.len() {
        return Err(io::Error::other("it changed while it was copied"));
    }
    Ok(())
}

fn copy_bytes(source: &File, target: &File) -> io::Result<()> {
    let size = source.metadata()?.len();
    target.set_len(size)?;
    let extents = data_extents(source, size)?;
    let mut read = Sha256::new();
    for_each_chunk(source, &extents, |offset, bytes| {
        read.update(bytes);
        target.write_all_at(bytes, offset)
    })?;
    let mut written = Sha256::new();
    for_each_chunk(target, &extents, |_, bytes| {
        written.update(bytes);
        Ok(())
    })?;
    if read.finalize() != written.finalize() {
        return Err(io::Error::other("what was written reads back differently"));
    }
    Ok(())
}

pub(super) fn for_each_chunk(
    file: &File,
    extents: &[(u64, u64)],
    mut visit: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    for &(start, end) in extents {
        let mut offset = start;
        while offset < end {
            let want = usize::try_from(end - offset)
                .unwrap_or(CHUNK_BYTES)
                .min(CHUNK_BYTES);
            let n = file.read_at(&mut buffer[..want], offset)?;
            if n == 0 {
                return Err(io::Error::other("it became shorter while it was copied"));
            }
            visit(offset, &buffer[..n])?;
            offset += n as u64;
        }
    }
    Ok(())
}

/// Where data lies; the whole file where the filesystem does not tell.
fn data_extents(file: &File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut extents = Vec::new();
    let mut offset = 0;
    while offset < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(vec![(0, size)]),
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
        extents.push((start.min(size), end));
        offset = end;
    }
    Ok(extents)
}
