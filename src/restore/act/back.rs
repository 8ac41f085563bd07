//! Taking steps back after an error.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::Actor;
use crate::failure::Failure;
use crate::restore::staged::StagedPath;
use crate::{beneath, discard, relocate};

/// How a step is taken back.
pub(super) enum Back {
    Move {
        from: StagedPath,
        to: PathBuf,
    },
    Exchange {
        from: StagedPath,
        with: PathBuf,
    },
    /// The staged file was brought beside its destination and went no further.
    Brought {
        from: StagedPath,
        into: StagedPath,
    },
    Swap {
        from: StagedPath,
        to: PathBuf,
        into: StagedPath,
    },
    MadeDir(PathBuf),
    /// A verified copy was made; the staged one is still there.
    Copied,
}

impl Actor<'_> {
    /// Takes back the steps that were taken, newest first, and says in what state things are.
    pub(super) fn take_back(&mut self, failure: Failure) -> Failure {
        let mut stuck = None;
        while let Some(back) = self.done.pop() {
            if let Err(e) = self.back(&back) {
                stuck = Some(e);
                break;
            }
        }
        match stuck {
            None => {
                self.taken_back = true;
                failure.state("nothing was changed")
            }
            Some(e) => {
                tracing::error!(error = %e, "a failed restore could not be taken back");
                failure
                    .state("it was interrupted; nothing is lost, and it can be finished")
                    .next("trash recover ID")
            }
        }
    }

    pub(super) fn back(&mut self, back: &Back) -> Result<(), Errno> {
        let staging = &self.ws.staging;
        let place = |path: &Path| {
            beneath::open_parent(self.base.as_fd(), path).map(|(dir, name)| (dir, name.to_owned()))
        };
        let path = match back {
            Back::Brought { from, into } => {
                let ((into_dir, into_name), (from_dir, from_name)) =
                    (into.open_parent(staging)?, from.open_parent(staging)?);
                return relocate::move_even_readonly(
                    (&into_dir, into_name),
                    (&from_dir, from_name),
                );
            }
            Back::Move { from, to } => {
                let ((dir, name), (from_dir, from_name)) = (place(to)?, from.open_parent(staging)?);
                relocate::move_even_readonly((&dir, &name), (&from_dir, from_name))?;
                to
            }
            Back::Exchange { from, with } => {
                let ((dir, name), (from_dir, from_name)) =
                    (place(with)?, from.open_parent(staging)?);
                relocate::exchange_even_readonly((&dir, &name), (&from_dir, from_name))?;
                with
            }
            Back::Swap { from, to, into } => {
                let ((dir, name), (into_dir, into_name)) = (place(to)?, into.open_parent(staging)?);
                relocate::exchange_even_readonly((&dir, &name), (&into_dir, into_name))?;
                let (from_dir, from_name) = from.open_parent(staging)?;
                relocate::move_even_readonly((&into_dir, into_name), (&from_dir, from_name))?;
                to
            }
            Back::MadeDir(path) => {
                let (dir, name) = place(path)?;
                discard::empty_dir(&dir, name.as_os_str())?;
                path
            }
            Back::Copied => return Err(Errno::XDEV),
        };
        self.changed(&path.clone());
        Ok(())
    }
}
