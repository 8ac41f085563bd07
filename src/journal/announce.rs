//! What people must be told of, kept until they have seen it: losses, outright deletions, notes.

use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};

use crate::clock::{self, UnixNanos};
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::journal::rows::{Batch, unreadable};
use crate::journal::schema::failure;
use crate::record::Bytes;

/// Rows kept of losses and of deletions; the oldest go first.
const ROWS_KEPT: u32 = 10_000;

/// Why something was given up before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossReason {
    /// Staging held more than its share of the filesystem.
    Budget,
    /// The filesystem ran short of room.
    LowDisk,
    /// The filesystem was about to run full: even what was younger than a day had to go.
    DiskFull,
    /// Its end was begun and then interrupted; the reason was not written down any more.
    Interrupted,
}

/// Something that was given up before its retention ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// When.
    #[serde(with = "clock::rfc3339")]
    pub at: UnixNanos,
    /// The entry.
    pub entry: EntryId,
    /// Its path.
    pub path: Bytes,
    /// When it had been removed.
    #[serde(with = "clock::rfc3339")]
    pub removed_at: UnixNanos,
    /// How long it would have been kept.
    #[serde(with = "clock::rfc3339")]
    pub retain_until: UnixNanos,
    /// Members lost.
    pub members: u64,
    /// Bytes lost.
    pub bytes: u64,
    /// Why.
    pub reason: LossReason,
}

impl Batch<'_> {
    /// Announces a loss.
    ///
    /// # Errors
    /// When the journal can't be written.
    pub fn loss(&self, loss: &Loss) -> Result<(), Failure> {
        let record = serde_json::to_string(loss).map_err(|e| unreadable(&e))?;
        self.run(
            "INSERT INTO losses (at, record) VALUES (?1, ?2)",
            params![loss.at.0, record],
        )?;
        self.run(
            "DELETE FROM losses WHERE number <= (SELECT max(number) FROM losses) - ?1",
            [ROWS_KEPT],
        )
    }

    /// Notes what a policy rule deleted outright.
    ///
    /// # Errors
    /// When the journal can't be written.
    pub fn deleted_outright(&self, path: &Bytes, rule: &str) -> Result<(), Failure> {
        self.run(
            "INSERT INTO deletions (at, path, rule) VALUES (?1, ?2, ?3)",
            params![clock::now().0, path.as_bytes(), rule],
        )?;
        self.run(
            "DELETE FROM deletions WHERE number <= (SELECT max(number) FROM deletions) - ?1",
            [ROWS_KEPT],
        )
    }

    /// Writes a small fact by name.
    ///
    /// # Errors
    /// When the journal can't be written.
    pub fn note(&self, name: &str, value: &str) -> Result<(), Failure> {
        self.run(
            "INSERT INTO notes (name, value) VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [name, value],
        )
    }

    /// Adds an overwritten version of `path`.
    ///
    /// # Errors
    /// When the journal can't be written.
    pub fn add_version(&self, path: &Bytes, at: UnixNanos, id: &EntryId) -> Result<(), Failure> {
        self.run(
            "INSERT OR IGNORE INTO versions (path, removed_at, entry) VALUES (?1, ?2, ?3)",
            params![path.as_bytes(), at.0, id.as_str()],
        )
    }

    /// Entries with an overwritten version of `path` beyond the newest `keep_max`, oldest first.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn versions_beyond(&self, path: &Bytes, keep_max: u32) -> Result<Vec<EntryId>, Failure> {
        let sql = "SELECT entry FROM versions WHERE path = ?1
                   ORDER BY removed_at DESC, entry DESC LIMIT -1 OFFSET ?2";
        let mut found: Vec<EntryId> = self
            .db
            .prepare_cached(sql)
            .and_then(|mut q| {
                q.query_map(params![path.as_bytes(), keep_max], |row| {
                    row.get::<_, String>(0)
                })?
                .collect::<rusqlite::Result<Vec<_>>>()
            })
            .map_err(|e| failure(&e))?
            .into_iter()
            .filter_map(|text| text.parse().ok())
            .collect();
        found.reverse();
        Ok(found)
    }

    /// Takes one overwritten version of `path` off the record.
    ///
    /// # Errors
    /// When the journal can't be written.
    pub fn forget_version(&self, path: &Bytes, id: &EntryId) -> Result<(), Failure> {
        self.run(
            "DELETE FROM versions WHERE path = ?1 AND entry = ?2",
            params![path.as_bytes(), id.as_str()],
        )
    }

    pub(super) fn forget_versions(&self, id: &EntryId) -> Result<(), Failure> {
        self.run("DELETE FROM versions WHERE entry = ?1", [id.as_str()])
    }

    pub(super) fn read_note(&self, name: &str) -> Result<Option<String>, Failure> {
        self.db
            .prepare_cached("SELECT value FROM notes WHERE name = ?1")
            .and_then(|mut q| q.query_row([name], |row| row.get(0)).optional())
            .map_err(|e| failure(&e))
    }

    pub(super) fn losses(&self, rows_max: u32) -> Result<Vec<Loss>, Failure> {
        self.db
            .prepare_cached("SELECT record FROM losses ORDER BY number DESC LIMIT ?1")
            .and_then(|mut q| {
                q.query_map([rows_max], |row| row.get::<_, String>(0))?
                    .collect::<rusqlite::Result<Vec<_>>>()
            })
            .map_err(|e| failure(&e))?
            .iter()
            .map(|text| serde_json::from_str(text).map_err(|e| unreadable(&e)))
            .collect()
    }
}
