//! Captures of what is no directory: `unlink`, `rename` over, truncation.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use trashfs_mount::{Caller, FileKind, NodeId, Verdict, Victim};

use super::Capture;
use super::copy::Draft;
use super::dirs::Place;
use super::placing::{Capturing, content_bytes};
use super::settle::{How, Pending, StagedFile};
use super::trees::StagedDir;
use crate::policy::Decision;
use crate::record::Cause;
use crate::relocate;

impl Capture {
    /// `unlink(2)`: one rename into the tree.
    pub(super) fn unlink(&self, caller: Caller, victim: &Victim<'_>) -> Result<Verdict, Errno> {
        let process = self.processes.of(caller);
        let here = self.dirs.place(victim.dir)?;
        let file = (victim.attr.dev, victim.attr.ino);
        let former = self
            .origins
            .former_name(file, process.group)
            .and_then(|path| self.former_place(&path, &here, victim.name));
        let (place, name, cause): (&Place, Cow<'_, OsStr>, Cause) = match &former {
            Some((place, name)) => (place, Cow::Borrowed(name), Cause::Replace),
            None => (&here, Cow::Borrowed(victim.name), Cause::Remove),
        };
        let kept = match self.decide(&process, place, &name, cause, victim.attr) {
            Decision::Keep(kept) => kept,
            Decision::Delete { rule } => return Ok(self.let_go(place.path.join(&name), rule)),
        };
        let capturing = Capturing::new(self.operation(&process), cause, &kept, place);
        let moved = if place.by_copy {
            Err(Errno::XDEV)
        } else {
            self.put(&capturing, Some(victim.dir), &name, |dir| {
                relocate::move_new(victim.dir.fd, victim.name, &dir.fd, &*name)
            })
        };
        match moved {
            Err(Errno::XDEV) => self.capture_copy(capturing, victim, &name),
            other => {
                let dir = other?;
                Ok(self.captured_by_move(&capturing, victim, &name, &dir))
            }
        }
    }

    /// Where a file moved away by the same command is staged: under its former name, if that has
    /// been filled again. So an editor's save is a new version of the file, not the removal of
    /// a backup.
    fn former_place(
        &self,
        path: &Path,
        here: &Place,
        name: &OsStr,
    ) -> Option<(Place, std::ffi::OsString)> {
        let former = path.file_name()?;
        let dir = path.parent()?;
        if (dir == &*here.path && former == name) || !self.dirs.exists(path) {
            return None;
        }
        let place = self.dirs.place_at(dir, here.epoch).ok()?;
        Some((place, former.to_owned()))
    }

    fn captured_by_move(
        &self,
        capturing: &Capturing<'_>,
        victim: &Victim<'_>,
        name: &OsStr,
        dir: &StagedDir,
    ) -> Verdict {
        if victim.attr.nlink > 1 && victim.attr.kind() != FileKind::Directory {
            self.links.change((victim.attr.dev, victim.attr.ino), 1);
        }
        if victim.writers > 0 {
            self.closer.wait_for(&capturing.entry, victim.node);
        }
        self.closer
            .count(&capturing.entry, content_bytes(victim.attr));
        Verdict::Moved(dir.place_of(name))
    }

    /// A verified copy, where nothing can be moved; then the system call itself.
    fn capture_copy(
        &self,
        capturing: Capturing<'_>,
        victim: &Victim<'_>,
        name: &OsStr,
    ) -> Result<Verdict, Errno> {
        let mut draft = Draft::of(&capturing.place.area, victim, true)?;
        let dir = self.put(&capturing, Some(victim.dir), name, |dir| {
            draft.place(&dir.fd, name)
        })?;
        Ok(self.prepared(capturing, victim, None, name, dir, How::Copied))
    }

