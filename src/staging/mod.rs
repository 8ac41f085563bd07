//! The staging area on disk: where captured files lie until they are restored, released or
//! expire. It describes itself; the journal can be made anew from it.
//!
//! ```text
//! <root>/.trashfs/              0700, hidden by the mount
//!     .gitignore  CACHEDIR.TAG
//!     area.json                 format, workspace id
//!     areas.json                in the main area: where areas on other filesystems are
//!     lock                      flock(2)ed by whoever writes
//!     ops/<entry id>/
//!         op.json               who and when ([`OpRecord`](crate::record::OpRecord))
//!         summary.json          what, once sealed
//!         manifest.jsonl        a line per member with its hash, once hashed
//!         settings.json         hold and retention, if a person changed them
//!         <cause>-<retain>-<n>/ captured files at their workspace-relative paths
//!     purge/<entry id>/         on its way out
//!     scratch/                  half-made copies, emptied at each start
//! ```
//!
//! A directory in a tree whose mode is exactly [`CONTAINER_MODE`] only holds the place of a
//! directory that was not removed. The topmost others are the entry's roots.

mod area;
mod entry;
mod exceptions;
mod pins;
mod register;
mod tree;

pub use area::{Area, AreaError, STAGING_NAME, Staging, whose};
pub use entry::{EntryDir, MANIFEST, OP_RECORD, SETTINGS, SUMMARY, read_record, write_record};
pub(crate) use entry::{damaged_is_none, open_record};
pub use exceptions::Exceptions;
pub use pins::Pin;
pub use register::{AREAS_RECORD, Unreachable};
pub use tree::{CONTAINER_MODE, Tree, TreeName};
