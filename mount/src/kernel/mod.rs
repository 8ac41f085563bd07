//! Decodes a FUSE request, calls the [`Overlay`], encodes the reply. No judgement.

mod convert;
mod features;
mod passthrough;
mod reply;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;

use self::convert::{caller, decode_device, errno, file_attr, file_type, new_time};
use self::passthrough::Passthrough;
use self::reply::{STEADY_TTL, reply_empty, reply_xattr};
use crate::overlay::{AttrChanges, Overlay};
use crate::{Interceptor, NodeId, ServeOptions};

/// The kernel may remember a listing: it hears of every change.
const LISTING: FopenFlags = FopenFlags::FOPEN_CACHE_DIR.union(FopenFlags::FOPEN_KEEP_CACHE);

/// `f_type` of filesystems that report errors of earlier writes when a file is closed.
const REPORTS_AT_CLOSE: [i64; 4] = [
    0x6969,      // nfs
    0xff53_4d42, // cifs
    0xfe53_4d42, // smb2
    0x6573_5546, // fuse
];

/// What every request arrives at.
pub(crate) struct Kernel<I> {
    overlay: Arc<Overlay<I>>,
    passthrough: Passthrough,
    flush_matters: bool,
    /// Set as soon as there is a session.
    notifier: Arc<OnceLock<Notifier>>,
}

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<I: Interceptor> Kernel<I> {
    pub(crate) fn new(
        overlay: Arc<Overlay<I>>,
        options: &ServeOptions,
        notifier: Arc<OnceLock<Notifier>>,
    ) -> Self {
        Self {
            flush_matters: REPORTS_AT_CLOSE.contains(&overlay.filesystem_type()),
            overlay,
            passthrough: Passthrough::new(options.passthrough),
            notifier,
        }
    }

    /// The kernel forgets the attributes that it remembers of `node`. Takes no lock of the
    /// kernel's that a request may hold, unlike other notifications.
    fn distrust_attributes(&self, node: NodeId) {
        if let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.inval_inode(INodeNo(node), -1, 0)
        {
            tracing::debug!(%error, node, "cannot invalidate attributes");
        }
    }
}

