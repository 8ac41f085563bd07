//! Captures of directories: `rmdir` and `rename` onto an empty one.
//!
//! What was in the directory has been captured before, into the container that stands for it in
//! the tree. Now the container gets the directory's own attributes, and so ceases to be one.

use std::cell::Cell;
use std::ffi::OsStr;
use std::path::Path;

use rustix::io::Errno;
use trashfs_mount::{Attr, Caller, Verdict, Victim};

use super::Capture;
use super::attributes::{clear_xattrs, copy_xattrs, magic_path, set_mode, set_owner, set_times};
use super::operation::{DirTimes, OpenEntry};
use super::placing::Capturing;
use super::settle::{Pending, StagedEmptyDir};
use super::trees::{StagedDir, is_container, make_container, note_exception};
use crate::discard;
use crate::policy::Decision;
use crate::record::Cause;
use crate::staging::CONTAINER_MODE;

impl Capture {
    /// The directory `victim` is about to go, if it is empty.
    pub(super) fn remove_dir(
        &self,
        caller: Caller,
        victim: &Victim<'_>,
        cause: Cause,
    ) -> Result<Verdict, Errno> {
        let process = self.processes.of(caller);
        let place = self.dirs.place(victim.dir)?;
        let name = victim.name;
        // Its number may be another's as soon as it is gone.
        self.dirs.forget(victim.node);
        let kept = match self.decide(&process, &place, name, cause, victim.attr) {
            Decision::Keep(kept) => kept,
            Decision::Delete { rule } => {
                self.dirs.void();
                return Ok(self.let_go(place.path.join(name), rule));
            }
        };
        let capturing = Capturing::new(self.operation(&process), cause, &kept, &place);
        let path = place.path.join(name);
        let made = Cell::new(false);
        let dir = self.put(&capturing, Some(victim.dir), name, |dir| {
            made.set(claim(&capturing.entry, dir, name, &path)?);
            Ok(())
        })?;
        self.trees
            .finished(&capturing.entry, dir.tree, &place, &path);
        let btime = victim.attr.btime;
        let times = capturing.operation.take_times(victim.node, btime);
        let finished = finish(&capturing.entry, &dir, victim, &path, times);
        let staged = StagedEmptyDir {
            operation: capturing.operation,
            entry: capturing.entry,
            place: dir.place_of(name),
            dir,
            path,
            made: made.get(),
            node: victim.node,
            times,
        };
        match finished {
            Ok(()) => Ok(Verdict::Prepared {
                place: Some(staged.place.clone()),
                ticket: self.tickets.give(Pending::Dir(staged)),
            }),
            Err(error) => {
                staged.revert();
                Err(error)
            }
        }
    }
}

/// Makes `name` in `dir`, or takes the container that is there; says whether it was made.
fn claim(entry: &OpenEntry, dir: &StagedDir, name: &OsStr, path: &Path) -> Result<bool, Errno> {
    match Attr::at(&dir.fd, name) {
        Err(Errno::NOENT) => make_container(dir, name).map(|()| true),
        Err(error) => Err(error),
        Ok(attr) if is_container(entry, dir, path, &attr) => Ok(false),
        Ok(_) => Err(Errno::EXIST),
    }
}

/// Gives the staged directory the attributes that the real one has, the times as they were
/// before the operation began to empty it.
fn finish(
    entry: &OpenEntry,
    dir: &StagedDir,
    victim: &Victim<'_>,
    path: &Path,
    times: Option<DirTimes>,
) -> Result<(), Errno> {
    let (attr, name) = (victim.attr, victim.name);
    if dir.owner != (attr.uid, attr.gid) {
        set_owner(&dir.fd, name, attr)?;
    }
    copy_xattrs(victim.dir.fd, name, &magic_path(&dir.fd, name)?)?;
    if attr.permissions() == CONTAINER_MODE {
        note_exception(entry, dir, path, false)?;
    } else {
        set_mode(&dir.fd, name, attr.permissions())?;
    }
    let (atime, mtime) = times.map_or((attr.atime, attr.mtime), |t| (t.atime, t.mtime));
    set_times(&dir.fd, name, atime, mtime)
}

impl StagedEmptyDir {
    /// The directory was not removed after all: a container stands for it again, or nothing.
    pub(super) fn revert(&self) {
        if let Some(times) = self.times {
            self.operation.remember_times(self.node, times);
        }
        if let Err(error) = self.try_revert() {
            tracing::warn!(path = %self.path.display(), %error,
                "a directory that was not removed stays marked as removed");
        }
    }

    fn try_revert(&self) -> Result<(), Errno> {
        let name = self.path.file_name().ok_or(Errno::INVAL)?;
        if self.entry.is_exception(self.dir.tree, &self.path) {
            note_exception(&self.entry, &self.dir, &self.path, true)?;
        }
        if self.made && discard::empty_dir(&self.dir.fd, name).is_ok() {
            return Ok(());
        }
        clear_xattrs(&magic_path(&self.dir.fd, name)?)?;
        let mut owner = Attr::at(&self.dir.fd, name)?;
        (owner.uid, owner.gid) = self.dir.owner;
        set_owner(&self.dir.fd, name, &owner)?;
        set_mode(&self.dir.fd, name, CONTAINER_MODE)
    }
}
