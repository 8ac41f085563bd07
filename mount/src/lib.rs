//! A passthrough FUSE filesystem whose destructive operations are first put to an
//! [`Interceptor`].
//!
//! Layers, each a module, from the kernel down:
//!
//! - `kernel`: decodes a FUSE request, calls [`Overlay`], encodes the reply. No judgement.
//! - `overlay`: POSIX semantics over the backing directory, without FUSE types, testable unmounted.
//! - `nodes`, `handles`: what the kernel knows by number.
//! - `sys`: system calls that the `rustix` crate does not wrap; the only `unsafe` of the project.
//! - `session`: mounting, unmounting, cache invalidation.

mod attr;
mod dirs;
mod handles;
mod intercept;
mod kernel;
pub mod mountinfo;
mod nodes;
mod numbers;
mod overlay;
mod serve;
pub mod session;
mod sys;

pub use attr::{Attr, FileKind, Timestamp};
pub use handles::{HandleId, OpenFile};
pub use intercept::{
    Caller, Change, Dir, Interceptor, Interests, PathSource, Place, ProceedAlways, Ticket, Verdict,
    Victim,
};
pub use overlay::{
    AttrChanges, DirEntry, Found, NewTime, Opened, Overlay, OverlayOptions, SpaceUsage,
};
pub use serve::{Running, ServeOptions, View, serve};
pub use sys::idle_io_priority;

/// Identifies a file to the kernel: the backing's inode number, 1 for the root, a virtual
/// number for files of other filesystems inside the tree.
pub type NodeId = u64;
