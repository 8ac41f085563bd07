//! What is kept and what is there change places, so that there is never nothing at the path.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::Mode;
use rustix::io::Errno;
use trashfs_mount::Attr;

use super::back::Back;
use super::{Actor, Halt};
use crate::failure::Failure;
use crate::record::Cause;
use crate::replica::Spot;
use crate::restore::capturing::note_lookalikes;
use crate::restore::plan::io;
use crate::restore::staged::{StagedPath, absent};
use crate::restore::{links, tame};
use crate::staging::CONTAINER_MODE;
use crate::workspace::Workspace;
use crate::{beneath, relocate};

impl Actor<'_> {
    pub(super) fn swap(
        &mut self,
        from: &StagedPath,
        to: &Path,
        ino: u64,
        into: &StagedPath,
    ) -> Result<(), Halt> {
        let what = to.display().to_string();
        let (to_dir, to_name) = self.parent(to)?;
        let there = absent(Attr::at(&to_dir, to_name)).map_err(|e| io(&what, e))?;
        if there.is_some_and(|a| a.ino == ino) || self.swapped_a_copy(from, to, into)? {
            return Ok(());
        }
        if into
            .attr(&self.ws.staging)
            .map_err(|e| io(&what, e))?
            .is_none()
        {
            self.bring_into(from, to, into)?;
        }
        self.pause()?;
        let (into_dir, into_name) = into
            .open_parent(&self.ws.staging)
            .map_err(|e| io(&what, e))?;
        let over = self.ws.mounted_over(to);
        if let Some(point) = over.map_err(|e| Failure::io(&what, &e))? {
            let what = format!("{what} stays: {} is mounted in it", point.display());
            return Err(Failure::refused("mount-point", what).into());
        }
        if let Some(attr) = &there {
            let spot = Spot {
                dir: to_dir.as_fd(),
                name: to_name,
            };
            let entry = into
                .open_entry(&self.ws.staging)
                .map_err(|e| io(&what, e))?;
            note_lookalikes(&entry, (into.tree_name()?, into.path.as_path()), spot, attr)
                .map_err(|e| Failure::io(&what, &e))?;
        }
        let (ours, theirs) = ((&into_dir, into_name), (&to_dir, to_name));
        let exchanged = match relocate::exchange_even_readonly(ours, theirs) {
            Err(Errno::NOENT) => relocate::move_even_readonly(ours, theirs),
            other => other,
        };
        exchanged.map_err(|e| io(&what, e))?;
        let cut_off = from.tree_name()?.cause == Cause::Truncate;
        if cut_off && there.is_some_and(|attr| !attr.is_dir() && attr.nlink > 1) {
            self.notes.push(format!(
                "{what}: its other hard links keep the newer content"
            ));
        }
        self.changed(to);
        if let Some(attr) = into.attr(&self.ws.staging).map_err(|e| io(&what, e))? {
            links::announce(
                self.ws,
                Spot {
                    dir: into_dir.as_fd(),
                    name: into_name,
                },
                &attr,
                1,
            );
        }
        if let Some(last @ Back::Brought { .. }) = self.done.last_mut() {
            *last = Back::Swap {
                from: from.clone(),
                to: to.to_owned(),
                into: into.clone(),
            };
        }
        Ok(())
    }

    /// Whether recovery finds that a copy of the staged file has already taken its path.
    pub(super) fn swapped_a_copy(
        &mut self,
        from: &StagedPath,
        to: &Path,
        into: &StagedPath,
    ) -> Result<bool, Halt> {
        let staged = from
            .attr(&self.ws.staging)
            .map_err(|e| io("staging", e))?
            .is_some();
        let taken = into
            .attr(&self.ws.staging)
            .map_err(|e| io("staging", e))?
            .is_some();
        let swapped = self.recovering && staged && taken && self.agrees(from, to)?;
        if swapped {
            self.copied.push(from.clone());
        }
        Ok(swapped)
    }

    /// Moves (or copies) the staged file to where it can change places with what is there.
    pub(super) fn bring_into(
        &mut self,
        from: &StagedPath,
        to: &Path,
        into: &StagedPath,
    ) -> Result<(), Halt> {
        let what = to.display().to_string();
        let dir = make_place(self.ws, into).map_err(|e| io(&what, e))?;
        let name = into.path.as_path().file_name().unwrap_or(OsStr::new(""));
        let (from_dir, from_name) = from
            .open_parent(&self.ws.staging)
            .map_err(|e| io(&what, e))?;
        let Some(attr) = absent(Attr::at(&from_dir, from_name)).map_err(|e| io(&what, e))? else {
            return self.already_gone(to);
        };
        self.pause()?;
        if attr.is_dir() {
            let spot = Spot {
                dir: from_dir.as_fd(),
                name: from_name,
            };
            let holding = self.holding(&from.entry)?;
            if !holding.whole_roots {
                tame::containers(holding, (from.tree_name()?, from.path.as_path()), spot)
                    .map_err(|e| Failure::io(&what, &e))?;
            }
        }
        match relocate::move_even_readonly((&from_dir, from_name), (&dir, name)) {
            Ok(()) => {
                self.done.push(Back::Brought {
                    from: from.clone(),
                    into: into.clone(),
                });
                links::announce(
                    self.ws,
                    Spot {
                        dir: dir.as_fd(),
                        name,
                    },
                    &attr,
                    -1,
                );
            }
            Err(Errno::XDEV) => {
                let (scratch, copy) = self.copy_beside(from, to, &dir)?;
                relocate::move_even_readonly((&scratch, copy.as_ref()), (&dir, name))
                    .map_err(|e| io(&what, e))?;
                self.copied.push(from.clone());
                self.done.push(Back::Copied);
            }
            Err(e) => return Err(io(&what, e).into()),
        }
        Ok(())
    }
}

/// Makes the directories above a place in staging; gives the one that is to hold it.
fn make_place(ws: &Workspace, into: &StagedPath) -> Result<OwnedFd, Errno> {
    let prefix = into.area.as_path();
    let areas = ws.staging.areas();
    let area = areas
        .iter()
        .find(|a| a.prefix == prefix)
        .ok_or(Errno::NOENT)?;
    let tree = Path::new(into.entry.as_str()).join(&into.tree);
    let tree = beneath::make_dirs(area.ops.as_fd(), &tree, Mode::RWXU)?;
    let parent = into.path.as_path().parent().unwrap_or(Path::new(""));
    beneath::make_dirs(tree.as_fd(), parent, Mode::from_raw_mode(CONTAINER_MODE))
}
