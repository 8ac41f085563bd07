//! `stat`, and everything that `setattr` may mean.

use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::Errno;

use super::Overlay;
use super::file::drop_set_id_for;
use super::reach::Reach;
use super::verdict::Target;
use crate::handles::HandleId;
use crate::numbers::ROOT;
use crate::{Attr, Caller, Change, FileKind, Interceptor, Interests, NodeId, Timestamp, sys};

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// That of the call.
    Now,
    /// This one.
    At(Timestamp),
}

/// Attributes to be changed; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names are those of inode(7)")]
pub struct AttrChanges {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size_bytes: Option<u64>,
    pub atime: Option<NewTime>,
    pub mtime: Option<NewTime>,
}

/// What `statfs(2)` says of the backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of statvfs(3)")]
pub struct SpaceUsage {
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub block_size_bytes: u64,
    pub fragment_size_bytes: u64,
    pub max_name_bytes: u64,
}

impl<I: Interceptor> Overlay<I> {
    /// Attributes of a node, and whether they may be remembered.
    pub fn getattr(&self, node: NodeId, handle: Option<HandleId>) -> Result<(Attr, bool), Errno> {
        let attr = self.raw_attr(node, handle)?;
        let seen = self.as_seen(node, &attr, self.nodes.is_captured(node));
        Ok((seen, self.nodes.is_steady(node)))
    }

    /// Attributes as the backing has them.
    fn raw_attr(&self, node: NodeId, handle: Option<HandleId>) -> Result<Attr, Errno> {
        if let Some(file) = handle.and_then(|h| self.files.get(h).ok()) {
            return Attr::of(&*file);
        }
        if node == ROOT || self.nodes.kind(node) == Some(FileKind::Directory) {
            return Attr::of(self.reach(node)?);
        }
        let by_name = self.under_a_name(node, |dir, name| {
            let attr = Attr::at(dir, name)?;
            self.is_node(node, &attr)
                .then_some(attr)
                .ok_or(Errno::STALE)
        });
        match by_name {
            Err(Errno::STALE) => Attr::of(self.reach(node)?),
            other => other,
        }
    }

    /// `chmod`, `chown`, `truncate` and `utimensat` in one.
    pub fn setattr(
        &self,
        caller: Caller,
        node: NodeId,
        handle: Option<HandleId>,
        changes: &AttrChanges,
    ) -> Result<(Attr, bool), Errno> {
        if let Some(size) = changes.size_bytes {
            self.truncate(caller, node, handle, size)?;
        }
        if changes.touches_inode() {
            let file = match handle.map(|h| self.files.get(h)) {
                Some(Ok(file)) => Reach::Handle(file),
                _ => self.reach(node)?,
            };
            changes.apply(&file)?;
        }
        self.getattr(node, handle)
    }

    fn truncate(
        &self,
        caller: Caller,
        node: NodeId,
        handle: Option<HandleId>,
        size: u64,
    ) -> Result<(), Errno> {
        let file = match handle.map(|h| self.files.get(h)) {
            Some(Ok(file)) if file.access.writes() => Reach::Handle(file),
            _ => self.writable(node)?,
        };
        let act = || rustix::fs::ftruncate(&file, size);
        let attr = Attr::of(&file)?;
        if self.wants(Interests::TRUNCATE) && attr.is_regular() && size < attr.size_bytes {
            self.shorten(caller, node, &attr, size, act)?;
        } else {
            act()?;
        }
        drop_set_id_for(caller, &file)
    }

    /// Puts a truncation to the interceptor, unless the file has lost its last name: then nobody
    /// could get it back anyway, or whoever captured it was told that it may still change.
    fn shorten(
        &self,
        caller: Caller,
        node: NodeId,
        attr: &Attr,
        size: u64,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let Some((dir, name)) = self.current_name(node)? else {
            return act();
        };
        let target = Target {
            parent: name.parent,
            dir: &dir,
            name: &name.name,
            node,
            attr: *attr,
            writers: self.nodes.writers(node),
        };
        let path = self.path_of(name.parent);
        let at = target.dir_for_interceptor(self, &path);
        let change = Change::Truncate {
            file: target.victim(&at),
            new_size_bytes: size,
        };
        self.put(caller, (Interests::TRUNCATE, &change), None, act)?;
        Ok(())
    }

    /// `statfs(2)`.
    pub fn statfs(&self) -> Result<SpaceUsage, Errno> {
        let fs = rustix::fs::fstatvfs(&self.root)?;
        Ok(SpaceUsage {
            blocks: fs.f_blocks,
            blocks_free: fs.f_bfree,
            blocks_available: fs.f_bavail,
            files: fs.f_files,
            files_free: fs.f_ffree,
            block_size_bytes: fs.f_bsize,
            fragment_size_bytes: fs.f_frsize,
            max_name_bytes: fs.f_namemax,
        })
    }
}

impl AttrChanges {
    fn touches_inode(&self) -> bool {
        self.mode.is_some()
            || self.uid.is_some()
            || self.gid.is_some()
            || self.atime.is_some()
            || self.mtime.is_some()
    }

    /// The owner first: changing it clears the set-id bits that `mode` may bring.
    fn apply(&self, file: &Reach) -> Result<(), Errno> {
        if self.uid.is_some() || self.gid.is_some() {
            let (uid, gid) = (self.uid.map(Uid::from_raw), self.gid.map(Gid::from_raw));
            rustix::fs::chownat(file, c"", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = self.mode {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            match file {
                Reach::Handle(file) => rustix::fs::fchmod(&**file, mode)?,
                _ => rustix::fs::chmod(sys::magic_link(file), mode)?,
            }
        }
        if self.atime.is_some() || self.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(self.atime),
                last_modification: timespec(self.mtime),
            };
            rustix::fs::utimensat(file, c"", &times, AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }
}

fn timespec(time: Option<NewTime>) -> Timespec {
    let (tv_sec, tv_nsec) = match time {
        None => (0, UTIME_OMIT),
        Some(NewTime::Now) => (0, UTIME_NOW),
        Some(NewTime::At(t)) => (t.secs, t.nanos.into()),
    };
    Timespec { tv_sec, tv_nsec }
}
