//! Exact copies: content read back and compared, with mode, owner, times, extended attributes,
//! ACLs, holes and hard links. Made only below names that nobody else knows yet.

mod attributes;
mod compare;
mod content;

pub use attributes::{copy_xattrs, set_mode, set_owner, set_times};
pub use compare::{same, same_bytes};
pub use content::open_readable;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use trashfs_mount::{Attr, FileKind};

use self::content::regular;
use crate::beneath;
use crate::loosen::Loosened;
use crate::walk::{Flow, Step, When, walk};

/// Shortcomings that are told one by one.
const NOTES_MAX: usize = 20;

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
    /// The directories on the way down that had to be loosened, with their depth.
    loosened: Vec<(usize, Loosened)>,
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
            loosened: Vec::new(),
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
        let _loosened = Loosened::to_read(from.dir, from.name)?;
        let source = beneath::open_dir_at(from.dir, from.name)?;
        let mut here = beneath::open_dir_at(&dir, name)?;
        let walked = walk(source.as_fd(), &mut |step| {
            let origin = origin.join(step.path);
            named(
                &origin,
                self.step(step, &mut here, (&origin, sane_mode), &to.join(step.path)),
            )?;
            Ok(Flow::Continue)
        });
        // After an error some are left.
        self.loosened.clear();
        walked?;
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
                let depth = step.path.components().count();
                let loosened = Loosened::to_read(step.dir, step.name)?;
                self.loosened.extend(loosened.map(|guard| (depth, guard)));
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
                let depth = step.path.components().count();
                self.loosened.pop_if(|(of, _)| *of == depth);
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
