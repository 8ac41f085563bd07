//! What is kept, how and for how long.

use std::path::Path;

use crate::record::{Cause, Kept};

/// What the policy may look at.
pub struct Subject<'a> {
    /// Workspace-relative path.
    pub path: &'a Path,
    /// Why it would be destroyed.
    pub cause: Cause,
    /// Name of the calling process (proc(5) `comm`).
    pub comm: &'a str,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Age since its birth (else its last modification) in seconds.
    pub age_s: u64,
    /// Made by the same process within the last ten seconds.
    pub scratch: bool,
    /// Lies in a tree with a valid CACHEDIR.TAG.
    pub cache: bool,
}

/// What to do with a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Capture it.
    Keep(Kept),
    /// Delete outright: an explicit rule said so; it is logged with the rule.
    Delete {
        /// The rule, as `trash policy explain` names it.
        rule: String,
    },
}

/// The rules in force; swapped as a whole when the file changes.
pub struct PolicyHandle {}

impl PolicyHandle {
    /// Only the built-in defaults.
    pub fn defaults() -> Self {
        Self {}
    }

    /// Decides. Must be fast: it is asked for every capture.
    pub fn decide(&self, _subject: &Subject<'_>) -> Decision {
        Decision::Keep(Kept {
            keep: crate::record::Keep::Hosted,
            retain: std::time::Duration::from_secs(365 * 86_400),
            versions_max: None,
        })
    }
}
