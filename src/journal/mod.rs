//! The journal: which operations there are and how far each has come.

mod state;

pub use state::{Event, Illegal, State};

use crate::failure::Failure;
use crate::ids::EntryId;
use crate::record::{Cause, Entry};

/// Which entries to list, newest first.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Filter {
    /// Literal text in a path.
    pub path: Option<String>,
    /// Exact agent.
    pub agent: Option<String>,
    /// Exact session.
    pub session: Option<String>,
    /// Only entries with this effective cause.
    pub cause: Option<Cause>,
    /// Not older than this.
    pub since: Option<crate::clock::UnixNanos>,
    /// Overwritten versions, too (otherwise only entries with a removal).
    pub all: bool,
    /// Ended ones, too.
    pub ended: bool,
    /// Only unfinished ones: open, failed, or on their way.
    pub pending: bool,
    /// Rows; 20 where 0, at most 100.
    pub limit: u32,
    /// Where the last page ended.
    pub cursor: Option<String>,
}

/// A page of entries.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// Newest first.
    pub entries: Vec<Entry>,
    /// For the next page; none on the last.
    pub next_cursor: Option<String>,
}

/// The journal of one workspace.
pub struct Journal {}

impl Journal {
    /// One entry.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn entry(&self, _id: &EntryId) -> Result<Option<Entry>, Failure> {
        Ok(None)
    }

    /// The entry whose id begins with `prefix`.
    ///
    /// # Errors
    /// `unknown-id` or `ambiguous-id`, or when the journal can't be read.
    pub fn find(&self, prefix: &str) -> Result<Entry, Failure> {
        Err(Failure::failed("unknown-id", format!("no entry {prefix}")))
    }

    /// Newest first.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn list(&self, _filter: &Filter) -> Result<Page, Failure> {
        Ok(Page {
            entries: Vec::new(),
            next_cursor: None,
        })
    }

    /// Applies `event` to the entry's state, lets `change` set what goes with it, and writes
    /// both in one transaction that is durable on return.
    ///
    /// # Errors
    /// `unknown-id`, `illegal-transition`, or when the journal can't be written.
    pub fn apply(
        &self,
        _id: &EntryId,
        _event: Event,
        _change: impl FnOnce(&mut Entry),
    ) -> Result<Entry, Failure> {
        Err(Failure::failed("unknown-id", "no such entry"))
    }

    /// Writes an entry as it is, new or known (adoption, settings that are no state).
    ///
    /// # Errors
    /// When the journal can't be written.
    pub fn put(&self, _entry: &Entry) -> Result<(), Failure> {
        Ok(())
    }
}
