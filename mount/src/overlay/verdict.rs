//! Puts a change to the interceptor and does what it says.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;

use super::Overlay;
use super::reach::NodePath;
use crate::dirs::OpenDir;
use crate::nodes::Fate;
use crate::{Attr, Caller, Change, Dir, Interceptor, Interests, NodeId, Verdict, Victim, sys};

/// A name in a directory, and what was found there.
pub(super) struct Target<'a> {
    pub(super) parent: NodeId,
    pub(super) dir: &'a OpenDir,
    pub(super) name: &'a OsStr,
    pub(super) node: NodeId,
    pub(super) attr: Attr,
    pub(super) writers: u32,
}

impl<I: Interceptor> Overlay<I> {
    /// Looks at what `name` names just now.
    pub(super) fn target<'a>(
        &self,
        parent: NodeId,
        dir: &'a OpenDir,
        name: &'a OsStr,
    ) -> Result<Target<'a>, Errno> {
        let attr = Attr::at(dir, name)?;
        let node = self.numbers.of(&attr);
        Ok(Target {
            parent,
            dir,
            name,
            node,
            attr,
            writers: self.nodes.writers(node),
        })
    }

    pub(super) fn path_of(&self, node: NodeId) -> NodePath<'_, I> {
        NodePath {
            overlay: self,
            node,
        }
    }

    /// Asks about `change` if its kind is wanted, performs `act` if that is the verdict, and
    /// reports the outcome. `doomed` is the file that loses a name by it, if any.
    pub(super) fn put(
        &self,
        caller: Caller,
        (kind, change): (Interests, &Change<'_>),
        doomed: Option<&Target<'_>>,
        act: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<Fate, Errno> {
        let verdict = if self.wants(kind) {
            self.interceptor.before(caller, change)
        } else {
            Verdict::Proceed
        };
        match verdict {
            Verdict::Proceed => {
                let held = doomed.and_then(|target| self.hold(target));
                act()?;
                if let (Some(target), Some(fd)) = (doomed, held) {
                    self.nodes.pin(target.node, Arc::new(fd));
                }
                Ok(Fate::Destroyed)
            }
            Verdict::Moved(place) => Ok(Fate::Kept(place)),
            Verdict::Prepared { ticket, place } => {
                let outcome = act();
                self.interceptor.settled(ticket, outcome);
                outcome.map(|()| place.map_or(Fate::Destroyed, Fate::Kept))
            }
            Verdict::Refuse(errno) => Err(errno),
        }
    }

    /// Keeps the inode of a file that is about to go for good as long as the kernel knows it, so
    /// that a call already on its way finds it, and no other file in its place.
    fn hold(&self, target: &Target<'_>) -> Option<OwnedFd> {
        let goes = !target.attr.is_dir() && target.attr.nlink <= 1;
        if !goes || self.nodes.kind(target.node).is_none() {
            return None;
        }
        sys::open_path(target.dir, target.name).ok()
    }

    /// Takes note that `target` lost its name.
    pub(super) fn note_removed(&self, target: &Target<'_>, fate: Fate) {
        let captured = matches!(fate, Fate::Kept(_));
        let last = target.attr.is_dir() || target.attr.nlink <= 1;
        if target.attr.is_dir()
            && let Some(dir) = self.dirs.remove(target.node)
        {
            self.nodes.pin(target.node, dir.fd.clone());
        }
        self.nodes
            .removed(target.node, target.parent, target.name, fate, last);
        if captured && target.writers > 0 && self.nodes.captured_writable(target.node) {
            self.interceptor.writers_gone(target.node);
        }
    }
}

impl<'a> Target<'a> {
    /// The directory as the interceptor is told of it.
    pub(super) fn dir_for_interceptor<'b, I: Interceptor>(
        &'b self,
        overlay: &Overlay<I>,
        path: &'b NodePath<'_, I>,
    ) -> Dir<'b> {
        dir_for_interceptor(overlay, self.parent, self.dir, path)
    }

    pub(super) fn victim<'b>(&'b self, dir: &'b Dir<'b>) -> Victim<'b> {
        Victim {
            dir,
            name: self.name,
            attr: &self.attr,
            node: self.node,
            writers: self.writers,
        }
    }
}

/// A directory as the interceptor is told of it.
pub(super) fn dir_for_interceptor<'b, I: Interceptor>(
    overlay: &Overlay<I>,
    node: NodeId,
    dir: &'b OpenDir,
    path: &'b NodePath<'_, I>,
) -> Dir<'b> {
    use std::os::fd::AsFd;
    Dir {
        id: node,
        epoch: overlay.epoch(),
        fd: dir.as_fd(),
        path,
    }
}