impl<I: Interceptor> Filesystem for Kernel<I> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        features::agree(config, &self.passthrough, self.overlay.filesystem_type())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.overlay.lookup(parent.0, name) {
            Err(Errno::NOENT) => {
                reply.entry(&STEADY_TTL, &convert::NOTHING, Generation(0));
            }
            found => self.reply_entry(reply, found),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, count: u64) {
        self.overlay.forget(node.0, count);
    }

    fn getattr(&self, _: &Request, node: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attr(reply, self.overlay.getattr(node.0, handle.map(|h| h.0)));
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = AttrChanges {
            mode,
            uid,
            gid,
            size_bytes: size,
            atime: atime.map(new_time),
            mtime: mtime.map(new_time),
        };
        let handle = handle.map(|h| h.0);
        let changed = self
            .overlay
            .setattr(caller(request), node.0, handle, &changes);
        self.reply_attr(reply, changed);
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        match self.overlay.readlink(node.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let device = decode_device(device);
        let made = self
            .overlay
            .mknod(caller(request), parent.0, name, (mode, umask), device);
        self.reply_entry(reply, made);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self
            .overlay
            .mkdir(caller(request), parent.0, name, (mode, umask));
        self.reply_entry(reply, made);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.overlay.unlink(caller(request), parent.0, name));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.overlay.rmdir(caller(request), parent.0, name));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self
            .overlay
            .symlink(caller(request), parent.0, name, target);
        self.reply_entry(reply, made);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name), (new_parent.0, new_name));
        let renamed = self.overlay.rename(caller(request), from, to, flags.bits());
        reply_empty(reply, renamed);
    }

    fn link(
        &self,
        request: &Request,
        node: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = self
            .overlay
            .link(caller(request), node.0, new_parent.0, new_name);
        self.reply_entry(reply, made);
    }

    fn open(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = match self.overlay.open(caller(request), node.0, flags.0) {
            Ok(opened) => opened,
            Err(error) => return reply.error(errno(error)),
        };
        if opened.unsteady && self.passthrough.hides_writes() {
            self.distrust_attributes(node.0);
        }
        let handle = FileHandle(opened.handle);
        let backing = self.passthrough.enter(node.0, opened.attr.mode, || {
            reply.open_backing(&*self.overlay.file(opened.handle)?)
        });
        match backing {
            Some(backing) => reply.opened_passthrough(handle, FopenFlags::empty(), &backing),
            None => reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self
            .overlay
            .create(caller(request), parent.0, name, (mode, umask), flags);
        let (found, handle) = match created {
            Ok(created) => created,
            Err(error) => return reply.error(errno(error)),
        };
        let backing = self.passthrough.enter(found.node, found.attr.mode, || {
            reply.open_backing(&*self.overlay.file(handle)?)
        });
        // One time to live for name and attributes is all that this reply has.
        let (ttl, attr) = (self.ttl(found.steady), file_attr(&found.attr));
        let (generation, handle) = (Generation(found.generation), FileHandle(handle));
        match backing {
            Some(backing) => {
                let flags = FopenFlags::empty();
                reply.created_passthrough(&ttl, &attr, generation, handle, flags, &backing);
            }
            None => reply.created(
                &ttl,
                &attr,
                generation,
                handle,
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size as usize {
                buffer.resize(size as usize, 0);
            }
            let buffer = &mut buffer[..size as usize];
            match self.overlay.read(handle.0, offset, buffer) {
                Ok(len) => reply.data(&buffer[..len]),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let unprivileged = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match self.overlay.write(handle.0, offset, data, unprivileged) {
            Ok(len) => reply.written(len as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        if self.flush_matters {
            return reply_empty(reply, self.overlay.flush(handle.0));
        }
        // The kernel never asks again.
        reply.error(errno(Errno::NOSYS));
    }

    fn release(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.passthrough.leave(node.0);
        self.overlay.release(handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.overlay.fsync(handle.0, data_only));
    }

    fn opendir(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.overlay.opendir(node.0) {
            Ok(handle) => reply.opened(FileHandle(handle), LISTING),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.overlay.readdir(handle.0, offset, |entry| {
            let kind = file_type(entry.kind);
            reply.add(INodeNo(entry.node), entry.next_offset, kind, entry.name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self
            .overlay
            .readdirplus(handle.0, offset, |entry, found| match found {
                Some(found) => reply.add(
                    INodeNo(found.node),
                    entry.next_offset,
                    entry.name,
                    &self.ttl(found.steady),
                    &file_attr(&found.attr),
                    Generation(found.generation),
                ),
                None => reply.add(
                    INodeNo(entry.node),
                    entry.next_offset,
                    entry.name,
                    &Duration::ZERO,
                    &convert::only_type(entry.node, entry.kind),
                    Generation(0),
                ),
            });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.overlay.releasedir(handle.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.overlay.fsyncdir(handle.0, data_only));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.overlay.statfs() {
            Ok(fs) => reply.statfs(
                fs.blocks,
                fs.blocks_free,
                fs.blocks_available,
                fs.files,
                fs.files_free,
                fs.block_size_bytes as u32,
                fs.max_name_bytes as u32,
                fs.fragment_size_bytes as u32,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.overlay.setxattr(node.0, name, value, flags));
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, size, self.overlay.getxattr(node.0, name));
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.overlay.listxattr(caller(request), node.0);
        reply_xattr(reply, size, names);
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.overlay.removexattr(node.0, name));
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(errno(Errno::NOTTY));
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let caller = caller(request);
        let allocated = self.overlay.fallocate(caller, handle.0, mode, offset, len);
        reply_empty(reply, allocated);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.overlay.lseek(handle.0, offset, whence) {
            Ok(position) => reply.offset(position.cast_signed()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = ((from.0, from_offset), (to.0, to_offset));
        match self.overlay.copy_file_range(caller(request), from, to, len) {
            Ok(copied) => reply.written(copied as u32),
            Err(error) => reply.error(errno(error)),
        }
    }
}
