//! What is kept, how and for how long: the built-in defaults, then the station's rules, then
//! the workspace's, which may strengthen what a station rule says but never loosen it.
//! `docs/policy.md` is the description for users.

mod budget;
mod builtin;
mod cachedir;
mod error;
mod explain;
mod form;
mod glob;
mod handle;
mod rule;
mod rules;
mod units;

use std::path::Path;

use crate::record::{Cause, Kept};

pub use budget::{Budget, Share};
pub(crate) use builtin::is_git;
pub use cachedir::{CACHEDIR_TAG, is_cache, is_tagged};
pub use error::PolicyError;
pub use explain::{Considered, Explanation, Question, Source, explain};
pub use form::StationPolicy;
pub use handle::{POLICY_FILE, PolicyHandle};
pub use units::{duration_text, parse_duration, parse_size};

/// What the policy may look at.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Workspace-relative path.
    pub path: &'a Path,
    /// Why it would be destroyed.
    pub cause: Cause,
    /// Name of the calling process (proc(5) `comm`).
    pub comm: &'a str,
    /// The calling process is git and was asked to remove (`git clean`, `git rm` and the like).
    pub asked_to_remove: bool,
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
