//! What the kernel knows by number, and under which names the backing has it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::handles::{Access, OpenFile};
use crate::{Attr, FileKind, NodeId, Place};

/// One name of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) parent: NodeId,
    pub(crate) name: Box<OsStr>,
}

impl Name {
    pub(crate) fn new(parent: NodeId, name: &OsStr) -> Self {
        Self {
            parent,
            name: name.into(),
        }
    }

    fn is(&self, parent: NodeId, name: &OsStr) -> bool {
        self.parent == parent && *self.name == *name
    }
}

/// Names of one node; nearly always one.
pub(crate) type Names = SmallVec<[Name; 1]>;

/// More names of one node than these are not remembered: any that is left leads to it.
const MAX_NAMES: usize = 32;

/// Tells files apart that had the same inode number one after the other. From the time of birth;
/// 0 where the filesystem has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Birth(pub(crate) u64);

impl Birth {
    pub(crate) fn of(attr: &Attr) -> Self {
        let nanos = attr.btime.map_or(0, |t| {
            t.secs
                .wrapping_mul(1_000_000_000)
                .wrapping_add(i64::from(t.nanos))
        });
        Self(nanos.cast_unsigned())
    }
}

/// A file that the kernel has a reference to.
struct Node {
    nlookup: u64,
    birth: Birth,
    /// As told to the kernel; differs from that of any earlier file with this number.
    generation: u64,
    kind: FileKind,
    /// Its last name was removed for good: whatever comes with this number is another file.
    destroyed: bool,
    names: Names,
    /// What few nodes have.
    extra: Option<Box<Extra>>,
}

#[derive(Default)]
struct Extra {
    handles: SmallVec<[Arc<OpenFile>; 1]>,
    writers: u32,
    shared_writers: u32,
    place: Option<Place>,
    /// Keeps something removed reachable for those who are in it, or on their way.
    pinned: Option<Pin>,
    /// It was captured while it could be written to.
    captured_writable: bool,
}

struct Pin {
    fd: Arc<OwnedFd>,
    _slot: Arc<()>,
}

impl Node {
    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    fn add_name(&mut self, parent: NodeId, name: &OsStr) {
        if let [only] = self.names.as_slice()
            && only.is(parent, name)
        {
            return;
        }
        if self.kind == FileKind::Directory {
            self.names.clear();
        }
        self.drop_name(parent, name);
        if self.names.len() >= MAX_NAMES {
            self.names.remove(0);
        }
        self.names.push(Name::new(parent, name));
    }

    fn drop_name(&mut self, parent: NodeId, name: &OsStr) {
        self.names.retain(|known| !known.is(parent, name));
    }

    /// The same number stands for another file from now on.
    fn become_another(&mut self, birth: Birth, kind: FileKind) {
        self.generation = match birth.0 {
            fresh if fresh != self.generation => fresh,
            _ => self.generation.wrapping_add(1),
        };
        self.birth = birth;
        self.kind = kind;
        self.destroyed = false;
        self.names.clear();
        self.extra = None;
    }
}

/// What [`Nodes::remember`] has to say.
pub(crate) struct Remembered {
    pub(crate) generation: u64,
    /// Nobody can change the content without the kernel's noticing.
    pub(crate) steady: bool,
    /// The number was known for another file, whose descriptors are void.
    pub(crate) supplanted: bool,
}

/// How a removed name's file lives on.
pub(crate) enum Fate {
    /// Not by our doing.
    Destroyed,
    /// In the interceptor's care.
    Kept(Place),
}

const SHARDS: usize = 64;

/// The node table.
pub(crate) struct Nodes {
    shards: [Mutex<HashMap<NodeId, Node>>; SHARDS],
    /// Shared by all pins, which counts them.
    pins: Arc<()>,
}

/// More removed files and directories than these are not kept open.
const MAX_PINS: usize = 64;

