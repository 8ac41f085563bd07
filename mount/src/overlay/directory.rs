//! Listing directories.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

use super::{Found, Overlay};
use crate::dirs::OpenDir;
use crate::handles::HandleId;
use crate::{Attr, FileKind, Interceptor, NodeId};

/// Room for the entries of one `getdents64(2)`.
const BUFFER_BYTES: usize = 32 * 1024;

/// One entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Number of the file; for `..` as the backing has it.
    pub node: NodeId,
    /// Where a listing that ended here goes on.
    pub next_offset: u64,
    /// Type; `Regular` where the backing doesn't say.
    pub kind: FileKind,
    /// Name.
    pub name: &'a OsStr,
}

/// A directory opened for listing.
///
/// Offsets are the backing's own, so a listing goes on at the right place however much was
/// removed meanwhile, and however often the kernel seeks.
pub(super) struct OpenListing {
    node: NodeId,
    dir: OpenDir,
    fd: OwnedFd,
    position: Mutex<Position>,
}

/// Entries read ahead from the backing.
#[derive(Default)]
struct Position {
    /// Offset that the next entry follows.
    offset: u64,
    names: Vec<u8>,
    entries: std::collections::VecDeque<Ahead>,
}

struct Ahead {
    ino: u64,
    next_offset: u64,
    kind: FileKind,
    /// Where the name lies in `names`.
    name: (u32, u32),
}

impl Position {
    /// Goes to `offset`, where the last listing ended as a rule.
    fn seek(&mut self, fd: &OwnedFd, offset: u64) -> Result<(), Errno> {
        if offset != self.offset || offset == 0 {
            rustix::fs::seek(fd, SeekFrom::Start(offset))?;
            self.entries.clear();
            self.offset = offset;
        }
        Ok(())
    }

    /// Reads ahead if nothing is left. Says whether the directory has ended.
    fn fill(&mut self, fd: &OwnedFd) -> Result<bool, Errno> {
        if !self.entries.is_empty() {
            return Ok(false);
        }
        self.names.clear();
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut raw = RawDir::new(fd, &mut buffer);
        while let Some(entry) = raw.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            self.entries.push_back(Ahead {
                ino: entry.ino(),
                next_offset: entry.next_entry_cookie(),
                kind: kind_of(entry.file_type()),
                name: (self.names.len() as u32, name.len() as u32),
            });
            self.names.extend_from_slice(name);
            if raw.is_buffer_empty() {
                break;
            }
        }
        Ok(self.entries.is_empty())
    }

    fn name(&self, ahead: &Ahead) -> &OsStr {
        let (start, len) = (ahead.name.0 as usize, ahead.name.1 as usize);
        OsStr::from_bytes(&self.names[start..start + len])
    }
}

fn kind_of(kind: rustix::fs::FileType) -> FileKind {
    FileKind::from_mode(kind.as_raw_mode())
}

impl<I: Interceptor> Overlay<I> {
    /// `opendir(3)`.
    pub fn opendir(&self, node: NodeId) -> Result<HandleId, Errno> {
        let dir = self.dir(node)?;
        let fd = rustix::fs::openat(
            &dir,
            c".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(self.listings.insert(Arc::new(OpenListing {
            node,
            dir: OpenDir {
                fd: Arc::clone(&dir.fd),
                attr: dir.attr,
            },
            fd,
            position: Mutex::default(),
        })))
    }

    /// Gives the entries from `offset` on to `take`, until that says that it has no room for one.
    pub fn readdir(
        &self,
        handle: HandleId,
        offset: u64,
        mut take: impl FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let listing = self.listings.get(handle)?;
        self.list(&listing, offset, |entry| !take(entry))
    }

    /// Like [`Overlay::readdir`], with what a lookup of each name would find; nothing for `.` and
    /// `..`. The kernel holds a reference to each file that was taken.
    pub fn readdirplus(
        &self,
        handle: HandleId,
        offset: u64,
        mut take: impl FnMut(&DirEntry<'_>, Option<&Found>) -> bool,
    ) -> Result<(), Errno> {
        let listing = self.listings.get(handle)?;
        self.list(&listing, offset, |entry| {
            if entry.name == "." || entry.name == ".." {
                return !take(entry, None);
            }
            // What vanished since it was read needs no mention.
            let Ok(attr) = Attr::at(&listing.dir, entry.name) else {
                return true;
            };
            let found = self.found(listing.node, entry.name, &attr);
            let full = take(entry, Some(&found));
            if full {
                self.forget(found.node, 1);
            }
            !full
        })
    }

    /// Calls `visit` for each visible entry; an entry for which it says `false` is not consumed.
    fn list(
        &self,
        listing: &OpenListing,
        offset: u64,
        mut visit: impl FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let mut position = listing.position.lock();
        position.seek(&listing.fd, offset)?;
        while !position.fill(&listing.fd)? {
            while let Some(ahead) = position.entries.front() {
                let entry = DirEntry {
                    node: self.numbers.of_ino(listing.dir.attr.dev, ahead.ino),
                    next_offset: ahead.next_offset,
                    kind: ahead.kind,
                    name: position.name(ahead),
                };
                if !self.hides(&listing.dir, entry.name) && !visit(&entry) {
                    return Ok(());
                }
                position.offset = ahead.next_offset;
                position.entries.pop_front();
            }
        }
        Ok(())
    }

    /// `closedir(3)`.
    pub fn releasedir(&self, handle: HandleId) {
        self.listings.remove(handle);
    }

    /// `fsync(2)` of a directory: its names, as of now, survive a power cut.
    pub fn fsyncdir(&self, handle: HandleId, data_only: bool) -> Result<(), Errno> {
        let listing = self.listings.get(handle)?;
        if data_only {
            rustix::fs::fdatasync(&listing.fd)
        } else {
            rustix::fs::fsync(&listing.fd)
        }
    }
}
