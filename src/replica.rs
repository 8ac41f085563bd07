//! Exact copies: content read back and compared, with mode, owner, times, extended attributes,
//! ACLs, holes and hard links. Made only below names that nobody else knows yet.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use trashfs_mount::{Attr, FileKind, Timestamp};

use crate::beneath;
use crate::walk::{Flow, Step, When, walk};

/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Shortcomings that are told one by one.
const NOTES_MAX: usize = 20;
/// Bytes of one extended attribute or of the list of names; the kernel's own bound.
const XATTR_BYTES_MAX: usize = 1 << 16;

/// A file under a name in an open directory.
#[derive(Clone, Copy)]
pub struct Spot<'a> {
    /// The directory (`O_PATH` will do).
    pub dir: BorrowedFd<'a>,
    /// The name.
    pub name: &'a OsStr,
}

/// The mode for directories that only held a place, by path and attributes; `None` for others.
pub type SaneMode<'a> = &'a dyn Fn(&Path, &Attr) -> Option<u32>;

/// What became of a copy beyond the bytes.
#[derive(Debug, Default)]
pub struct Copied {
    /// Files of all kinds.
    pub members: u64,
    /// Length of regular files in bytes.
    pub bytes: u64,
    /// What could not be copied exactly, in words; bounded.
    pub notes: Vec<String>,
    notes_cut: u64,
}

impl Copied {
    fn note(&mut self, path: &Path, what: &str, error: Errno) {
        if self.notes.len() >= NOTES_MAX {
            self.notes_cut += 1;
            return;
        }
        let why = crate::failure::plain(&error.into());
        self.notes
            .push(format!("{}: {what}: {why}", path.display()));
    }

    /// All notes, with how many were cut off.
    pub fn into_notes(mut self) -> Vec<String> {
        if self.notes_cut > 0 {
            self.notes.push(format!("and {} more", self.notes_cut));
        }
        self.notes
    }
}

/// Copies files and trees so that hard links among all that it copied are links again.
pub struct Copier {
    root: OwnedFd,
    links: HashMap<(u64, u64), PathBuf>,
    fill: bool,
    /// The outcome so far.
    pub copied: Copied,
}

