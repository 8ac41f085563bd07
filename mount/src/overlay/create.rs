//! New names: files, directories, links and special files.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, OFlags};
use rustix::io::Errno;

use super::{Found, Overlay};
use crate::dirs::OpenDir;
use crate::handles::{Access, HandleId};
use crate::sys::{self, Persona};
use crate::{Attr, Caller, FileKind, Interceptor, Interests, NodeId};

impl<I: Interceptor> Overlay<I> {
    /// `open(2)` with `O_CREAT` of a name that the kernel believes to be free; `flags` are those
    /// of `open(2)`.
    ///
    /// If something has got that name meanwhile, `STALE` makes the kernel look again; opening it
    /// here would let `O_TRUNC` destroy what nobody was asked about.
    pub fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &OsStr,
        (mode, umask): (u32, u32),
        flags: i32,
    ) -> Result<(Found, HandleId), Errno> {
        let dir = self.dir(parent)?;
        self.check_new_name(&dir, name)?;
        let wanted = OFlags::from_bits_retain(flags.cast_unsigned());
        let how = super::file::backing_flags(flags) | OFlags::CREATE | OFlags::EXCL;
        let fd = {
            let (_persona, mode) = Persona::assume(caller, mode, umask);
            rustix::fs::openat(&dir, name, how, mode)
        }
        .map_err(|error| match error {
            Errno::EXIST if !wanted.contains(OFlags::EXCL) => Errno::STALE,
            other => other,
        })?;
        let attr = Attr::of(&fd)?;
        let mut found = self.made(caller, parent, name, &attr);
        let access = Access::of(how);
        self.nodes.opening(found.node, access);
        found.steady &= access != Access::ReadWrite;
        let handle = self.adopt(found.node, fd, access);
        Ok((found, handle))
    }

    /// `mkdir(2)`.
    pub fn mkdir(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &OsStr,
        (mode, umask): (u32, u32),
    ) -> Result<Found, Errno> {
        self.make(caller, parent, name, |dir| {
            let (_persona, mode) = Persona::assume(caller, mode, umask);
            rustix::fs::mkdirat(dir, name, mode)
        })
    }

    /// `mknod(2)`; `device` as `makedev(3)` packs it.
    pub fn mknod(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &OsStr,
        (mode, umask): (u32, u32),
        device: u64,
    ) -> Result<Found, Errno> {
        self.make(caller, parent, name, |dir| {
            let kind = FileType::from_raw_mode(mode);
            let (_persona, mode) = Persona::assume(caller, mode, umask);
            rustix::fs::mknodat(dir, name, kind, mode, device)
        })
    }

    /// `symlink(2)`.
    pub fn symlink(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &OsStr,
        target: &Path,
    ) -> Result<Found, Errno> {
        self.make(caller, parent, name, |dir| {
            let (_persona, _) = Persona::assume(caller, 0, 0);
            rustix::fs::symlinkat(target, dir, name)
        })
    }

    /// `link(2)`: one more name for `node`.
    pub fn link(
        &self,
        caller: Caller,
        node: NodeId,
        parent: NodeId,
        name: &OsStr,
    ) -> Result<Found, Errno> {
        if self.nodes.is_nameless(node) {
            return Err(Errno::NOENT);
        }
        let source = self.reach(node)?;
        self.make(caller, parent, name, |dir| {
            rustix::fs::linkat(
                rustix::fs::CWD,
                sys::magic_link(&source),
                dir,
                name,
                AtFlags::SYMLINK_FOLLOW,
            )
        })
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, node: NodeId) -> Result<Vec<u8>, Errno> {
        if self.nodes.kind(node) != Some(FileKind::Symlink) {
            return Err(Errno::INVAL);
        }
        let target = rustix::fs::readlinkat(self.reach(node)?, c"", Vec::new())?;
        Ok(target.into_bytes())
    }

    fn make(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &OsStr,
        act: impl FnOnce(&Arc<OpenDir>) -> Result<(), Errno>,
    ) -> Result<Found, Errno> {
        let dir = self.dir(parent)?;
        self.check_new_name(&dir, name)?;
        act(&dir)?;
        let attr = Attr::at(&dir, name)?;
        Ok(self.made(caller, parent, name, &attr))
    }

    fn made(&self, caller: Caller, parent: NodeId, name: &OsStr, attr: &Attr) -> Found {
        if self.wants(Interests::CREATE) {
            self.interceptor.created(caller, attr);
        }
        self.found(parent, name, attr)
    }
}