    /// `rename(2)` onto a file: a second name for it in staging.
    pub(super) fn replace_file(
        &self,
        caller: Caller,
        source: &Victim<'_>,
        target: &Victim<'_>,
    ) -> Result<Verdict, Errno> {
        let process = self.processes.of(caller);
        let place = self.dirs.place(target.dir)?;
        let name = target.name;
        let kept = match self.decide(&process, &place, name, Cause::Replace, target.attr) {
            Decision::Keep(kept) => kept,
            Decision::Delete { rule } => return Ok(self.let_go(place.path.join(name), rule)),
        };
        let capturing = Capturing::new(self.operation(&process), Cause::Replace, &kept, &place);
        if place.by_copy {
            return self.capture_copy(capturing, target, name);
        }
        // An error of the link itself: one from making its directory is no reason to exchange.
        let refused = Cell::new(false);
        let linked = self.put(&capturing, Some(target.dir), name, |dir| {
            let linked = rustix::fs::linkat(target.dir.fd, name, &dir.fd, name, AtFlags::empty());
            refused.set(linked.is_err());
            linked
        });
        match linked {
            Ok(dir) => {
                Ok(self.prepared(capturing, target, Some(source.node), name, dir, How::Linked))
            }
            Err(Errno::XDEV) => self.capture_copy(capturing, target, name),
            Err(Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP) if refused.get() => {
                self.replace_by_exchange(&capturing, source, target)
            }
            Err(error) => Err(error),
        }
    }

    /// Where no second name can be made: source and target change places, and the victim is
    /// moved away from the source's name. At no time is there nothing under the target's name.
    fn replace_by_exchange(
        &self,
        capturing: &Capturing<'_>,
        source: &Victim<'_>,
        target: &Victim<'_>,
    ) -> Result<Verdict, Errno> {
        let exchange =
            || relocate::exchange(source.dir.fd, source.name, target.dir.fd, target.name);
        exchange()?;
        let moved = self.put(capturing, Some(target.dir), target.name, |dir| {
            relocate::move_new(source.dir.fd, source.name, &dir.fd, target.name)
        });
        match moved {
            Ok(dir) => Ok(self.captured_by_move(capturing, target, target.name, &dir)),
            Err(error) => {
                if let Err(error) = exchange() {
                    tracing::error!(%error, name = %target.name.display(),
                        "an overwriting that could not be captured was not taken back: \
                         the old file has the name of the new one");
                }
                Err(error)
            }
        }
    }

    /// The file gets shorter: its content is copied first.
    pub(super) fn truncate(&self, caller: Caller, file: &Victim<'_>) -> Result<Verdict, Errno> {
        if file.attr.size_bytes == 0 {
            return Ok(Verdict::Proceed);
        }
        let process = self.processes.of(caller);
        let place = self.dirs.place(file.dir)?;
        let decision = self.decide(&process, &place, file.name, Cause::Truncate, file.attr);
        let kept = match decision {
            Decision::Keep(kept) => kept,
            Decision::Delete { rule } => {
                return Ok(self.let_go(place.path.join(file.name), rule));
            }
        };
        let mut draft = Draft::of(&place.area, file, false)?;
        let capturing = Capturing::new(self.operation(&process), Cause::Truncate, &kept, &place);
        let dir = self.put(&capturing, None, file.name, |dir| {
            draft.place(&dir.fd, file.name)
        })?;
        Ok(self.prepared(
            capturing,
            file,
            Some(file.node),
            file.name,
            dir,
            How::Truncated,
        ))
    }

    fn prepared(
        &self,
        capturing: Capturing<'_>,
        victim: &Victim<'_>,
        successor: Option<NodeId>,
        name: &OsStr,
        dir: Arc<StagedDir>,
        how: How,
    ) -> Verdict {
        let place = match how {
            How::Linked | How::Copied => Some(dir.place_of(name)),
            How::Truncated => None,
        };
        if how == How::Linked {
            self.links.change((victim.attr.dev, victim.attr.ino), 1);
            if victim.writers > 0 {
                self.closer.wait_for(&capturing.entry, victim.node);
            }
        }
        let pending = Pending::File(StagedFile {
            operation: capturing.operation,
            successor,
            entry: capturing.entry,
            dir,
            name: name.to_owned(),
            attr: *victim.attr,
            node: victim.node,
            how,
        });
        Verdict::Prepared {
            ticket: self.tickets.give(pending),
            place,
        }
    }
}
