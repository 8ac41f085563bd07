//! Keeping what a system call would destroy.

use crate::ids::EntryId;
use crate::record::OpRecord;

/// What a capture tells the keeper behind it, in order, through a channel that never blocks.
#[derive(Debug)]
pub enum CaptureEvent {
    /// An entry's directory was made.
    Opened(Box<OpRecord>),
    /// Nothing more will be added to it and nothing in it is open for writing.
    Closed {
        /// Which.
        entry: EntryId,
        /// Members captured, removed directories included.
        members: u64,
        /// Length of captured regular files in bytes, as at their capture.
        bytes: u64,
    },
    /// Something was deleted outright, as a policy rule said.
    DeletedOutright {
        /// Workspace-relative path.
        path: std::path::PathBuf,
        /// The rule.
        rule: String,
    },
}
