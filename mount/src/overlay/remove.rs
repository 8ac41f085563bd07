//! `unlink` and `rmdir`.

use std::ffi::OsStr;

use rustix::io::Errno;

use super::Overlay;
use crate::dirs::OpenDir;
use crate::{Caller, Change, Interceptor, Interests, NodeId, sys};

impl<I: Interceptor> Overlay<I> {
    /// `unlink(2)`.
    pub fn unlink(&self, caller: Caller, parent: NodeId, name: &OsStr) -> Result<(), Errno> {
        let dir = self.dir(parent)?;
        self.check_old_name(&dir, name)?;
        let target = self.target(parent, &dir, name)?;
        if target.attr.is_dir() {
            return Err(Errno::ISDIR);
        }
        let path = self.path_of(parent);
        let at = target.dir_for_interceptor(self, &path);
        let change = Change::Unlink(target.victim(&at));
        let asked = (Interests::UNLINK, &change);
        let fate = self.put(caller, asked, Some(&target), || sys::unlink(&dir, name))?;
        self.note_removed(&target, fate);
        Ok(())
    }

    /// `rmdir(2)`.
    pub fn rmdir(&self, caller: Caller, parent: NodeId, name: &OsStr) -> Result<(), Errno> {
        let dir = self.dir(parent)?;
        self.check_old_name(&dir, name)?;
        let target = self.target(parent, &dir, name)?;
        if !target.attr.is_dir() {
            return Err(Errno::NOTDIR);
        }
        let path = self.path_of(parent);
        let at = target.dir_for_interceptor(self, &path);
        let change = Change::Rmdir(target.victim(&at));
        // Whoever is in it may stay there.
        if self.dirs.get(target.node).is_none() {
            self.dirs.insert(
                target.node,
                OpenDir::new(sys::open_dir_path(&dir, name)?)?.into(),
            );
        }
        let asked = (Interests::RMDIR, &change);
        let fate = self.put(caller, asked, None, || sys::rmdir(&dir, name))?;
        self.note_removed(&target, fate);
        Ok(())
    }
}
