//! To another filesystem: a verified copy first; what is staged goes when all is done.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use trashfs_mount::Attr;

use super::back::Back;
use super::{Actor, Halt, move_failed};
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::replica::{Copier, Spot};
use crate::restore::plan::io;
use crate::restore::staged::StagedPath;
use crate::restore::tame;
use crate::staging::Area;
use crate::{beneath, discard, relocate};

/// A copy in the making beside its destination has this name and the entry's id.
const BESIDE: &str = ".trashfs-returning-";

impl Actor<'_> {
    /// To another filesystem: a verified copy first; the staged one goes when all is done.
    pub(super) fn copy_across(&mut self, from: &StagedPath, to: &Path) -> Result<(), Halt> {
        let (to_dir, to_name) = self.parent(to)?;
        let (scratch, name) = self.copy_beside(from, to, &to_dir)?;
        self.pause()?;
        if let Err(e) = relocate::move_even_readonly((&scratch, name.as_ref()), (&to_dir, to_name))
        {
            let cleared = discard::tree(scratch.as_fd(), name.as_ref());
            self.note_if_failed(cleared, "clearing a half-made copy");
            return Err(move_failed(to, e).into());
        }
        self.done.push(Back::Copied);
        self.copied.push(from.clone());
        Ok(())
    }

    /// A verified, synced copy of a staged file on the filesystem of `dir`.
    pub(super) fn copy_beside(
        &mut self,
        from: &StagedPath,
        to: &Path,
        dir: &OwnedFd,
    ) -> Result<(OwnedFd, String), Halt> {
        let what = to.display().to_string();
        let (scratch, name) = self.scratch_for(from, to, dir)?;
        let (from_dir, from_name) = from
            .open_parent(&self.ws.staging)
            .map_err(|e| io(&what, e))?;
        let tree = from.tree_name()?;
        let holding = self.holding(&from.entry)?;
        let sane = |path: &Path, attr: &Attr| tame::sane_mode(holding, tree, path, attr);
        let mut copier = Copier::new(scratch.as_fd()).map_err(|e| io(&what, e))?;
        let spot = Spot {
            dir: from_dir.as_fd(),
            name: from_name,
        };
        let made = copier
            .copy(spot, (from.path.as_path(), &sane), Path::new(&name))
            .and_then(|()| {
                Ok(rustix::fs::syncfs(beneath::open_dir_readable(
                    &scratch, c".",
                )?)?)
            });
        let notes = copier.copied.into_notes();
        self.notes.extend(notes);
        if let Err(e) = made {
            let cleared = discard::tree(scratch.as_fd(), name.as_ref());
            self.note_if_failed(cleared, "clearing a half-made copy");
            return Err(Failure::io(&what, &e).into());
        }
        Ok((scratch, name))
    }

    /// Where a copy can be made out of sight: in the staging area of that filesystem, else under
    /// a name of its own beside its destination.
    pub(super) fn scratch_for(
        &self,
        from: &StagedPath,
        to: &Path,
        dir: &OwnedFd,
    ) -> Result<(OwnedFd, String), Halt> {
        let what = "the staging area";
        let area = self.ws.staging.area_of(to);
        let here = Attr::of(dir).map_err(|e| io(what, e))?;
        if here.mnt_id == area.root_attr.mnt_id && here.dev == area.root_attr.dev {
            return Ok((
                scratch_of(&area).map_err(|e| io(what, e))?,
                EntryId::random().to_string(),
            ));
        }
        let beside = beneath::open_dir(dir.as_fd(), Path::new("")).map_err(|e| io(what, e))?;
        let name = format!("{BESIDE}{}", from.entry);
        // The half-made copy of an interrupted attempt: the entry is pinned, so it is nobody else's.
        discard::tree(beside.as_fd(), name.as_ref()).map_err(|e| Failure::io(&name, &e))?;
        Ok((beside, name))
    }
}

/// The directory for half-made copies in an area.
pub(super) fn scratch_of(area: &Area) -> Result<OwnedFd, Errno> {
    beneath::open_dir_at(&area.staging, OsStr::new("scratch"))
}
