//! Names to nodes, and back to nothing.

use std::ffi::OsStr;

use rustix::io::Errno;

use super::{Found, Overlay};
use crate::numbers::ROOT;
use crate::{Attr, Interceptor, NodeId};

impl<I: Interceptor> Overlay<I> {
    /// What `name` in `parent` names. The kernel holds a reference to it from now on.
    pub fn lookup(&self, parent: NodeId, name: &OsStr) -> Result<Found, Errno> {
        let dir = self.dir(parent)?;
        self.check_old_name(&dir, name)?;
        let attr = Attr::at(&dir, name)?;
        Ok(self.found(parent, name, &attr))
    }

    /// Counts a reference of the kernel's to the file that was seen under `name`.
    pub(super) fn found(&self, parent: NodeId, name: &OsStr, attr: &Attr) -> Found {
        let node = self.numbers.of(attr);
        let known = self
            .nodes
            .remember(node, self.birth(attr), attr.kind(), parent, name);
        if known.supplanted {
            self.dirs.remove(node);
        }
        Found {
            node,
            generation: known.generation,
            attr: self.as_seen(node, attr, false),
            steady: known.steady,
        }
    }

    /// The kernel dropped `count` references to `node`.
    pub fn forget(&self, node: NodeId, count: u64) {
        if self.nodes.forget(node, count) {
            self.dirs.remove(node);
        }
    }

    /// The attributes that users see: their number, and no link of the interceptor's.
    pub(super) fn as_seen(&self, node: NodeId, attr: &Attr, captured: bool) -> Attr {
        let matters = if attr.is_dir() {
            node == ROOT || attr.dev != self.root.attr.dev
        } else {
            attr.nlink > 1 || captured
        };
        let hidden = if matters {
            self.interceptor.hidden_links(attr)
        } else {
            0
        };
        Attr {
            ino: if node == ROOT { attr.ino } else { node },
            nlink: attr.nlink.saturating_sub(hidden),
            ..*attr
        }
    }
}
