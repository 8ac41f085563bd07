//! Entries as rows, read and written inside a transaction.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::clock::UnixNanos;
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::journal::schema::failure;
use crate::journal::{Event, State};
use crate::record::{Cause, Entry};

/// A cause's bit in the column `causes`.
pub(super) fn bit(cause: Cause) -> i64 {
    match cause {
        Cause::Remove => 1,
        Cause::Replace => 2,
        Cause::Truncate => 4,
    }
}

/// Beside the causes: what was removed is kept only in passing.
pub(super) const PASSING_BIT: i64 = 8;

fn is_pending(entry: &Entry) -> bool {
    entry.failed.is_some()
        || matches!(
            entry.state,
            State::Open | State::Reserved | State::Uploaded | State::Ready
        )
}

/// The roots shown, each between NULs, so that a literal text and a whole path can be found.
fn paths(entry: &Entry) -> Vec<u8> {
    let mut joined = vec![0];
    for root in &entry.roots {
        joined.extend_from_slice(root.path.as_bytes());
        joined.push(0);
    }
    joined
}

pub(super) fn unreadable(error: &serde_json::Error) -> Failure {
    Failure::failed(
        "journal",
        format!("a record in the journal can't be read: {error}"),
    )
}

/// Several changes that become durable together.
pub struct Batch<'t> {
    pub(super) db: &'t Connection,
}

impl Batch<'_> {
    /// One entry.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn entry(&self, id: &EntryId) -> Result<Option<Entry>, Failure> {
        let text: Option<String> = self
            .db
            .prepare_cached("SELECT record FROM entries WHERE id = ?1")
            .and_then(|mut q| q.query_row([id.as_str()], |row| row.get(0)).optional())
            .map_err(|e| failure(&e))?;
        text.map(|text| serde_json::from_str(&text).map_err(|e| unreadable(&e)))
            .transpose()
    }

    /// Writes an entry as it is, new or known. When its first tree expires is set to
    /// `retain_until` for a new one and left as it is for a known one, unless that is later.
    ///
    /// # Errors
    /// When the journal can't be written.
    pub fn put(&self, entry: &Entry) -> Result<(), Failure> {
        let record = serde_json::to_string(entry).map_err(|e| unreadable(&e))?;
        let passing = if entry.passing { PASSING_BIT } else { 0 };
        let causes = entry.causes.iter().fold(passing, |bits, c| bits | bit(*c));
        self.db
            .prepare_cached(
                "INSERT INTO entries VALUES
                 (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,NULL,?15,?16,?17,?18)
                 ON CONFLICT (id) DO UPDATE SET
                 operation=?2, state=?3, removed_at=?4, ended=?5, pending=?6, causes=?7, keep=?8,
                 agent=?9, session=?10, hold=?11, resident=?12, hashed=?13, bytes=?14, paths=?15,
                 cut=?16, next_expiry=min(next_expiry, ?17), record=?18",
            )
            .and_then(|mut q| {
                q.execute(params![
                    entry.id.as_str(),
                    entry.operation.as_str(),
                    entry.state.as_str(),
                    entry.removed_at.0,
                    entry.state.is_end(),
                    is_pending(entry),
                    causes,
                    entry.keep.as_str(),
                    entry.agent,
                    entry.session,
                    entry.hold,
                    entry.resident,
                    entry.hashed,
                    i64::try_from(entry.bytes).unwrap_or(i64::MAX),
                    paths(entry),
                    entry.roots_total > entry.roots.len() as u64,
                    entry.retain_until.0,
                    record,
                ])
            })
            .map_err(|e| failure(&e))?;
        if entry.state.is_end() {
            self.forget_versions(&entry.id)?;
        }
        Ok(())
    }

    /// Applies `event` and lets `change` set what goes with it.
    ///
    /// # Errors
    /// `unknown-id`, `illegal-transition`, or when the journal can't be written.
    pub fn apply(
        &self,
        id: &EntryId,
        event: Event,
        change: impl FnOnce(&mut Entry),
    ) -> Result<Entry, Failure> {
        let mut entry = self
            .entry(id)?
            .ok_or_else(|| super::select::unknown(id.as_str()))?;
        entry.state = entry.state.after(event).map_err(|illegal| {
            Failure::refused("illegal-transition", format!("{id}: {illegal}"))
                .next(format!("trash info {id}"))
        })?;
        change(&mut entry);
        self.put(&entry)?;
        Ok(entry)
    }

    /// Sets when the first of an entry's trees expires.
    ///
    /// # Errors
    /// When the journal can't be written.
    pub fn set_next_expiry(&self, id: &EntryId, at: UnixNanos) -> Result<(), Failure> {
        self.run(
            "UPDATE entries SET next_expiry = ?2 WHERE id = ?1",
            params![id.as_str(), at.0],
        )
    }

    /// Sets what an entry's files occupy on the main area's filesystem.
    ///
    /// # Errors
    /// When the journal can't be written.
    pub fn set_disk_bytes(&self, id: &EntryId, bytes: u64) -> Result<(), Failure> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.run(
            "UPDATE entries SET disk_bytes = ?2 WHERE id = ?1",
            params![id.as_str(), bytes],
        )
    }

    /// Removes an entry of which nothing was ever kept.
    ///
    /// # Errors
    /// When the journal can't be written.
    pub fn forget(&self, id: &EntryId) -> Result<(), Failure> {
        self.forget_versions(id)?;
        self.run("DELETE FROM entries WHERE id = ?1", params![id.as_str()])
    }

    pub(super) fn run(&self, sql: &str, values: impl rusqlite::Params) -> Result<(), Failure> {
        self.db
            .prepare_cached(sql)
            .and_then(|mut q| q.execute(values))
            .map(drop)
            .map_err(|e| failure(&e))
    }
}