impl Copier {
    /// Copies to below `root`.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn new(root: BorrowedFd<'_>) -> Result<Self, Errno> {
        Ok(Self {
            root: beneath::open_dir(root, Path::new(""))?,
            links: HashMap::new(),
            fill: false,
            copied: Copied::default(),
        })
    }

    /// Enters directories that are there already and passes over other names that are.
    #[must_use]
    pub fn filling(mut self) -> Self {
        self.fill = true;
        self
    }

    fn make_dir(&self, dir: impl AsFd, name: &OsStr) -> Result<(), Errno> {
        match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
            Err(Errno::EXIST) if self.fill => Ok(()),
            other => other,
        }
    }

    /// Copies `from` with all below it to the free path `to` below the root, whose parent
    /// exists. `origin` is what the file is called in notes and asked about in `sane_mode`.
    ///
    /// # Errors
    /// The first that is met, with the path; what was made until then stays, for the caller to
    /// discard.
    pub fn copy(
        &mut self,
        from: Spot<'_>,
        (origin, sane_mode): (&Path, SaneMode<'_>),
        to: &Path,
    ) -> io::Result<()> {
        let attr = Attr::at(from.dir, from.name)?;
        let (dir, name) = beneath::open_parent(self.root.as_fd(), to)?;
        let target = Spot {
            dir: dir.as_fd(),
            name,
        };
        if !attr.is_dir() {
            return named(origin, self.leaf(from, target, &attr, origin, to));
        }
        named(origin, self.make_dir(&dir, name).map_err(Into::into))?;
        let source = beneath::open_dir_at(from.dir, from.name)?;
        let mut here = beneath::open_dir_at(&dir, name)?;
        walk(source.as_fd(), &mut |step| {
            let origin = origin.join(step.path);
            named(
                &origin,
                self.step(step, &mut here, (&origin, sane_mode), &to.join(step.path)),
            )?;
            Ok(Flow::Continue)
        })?;
        self.copied.members += 1;
        self.attributes(from, target, (&attr, sane_mode(origin, &attr)), origin);
        Ok(())
    }

    fn step(
        &mut self,
        step: &Step<'_>,
        here: &mut OwnedFd,
        (origin, sane_mode): (&Path, SaneMode<'_>),
        to: &Path,
    ) -> io::Result<()> {
        let from = Spot {
            dir: step.dir,
            name: step.name,
        };
        match step.when {
            When::Enter => {
                self.make_dir(&*here, step.name)?;
                *here = beneath::open_dir_at(&*here, step.name)?;
            }
            When::Leave => {
                // Nobody else knows this directory, so its parent is still the one it was made in.
                *here = beneath::open_dir_at(&*here, OsStr::new(".."))?;
                self.copied.members += 1;
                let target = Spot {
                    dir: here.as_fd(),
                    name: step.name,
                };
                let sane = sane_mode(origin, step.attr);
                self.attributes(from, target, (step.attr, sane), origin);
            }
            When::Leaf => {
                let target = Spot {
                    dir: here.as_fd(),
                    name: step.name,
                };
                self.leaf(from, target, step.attr, origin, to)?;
            }
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        from: Spot<'_>,
        to: Spot<'_>,
        attr: &Attr,
        origin: &Path,
        path: &Path,
    ) -> io::Result<()> {
        if self.fill && Attr::at(to.dir, to.name).is_ok() {
            self.copied
                .note(origin, "another version was copied", Errno::EXIST);
            return Ok(());
        }
        if attr.nlink > 1 {
            if let Some(first) = self.links.get(&(attr.dev, attr.ino)) {
                let (dir, name) = beneath::open_parent(self.root.as_fd(), first)?;
                rustix::fs::linkat(&dir, name, to.dir, to.name, AtFlags::empty())?;
                self.copied.members += 1;
                return Ok(());
            }
            self.links.insert((attr.dev, attr.ino), path.to_owned());
        }
        match attr.kind() {
            FileKind::Regular => {
                regular(from, to)?;
                self.copied.bytes += attr.size_bytes;
            }
            FileKind::Symlink => {
                let target = rustix::fs::readlinkat(from.dir, from.name, Vec::new())?;
                rustix::fs::symlinkat(target, to.dir, to.name)?;
            }
            kind => {
                if let Err(e) = special(to, kind, attr) {
                    self.copied
                        .note(origin, "a special file could not be made", e);
                    return Ok(());
                }
            }
        }
        self.copied.members += 1;
        self.attributes(from, to, (attr, None), origin);
        Ok(())
    }

    /// Owner first (it clears set-id bits and capabilities), then mode, then extended attributes
    /// (ACLs among them), then times.
    fn attributes(
        &mut self,
        from: Spot<'_>,
        to: Spot<'_>,
        (attr, sane): (&Attr, Option<u32>),
        origin: &Path,
    ) {
        let mode = sane.unwrap_or(attr.permissions());
        if let Err(e) = set_owner(to, attr.uid, attr.gid) {
            self.copied.note(origin, "the owner could not be set", e);
        }
        if attr.kind() != FileKind::Symlink
            && let Err(e) = set_mode(to, mode)
        {
            self.copied.note(origin, "the mode could not be set", e);
        }
        if sane.is_none() {
            for (name, e) in copy_xattrs(from, to) {
                let what = format!("the extended attribute {name} could not be set");
                self.copied.note(origin, &what, e);
            }
        }
        if let Err(e) = set_times(to, attr.atime, attr.mtime) {
            self.copied.note(origin, "the times could not be set", e);
        }
    }
}

/// Gives an error the path that it is about.
fn named<T>(path: &Path, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|e| match e.get_ref() {
        Some(_) => e,
        None => io::Error::new(
            e.kind(),
            format!("{}: {}", path.display(), crate::failure::plain(&e)),
        ),
    })
}

fn special(to: Spot<'_>, kind: FileKind, attr: &Attr) -> Result<(), Errno> {
    let file_type = match kind {
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Regular | FileKind::Directory | FileKind::Symlink => return Err(Errno::INVAL),
    };
    rustix::fs::mknodat(
        to.dir,
        to.name,
        file_type,
        Mode::RUSR | Mode::WUSR,
        attr.rdev,
    )
}

/// Sets the owner unless it is right already.
///
/// # Errors
/// Those of chown(2).
pub fn set_owner(at: Spot<'_>, uid: u32, gid: u32) -> Result<(), Errno> {
    let now = Attr::at(at.dir, at.name)?;
    if (now.uid, now.gid) == (uid, gid) {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::fs::chownat(
        at.dir,
        at.name,
        Some(uid),
        Some(gid),
        AtFlags::SYMLINK_NOFOLLOW,
    )
}

/// Sets permission bits of anything but a symbolic link.
///
/// # Errors
/// Those of chmod(2).
pub fn set_mode(at: Spot<'_>, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmodat(
        at.dir,
        at.name,
        Mode::from_raw_mode(mode & 0o7777),
        AtFlags::empty(),
    )
}

/// Sets both times, of the link itself where it is one.
///
/// # Errors
/// Those of utimensat(2).
pub fn set_times(at: Spot<'_>, atime: Timestamp, mtime: Timestamp) -> Result<(), Errno> {
    let spec = |t: Timestamp| Timespec {
        tv_sec: t.secs,
        tv_nsec: i64::from(t.nanos),
    };
    let times = Timestamps {
        last_access: spec(atime),
        last_modification: spec(mtime),
    };
    rustix::fs::utimensat(at.dir, at.name, &times, AtFlags::SYMLINK_NOFOLLOW)
}

/// A path to a name in an open directory for calls that take no descriptor.
fn proc_path(at: Spot<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", at.dir.as_raw_fd())).join(at.name)
}

/// Copies extended attributes, ACLs among them, and clears ACLs that the copy inherited.
/// Gives those that could not be set.
pub fn copy_xattrs(from: Spot<'_>, to: Spot<'_>) -> Vec<(String, Errno)> {
    let mut failed = Vec::new();
    let names = xattr_names(from).unwrap_or_else(|e| {
        if e != Errno::OPNOTSUPP {
            failed.push(("list".to_owned(), e));
        }
        Vec::new()
    });
    for inherited in ["system.posix_acl_access", "system.posix_acl_default"] {
        if !names.iter().any(|n| n == inherited.as_bytes()) {
            match rustix::fs::lremovexattr(proc_path(to), inherited) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS | Errno::PERM) => {}
                Err(e) => failed.push((inherited.to_owned(), e)),
            }
        }
    }
    let mut value = vec![0; XATTR_BYTES_MAX];
    for name in names {
        let copied =
            rustix::fs::lgetxattr(proc_path(from), &name[..], &mut value[..]).and_then(|n| {
                rustix::fs::lsetxattr(proc_path(to), &name[..], &value[..n], XattrFlags::empty())
            });
        if let Err(e) = copied {
            failed.push((String::from_utf8_lossy(&name).into_owned(), e));
        }
    }
    failed
}