impl Nodes {
    pub(crate) fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            pins: Arc::default(),
        }
    }

    fn shard(&self, id: NodeId) -> &Mutex<HashMap<NodeId, Node>> {
        &self.shards[id as usize % SHARDS]
    }

    fn with<T>(&self, id: NodeId, look: impl FnOnce(&mut Node) -> T) -> Option<T> {
        self.shard(id).lock().get_mut(&id).map(look)
    }

    fn with_extra<T>(&self, id: NodeId, look: impl FnOnce(&mut Extra) -> T) -> Option<T> {
        self.with(id, |node| node.extra.as_deref_mut().map(look))?
    }

    /// The kernel is about to be told of `id` under this name: counts the reference.
    pub(crate) fn remember(
        &self,
        id: NodeId,
        birth: Birth,
        kind: FileKind,
        parent: NodeId,
        name: &OsStr,
    ) -> Remembered {
        let mut shard = self.shard(id).lock();
        let node = shard.entry(id).or_insert_with(|| Node {
            nlookup: 0,
            birth,
            generation: birth.0,
            kind,
            destroyed: false,
            names: Names::new(),
            extra: None,
        });
        let supplanted = node.destroyed || node.birth != birth || node.kind != kind;
        if supplanted {
            node.become_another(birth, kind);
        }
        node.nlookup += 1;
        node.add_name(parent, name);
        if let Some(extra) = &mut node.extra {
            extra.place = None;
            extra.pinned = None;
        }
        Remembered {
            generation: node.generation,
            steady: node.extra.as_ref().is_none_or(|e| e.shared_writers == 0),
            supplanted,
        }
    }

    /// The kernel dropped `count` references. Says whether none is left.
    pub(crate) fn forget(&self, id: NodeId, count: u64) -> bool {
        let mut shard = self.shard(id).lock();
        let Some(node) = shard.get_mut(&id) else {
            return false;
        };
        node.nlookup = node.nlookup.saturating_sub(count);
        if node.nlookup > 0 {
            return false;
        }
        shard.remove(&id);
        if shard.capacity() > 1024 && shard.len() < shard.capacity() / 8 {
            shard.shrink_to_fit();
        }
        true
    }

    /// Whether `attr` describes the file that the kernel knows as `id`.
    pub(crate) fn is(&self, id: NodeId, birth: Birth) -> bool {
        self.with(id, |node| node.birth == birth).unwrap_or(false)
    }

    pub(crate) fn kind(&self, id: NodeId) -> Option<FileKind> {
        self.with(id, |node| node.kind)
    }

    pub(crate) fn names(&self, id: NodeId) -> Names {
        self.with(id, |node| node.names.clone()).unwrap_or_default()
    }

    pub(crate) fn first_name(&self, id: NodeId) -> Option<Name> {
        self.with(id, |node| node.names.first().cloned())?
    }

    pub(crate) fn is_nameless(&self, id: NodeId) -> bool {
        self.with(id, |node| node.names.is_empty()).unwrap_or(false)
    }

    pub(crate) fn is_steady(&self, id: NodeId) -> bool {
        self.with_extra(id, |extra| extra.shared_writers == 0)
            .unwrap_or(true)
    }

    pub(crate) fn add_name(&self, id: NodeId, parent: NodeId, name: &OsStr) {
        self.with(id, |node| node.add_name(parent, name));
    }

    pub(crate) fn drop_name(&self, id: NodeId, parent: NodeId, name: &OsStr) {
        self.with(id, |node| node.drop_name(parent, name));
    }

    /// A name is gone from the workspace. `last` if the backing has no other.
    pub(crate) fn removed(&self, id: NodeId, parent: NodeId, name: &OsStr, fate: Fate, last: bool) {
        self.with(id, |node| {
            node.drop_name(parent, name);
            match fate {
                Fate::Destroyed => node.destroyed |= last,
                Fate::Kept(place) if node.names.is_empty() => node.extra().place = Some(place),
                Fate::Kept(_) => {}
            }
        });
    }

    /// Keeps something removed reachable, unless there is too much of it.
    pub(crate) fn pin(&self, id: NodeId, fd: Arc<OwnedFd>) {
        if Arc::strong_count(&self.pins) > MAX_PINS {
            return;
        }
        let pin = Pin {
            fd,
            _slot: Arc::clone(&self.pins),
        };
        self.with(id, |node| node.extra().pinned = Some(pin));
    }

    pub(crate) fn pinned(&self, id: NodeId) -> Option<Arc<OwnedFd>> {
        self.with_extra(id, |extra| {
            extra.pinned.as_ref().map(|pin| Arc::clone(&pin.fd))
        })?
    }

    pub(crate) fn place(&self, id: NodeId) -> Option<Place> {
        self.with_extra(id, |extra| extra.place.clone())?
    }

    /// Whether `id` lies where the interceptor put it, without any name that we know of.
    pub(crate) fn is_captured(&self, id: NodeId) -> bool {
        self.with_extra(id, |extra| extra.place.is_some())
            .unwrap_or(false)
    }

    /// Whether `id` was captured while nobody could write to it: its content is final.
    pub(crate) fn is_final(&self, id: NodeId) -> bool {
        self.with_extra(id, |extra| {
            extra.place.is_some() && !extra.captured_writable
        })
        .unwrap_or(false)
    }

    /// A handle through which `id` is open, by preference one that can be written to.
    pub(crate) fn any_handle(&self, id: NodeId) -> Option<Arc<OpenFile>> {
        self.with_extra(id, |extra| {
            let writable = extra.handles.iter().find(|h| h.access.writes());
            writable.or_else(|| extra.handles.first()).cloned()
        })?
    }

    pub(crate) fn writers(&self, id: NodeId) -> u32 {
        self.with_extra(id, |extra| extra.writers).unwrap_or(0)
    }

    /// Counts a writer before the file is opened: whoever captures it meanwhile must know.
    pub(crate) fn opening(&self, id: NodeId, access: Access) {
        if access.writes() {
            self.with(id, |node| {
                node.extra().writers += 1;
                node.extra().shared_writers += u32::from(access == Access::ReadWrite);
            });
        }
    }

    pub(crate) fn opened(&self, file: &Arc<OpenFile>) {
        self.with(file.node, |node| {
            node.extra().handles.push(Arc::clone(file))
        });
    }

    /// Ends what [`Nodes::opening`] began. Says whether the interceptor has to hear that nobody
    /// writes to the captured file any more.
    pub(crate) fn closed(&self, id: NodeId, access: Access, file: Option<&Arc<OpenFile>>) -> bool {
        self.with_extra(id, |extra| {
            if let Some(file) = file {
                extra.handles.retain(|h| !Arc::ptr_eq(h, file));
            }
            if !access.writes() {
                return false;
            }
            extra.writers = extra.writers.saturating_sub(1);
            if access == Access::ReadWrite {
                extra.shared_writers = extra.shared_writers.saturating_sub(1);
            }
            extra.writers == 0 && std::mem::take(&mut extra.captured_writable)
        })
        .unwrap_or(false)
    }

    /// `id` was captured while it had writers. Says whether they have gone meanwhile.
    pub(crate) fn captured_writable(&self, id: NodeId) -> bool {
        self.with(id, |node| {
            let extra = node.extra();
            extra.captured_writable = extra.writers > 0;
            !extra.captured_writable
        })
        .unwrap_or(true)
    }
}
