//! `renameat2` in all its forms.

use std::ffi::OsStr;

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::Overlay;
use super::verdict::{Target, dir_for_interceptor};
use crate::dirs::OpenDir;
use crate::{Caller, Change, Interceptor, Interests, NodeId, sys};

impl<I: Interceptor> Overlay<I> {
    /// `renameat2(2)`; `flags` are its flags.
    pub fn rename(
        &self,
        caller: Caller,
        from: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
        flags: u32,
    ) -> Result<(), Errno> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let (from_dir, to_dir) = (self.dir(from.0)?, self.dir(to.0)?);
        self.check_old_name(&from_dir, from.1)?;
        self.check_new_name(&to_dir, to.1)?;
        let source = self.target(from.0, &from_dir, from.1)?;
        let act = || sys::rename((&from_dir, from.1), (&to_dir, to.1), flags);
        let target = match self.target(to.0, &to_dir, to.1) {
            Ok(target) => Some(target),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error),
        };
        match target {
            Some(target) if flags.contains(RenameFlags::EXCHANGE) => {
                act()?;
                self.note_exchanged(&source, &target);
            }
            Some(target) if target.attr.same_file(&source.attr) => return act(),
            Some(target) if !flags.contains(RenameFlags::NOREPLACE) => {
                self.replace(caller, &source, &target, act)?;
            }
            Some(_) => return act(),
            None => self.move_to_free_name(caller, &source, to, &to_dir, act)?,
        }
        Ok(())
    }

    fn replace(
        &self,
        caller: Caller,
        source: &Target<'_>,
        target: &Target<'_>,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (from_path, to_path) = (self.path_of(source.parent), self.path_of(target.parent));
        let from_at = source.dir_for_interceptor(self, &from_path);
        let to_at = target.dir_for_interceptor(self, &to_path);
        let change = Change::Replace {
            source: source.victim(&from_at),
            target: target.victim(&to_at),
        };
        let fate = self.put(caller, (Interests::REPLACE, &change), Some(target), act)?;
        self.note_removed(target, fate);
        self.note_moved(source, (target.parent, target.name));
        Ok(())
    }

    fn move_to_free_name(
        &self,
        caller: Caller,
        source: &Target<'_>,
        to: (NodeId, &OsStr),
        to_dir: &OpenDir,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let (from_path, to_path) = (self.path_of(source.parent), self.path_of(to.0));
        let from_at = source.dir_for_interceptor(self, &from_path);
        let to_at = dir_for_interceptor(self, to.0, to_dir, &to_path);
        let change = Change::Rename {
            source: source.victim(&from_at),
            to_dir: &to_at,
            to_name: to.1,
        };
        self.put(caller, (Interests::RENAME, &change), None, act)?;
        self.note_moved(source, to);
        Ok(())
    }

    fn note_moved(&self, source: &Target<'_>, to: (NodeId, &OsStr)) {
        self.nodes
            .drop_name(source.node, source.parent, source.name);
        self.nodes.add_name(source.node, to.0, to.1);
        if source.attr.is_dir() {
            self.directories_moved();
        }
    }

    fn note_exchanged(&self, source: &Target<'_>, target: &Target<'_>) {
        self.note_moved(source, (target.parent, target.name));
        self.note_moved(target, (source.parent, source.name));
    }
}