fn xattr_names(at: Spot<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let mut list = vec![0; XATTR_BYTES_MAX];
    let n = rustix::fs::llistxattr(proc_path(at), &mut list[..])?;
    Ok(list[..n]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect())
}

/// Opens a regular file for reading without marking it as read, where that is allowed.
///
/// # Errors
/// Those of open(2).
pub fn open_readable(at: Spot<'_>) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::openat(at.dir, at.name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::openat(at.dir, at.name, flags, Mode::empty()),
        other => other,
    }
    .map(File::from)
}

/// Copies content to a new file: by sharing blocks where the filesystem can, else by reading,
/// with holes kept and what was written read again.
fn regular(from: Spot<'_>, to: Spot<'_>) -> io::Result<()> {
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

fn for_each_chunk(
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

/// Whether two files or trees agree in names, kinds, modes, lengths, times and content.
///
/// # Errors
/// Those of reading either.
pub fn same(a: Spot<'_>, b: Spot<'_>) -> io::Result<bool> {
    let (attr_a, attr_b) = (Attr::at(a.dir, a.name)?, Attr::at(b.dir, b.name)?);
    if !same_leaf(a, &attr_a, b, &attr_b)? {
        return Ok(false);
    }
    if !attr_a.is_dir() {
        return Ok(true);
    }
    let root_a = beneath::open_dir_at(a.dir, a.name)?;
    let root_b = beneath::open_dir_at(b.dir, b.name)?;
    let (mut agree, mut count) = (true, 0u64);
    walk(root_a.as_fd(), &mut |step| {
        count += u64::from(step.when != When::Leave);
        if step.when != When::Leave {
            agree = beneath::open_parent(root_b.as_fd(), step.path)
                .and_then(|(dir, name)| {
                    Attr::at(&dir, name).map(|attr| (dir, name.to_owned(), attr))
                })
                .map_or(Ok(false), |(dir, name, attr)| {
                    let from = Spot {
                        dir: step.dir,
                        name: step.name,
                    };
                    same_leaf(
                        from,
                        step.attr,
                        Spot {
                            dir: dir.as_fd(),
                            name: &name,
                        },
                        &attr,
                    )
                })?;
        }
        Ok(if agree { Flow::Continue } else { Flow::Stop })
    })?;
    let mut others = 0u64;
    walk(root_b.as_fd(), &mut |step| {
        others += u64::from(step.when != When::Leave);
        Ok(Flow::Continue)
    })?;
    Ok(agree && count == others)
}

/// Whether two regular files of one length have the same bytes.
///
/// # Errors
/// Those of reading either.
pub fn same_bytes(a: Spot<'_>, b: Spot<'_>) -> io::Result<bool> {
    same_content(&open_readable(a)?, &open_readable(b)?)
}

fn same_leaf(a: Spot<'_>, attr_a: &Attr, b: Spot<'_>, attr_b: &Attr) -> io::Result<bool> {
    let key = |attr: &Attr| (attr.kind(), attr.permissions(), attr.mtime);
    if key(attr_a) != key(attr_b) {
        return Ok(false);
    }
    match attr_a.kind() {
        FileKind::Regular if attr_a.size_bytes != attr_b.size_bytes => Ok(false),
        FileKind::Regular => same_bytes(a, b),
        FileKind::Symlink => {
            let target = |s: Spot<'_>| rustix::fs::readlinkat(s.dir, s.name, Vec::new());
            Ok(target(a)? == target(b)?)
        }
        _ => Ok(true),
    }
}

fn same_content(a: &File, b: &File) -> io::Result<bool> {
    let size = a.metadata()?.len();
    let mut other = vec![0; CHUNK_BYTES];
    let mut agree = true;
    for_each_chunk(a, &[(0, size)], |offset, bytes| {
        b.read_exact_at(&mut other[..bytes.len()], offset)?;
        agree &= other[..bytes.len()] == *bytes;
        Ok(())
    })?;
    Ok(agree)
}
