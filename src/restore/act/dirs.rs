//! Making directories anew and giving them what they had.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::Mode;
use rustix::io::Errno;
use trashfs_mount::{Attr, Timestamp};

use super::across::scratch_of;
use super::back::Back;
use super::{Actor, Halt};
use crate::ids::EntryId;
use crate::replica::{self, Spot};
use crate::restore::intent::DirAttrs;
use crate::restore::plan::io;
use crate::restore::staged::{StagedPath, absent};
use crate::staging::CONTAINER_MODE;
use crate::{discard, relocate};

impl Actor<'_> {
    pub(super) fn make_dir(
        &mut self,
        path: &Path,
        like: Option<&StagedPath>,
        attrs: &DirAttrs,
    ) -> Result<(), Halt> {
        let what = path.display().to_string();
        let (dir, name) = self.parent(path)?;
        if absent(Attr::at(&dir, name))
            .map_err(|e| io(&what, e))?
            .is_some_and(|a| a.is_dir())
        {
            return Ok(());
        }
        let area = self.ws.staging.area_of(path);
        let scratch = scratch_of(&area).map_err(|e| io(&what, e))?;
        let fresh = EntryId::random().to_string();
        rustix::fs::mkdirat(&scratch, fresh.as_str(), Mode::RWXU).map_err(|e| io(&what, e))?;
        let spot = Spot {
            dir: scratch.as_fd(),
            name: fresh.as_ref(),
        };
        self.set_attributes(like, spot, path, attrs);
        match relocate::move_even_readonly((&scratch, fresh.as_ref()), (&dir, name)) {
            Ok(()) => {}
            Err(Errno::XDEV) => {
                discard::empty_dir(&scratch, fresh.as_str()).map_err(|e| io(&what, e))?;
                rustix::fs::mkdirat(&dir, name, Mode::RWXU).map_err(|e| io(&what, e))?;
                self.set_attributes(
                    like,
                    Spot {
                        dir: dir.as_fd(),
                        name,
                    },
                    path,
                    attrs,
                );
            }
            Err(e) => return Err(io(&what, e).into()),
        }
        self.done.push(Back::MadeDir(path.to_owned()));
        self.changed(path);
        Ok(())
    }

    pub(super) fn attributes(
        &mut self,
        like: Option<&StagedPath>,
        path: &Path,
        attrs: &DirAttrs,
    ) -> Result<(), Halt> {
        let (dir, name) = self.parent(path)?;
        self.set_attributes(
            like,
            Spot {
                dir: dir.as_fd(),
                name,
            },
            path,
            attrs,
        );
        self.changed(path);
        Ok(())
    }

    pub(super) fn set_attributes(
        &mut self,
        like: Option<&StagedPath>,
        at: Spot<'_>,
        path: &Path,
        attrs: &DirAttrs,
    ) {
        let owner = replica::set_owner(at, attrs.uid, attrs.gid);
        self.note_if_failed(
            owner,
            &format!("{}: the owner could not be set", path.display()),
        );
        let mode = replica::set_mode(at, attrs.mode);
        self.note_if_failed(
            mode,
            &format!("{}: the mode could not be set", path.display()),
        );
        if let Some(Ok((dir, name))) = like.map(|staged| staged.open_parent(&self.ws.staging)) {
            for (attribute, e) in replica::copy_xattrs(
                Spot {
                    dir: dir.as_fd(),
                    name,
                },
                at,
            ) {
                let what = format!("{}: {attribute} could not be set", path.display());
                self.note_if_failed(Err::<(), _>(e), &what);
            }
        }
        let (atime, mtime) = times_of(attrs);
        let times = replica::set_times(at, atime, mtime);
        self.note_if_failed(
            times,
            &format!("{}: the times could not be set", path.display()),
        );
    }

    pub(super) fn times(&mut self, path: &Path, attrs: &DirAttrs) -> Result<(), Halt> {
        let (dir, name) = self.parent(path)?;
        let (atime, mtime) = times_of(attrs);
        let set = replica::set_times(
            Spot {
                dir: dir.as_fd(),
                name,
            },
            atime,
            mtime,
        );
        self.note_if_failed(
            set,
            &format!("{}: the times could not be set", path.display()),
        );
        self.changed(path);
        Ok(())
    }
}

pub(super) fn times_of(attrs: &DirAttrs) -> (Timestamp, Timestamp) {
    let stamp = |(secs, nanos): (i64, u32)| Timestamp { secs, nanos };
    (stamp(attrs.atime), stamp(attrs.mtime))
}

/// A staged directory that a member is taken out of keeps its times.
pub(super) fn keep_times(dir: &OwnedFd, was: &Attr) {
    if was.permissions() == CONTAINER_MODE {
        return;
    }
    let set = replica::set_times(
        Spot {
            dir: dir.as_fd(),
            name: OsStr::new("."),
        },
        was.atime,
        was.mtime,
    );
    if let Err(e) = set {
        tracing::warn!(error = %e, "the times of a staged directory could not be kept");
    }
}
