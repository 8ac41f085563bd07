//! Open files: data, space, durability.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::Overlay;
use super::reach::Reach;
use crate::handles::{Access, HandleId, OpenFile};
use crate::{Attr, Caller, Interceptor, NodeId, sys};

/// Flags of an `open(2)` that mean something below; the rest is the kernel's business (creation,
/// truncation) or depends on the caller's buffers (`O_DIRECT`) or identity (`O_NOATIME`).
const PASSED_ON: OFlags = OFlags::ACCMODE
    .union(OFlags::APPEND)
    .union(OFlags::SYNC)
    .union(OFlags::DSYNC);

/// How the backing file is opened for a caller who asked for `flags`.
pub(super) fn backing_flags(flags: i32) -> OFlags {
    let asked = OFlags::from_bits_retain(flags.cast_unsigned());
    (asked & PASSED_ON) | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC
}

/// Does to a changed file what the kernel does after an unprivileged caller's change, where it
/// leaves that to us. Of the caller's capabilities only the user id is known.
pub(super) fn drop_set_id_for(caller: Caller, file: impl AsFd) -> Result<(), Errno> {
    if caller.uid == 0 {
        return Ok(());
    }
    drop_set_id(file)
}

fn drop_set_id(file: impl AsFd) -> Result<(), Errno> {
    let mode = Attr::of(&file)?.permissions();
    let runs_as_group = mode & libc::S_IXGRP != 0;
    let dropped = libc::S_ISUID | if runs_as_group { libc::S_ISGID } else { 0 };
    if mode & dropped == 0 {
        return Ok(());
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode & !dropped))
}

/// A file just opened.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// Its handle.
    pub handle: HandleId,
    /// Attributes of the backing file.
    pub attr: Attr,
    /// Memory may be mapped through it for writing, past the kernel's notice.
    pub unsteady: bool,
}

impl<I: Interceptor> Overlay<I> {
    /// `open(2)` of an existing regular file.
    pub fn open(&self, caller: Caller, node: NodeId, flags: i32) -> Result<Opened, Errno> {
        let flags = backing_flags(flags);
        let access = Access::of(flags);
        if access.writes() {
            self.interceptor.opening_to_write(caller, node);
        }
        self.nodes.opening(node, access);
        match self.open_backing(node, flags) {
            Ok((fd, attr)) => Ok(Opened {
                handle: self.adopt(node, fd, access),
                attr,
                unsteady: access == Access::ReadWrite,
            }),
            Err(error) => {
                self.close(node, access, None);
                Err(error)
            }
        }
    }

    fn open_backing(&self, node: NodeId, flags: OFlags) -> Result<(OwnedFd, Attr), Errno> {
        let by_name = self.under_a_name(node, |dir, name| {
            let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
            let attr = Attr::of(&fd)?;
            if !self.is_node(node, &attr) {
                return Err(Errno::STALE);
            }
            Ok((fd, attr))
        });
        if !matches!(by_name, Err(Errno::STALE)) {
            return by_name;
        }
        if Access::of(flags).writes() && self.nodes.is_final(node) {
            return Err(Errno::STALE);
        }
        let fd = sys::reopen(&self.reach(node)?, flags)?;
        let attr = Attr::of(&fd)?;
        Ok((fd, attr))
    }

    /// Registers a file for which [`crate::nodes::Nodes::opening`] was called.
    pub(super) fn adopt(&self, node: NodeId, fd: OwnedFd, access: Access) -> HandleId {
        let file = Arc::new(OpenFile { node, fd, access });
        self.nodes.opened(&file);
        self.files.insert(file)
    }

    fn close(&self, node: NodeId, access: Access, file: Option<&Arc<OpenFile>>) {
        if self.nodes.closed(node, access, file) {
            self.interceptor.writers_gone(node);
        }
    }

    /// The file behind a handle.
    pub fn file(&self, handle: HandleId) -> Result<Arc<OpenFile>, Errno> {
        self.files.get(handle)
    }

    /// Last use of a handle.
    pub fn release(&self, handle: HandleId) {
        if let Some(file) = self.files.remove(handle) {
            self.close(file.node, file.access, Some(&file));
        }
    }

    /// `close(2)` of one descriptor: says what the backing has to say about earlier writes.
    pub fn flush(&self, handle: HandleId) -> Result<(), Errno> {
        let copy = self.files.get(handle)?.fd.try_clone();
        let copy = copy.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        nix::unistd::close(copy).map_err(|e| Errno::from_raw_os_error(e as i32))
    }

    /// `pread(2)`; fewer bytes than asked for only at the end of the file.
    pub fn read(&self, handle: HandleId, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
        let file = self.files.get(handle)?;
        let mut done = 0;
        while done < buf.len() {
            let part = &mut buf[done..];
            match rustix::io::pread(&file.fd, part, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// `pwrite(2)`; `unprivileged` if the writer may not keep a file's set-id bits.
    pub fn write(
        &self,
        handle: HandleId,
        offset: u64,
        data: &[u8],
        unprivileged: bool,
    ) -> Result<usize, Errno> {
        let file = self.files.get(handle)?;
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(&file.fd, &data[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        if unprivileged {
            drop_set_id(&*file)?;
        }
        Ok(done)
    }

    /// `fsync(2)`, or `fdatasync(2)`.
    pub fn fsync(&self, handle: HandleId, data_only: bool) -> Result<(), Errno> {
        let file = self.files.get(handle)?;
        if data_only {
            rustix::fs::fdatasync(&file.fd)
        } else {
            rustix::fs::fsync(&file.fd)
        }
    }

    /// `fallocate(2)`; `mode` is its mode.
    pub fn fallocate(
        &self,
        caller: Caller,
        handle: HandleId,
        mode: i32,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let file = self.files.get(handle)?;
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        rustix::fs::fallocate(&file.fd, mode, offset, len)?;
        drop_set_id_for(caller, &*file)
    }

    /// `lseek(2)` for `SEEK_DATA` and `SEEK_HOLE`, the two that depend on the backing.
    pub fn lseek(&self, handle: HandleId, offset: i64, whence: i32) -> Result<u64, Errno> {
        let file = self.files.get(handle)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let position = match whence {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        rustix::fs::seek(&file.fd, position)
    }

    /// `copy_file_range(2)`.
    pub fn copy_file_range(
        &self,
        caller: Caller,
        (from, from_offset): (HandleId, u64),
        (to, to_offset): (HandleId, u64),
        len: u64,
    ) -> Result<usize, Errno> {
        let (from, to) = (self.files.get(from)?, self.files.get(to)?);
        let (mut from_offset, mut to_offset) = (from_offset, to_offset);
        let len = usize::try_from(len.min(i32::MAX as u64)).unwrap_or(usize::MAX);
        let copied = rustix::fs::copy_file_range(
            &from.fd,
            Some(&mut from_offset),
            &to.fd,
            Some(&mut to_offset),
            len,
        )?;
        drop_set_id_for(caller, &*to)?;
        Ok(copied)
    }

    /// A handle of `node` that can be written through, opened for once if there is none.
    pub(super) fn writable(&self, node: NodeId) -> Result<Reach, Errno> {
        if let Some(file) = self.nodes.any_handle(node).filter(|f| f.access.writes()) {
            return Ok(Reach::Handle(file));
        }
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        self.open_backing(node, flags)
            .map(|(fd, _)| Reach::Path(fd))
    }
}
