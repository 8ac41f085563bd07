//! The journal: which operations there are and how far each has come.
//!
//! One SQLite database for each workspace, in the station's state directory. It holds a row per
//! entry, not per file, and can be made anew from staging; what people decided (hold, retention)
//! lies there, too. It is written behind the captures, in batches, by one process at a time (the
//! one that holds the staging area's lock); others may read.

mod announce;
mod rows;
mod schema;
mod select;
mod state;

pub use announce::{Loss, LossReason};
pub use rows::Batch;
pub use state::{Event, Illegal, State};

use std::os::fd::OwnedFd;
use std::path::Path;

use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::types::Value;
use rustix::fs::{Mode, OFlags};

use crate::clock::UnixNanos;
use crate::failure::Failure;
use crate::ids::{EntryId, OperationId};
use crate::record::{Cause, Entry, Keep};
use schema::{Unusable, failure};

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
    pub since: Option<UnixNanos>,
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

/// How much the journal knows of, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    /// Entries that have not ended.
    pub entries: u64,
    /// Of these: open, failed, or on their way.
    pub pending: u64,
    /// Of these: held by a person.
    pub held: u64,
    /// Of these: without their members' hashes.
    pub unhashed: u64,
    /// Bytes of files kept for the hosted index (in the local profile: under the long retention).
    pub hosted_bytes: u64,
    /// Bytes of files kept locally only.
    pub local_bytes: u64,
    /// What all of it occupies on the disk, as far as it is measured.
    pub disk_bytes: u64,
    /// Losses announced, ever.
    pub losses: u64,
    /// Deletions that a policy rule ordered, ever.
    pub deleted_outright: u64,
}

/// The journal of one workspace.
pub struct Journal {
    db: Mutex<Connection>,
    dir: OwnedFd,
    damaged: Option<String>,
    read_only: bool,
}

impl Journal {
    /// Opens the journal in `dir` for writing, making it if there is none. A damaged one is set
    /// aside, never destroyed, and a new one made: see [`Journal::set_aside_now`].
    ///
    /// `dir` may lead through `/proc/self/fd`. Nothing is looked up by a path once this returns.
    ///
    /// # Errors
    /// `journal-newer` for one that a later version wrote; when it can't be made or opened.
    pub fn open(dir: &Path) -> Result<Self, Failure> {
        let dir = open_dir(dir)?;
        let (db, damaged) = match schema::open(&dir) {
            Ok(db) => (db, None),
            Err(Unusable::Failure(told)) => return Err(told),
            Err(Unusable::Damaged(how)) => {
                let name = schema::set_aside(&dir)?;
                tracing::error!(%name, %how, "the journal was damaged: set aside, made anew");
                let db = schema::open(&dir).map_err(Unusable::told)?;
                (db, Some(name))
            }
        };
        Ok(Self {
            db: Mutex::new(db),
            dir,
            damaged,
            read_only: false,
        })
    }

    /// Opens it for reading only, whether or not a daemon has it open, too.
    ///
    /// # Errors
    /// `no-journal` when there is none, `journal-damaged`, `journal-newer`, `journal-older`.
    pub fn open_read_only(dir: &Path) -> Result<Self, Failure> {
        let dir = open_dir(dir)?;
        if trashfs_mount::Attr::at(&dir, schema::FILE).is_err() {
            return Err(Failure::failed("no-journal", "there is no journal yet")
                .next("trash mount the workspace once"));
        }
        Ok(Self {
            db: Mutex::new(schema::open_read_only(&dir).map_err(Unusable::told)?),
            dir,
            damaged: None,
            read_only: true,
        })
    }

    /// Under which name the damaged predecessor was set aside when this journal was opened:
    /// everything in staging is to be adopted.
    pub fn set_aside_now(&self) -> Option<&str> {
        self.damaged.as_deref()
    }

    /// Damaged journals that were set aside at any time and still lie there.
    ///
    /// # Errors
    /// Those of reading the directory.
    pub fn set_aside(&self) -> Result<Vec<String>, Failure> {
        schema::set_aside_before(&self.dir)
            .map_err(|e| Failure::io("listing the journal's directory", &e))
    }

    /// Runs `work` in one transaction that is durable on return, or changes nothing.
    ///
    /// # Errors
    /// Those of `work`, or when the journal can't be written.
    pub fn batch<T>(
        &self,
        work: impl FnOnce(&Batch<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut db = self.db.lock();
        let change = db
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .map_err(|e| failure(&e))?;
        let done = work(&Batch { db: &change })?;
        change.commit().map_err(|e| failure(&e))?;
        Ok(done)
    }

    fn read<T>(&self, work: impl FnOnce(&Batch<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
        work(&Batch {
            db: &self.db.lock(),
        })
    }

    /// One entry.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn entry(&self, id: &EntryId) -> Result<Option<Entry>, Failure> {
        self.read(|rows| rows.entry(id))
    }

    /// The entry whose id begins with `prefix`.
    ///
    /// # Errors
    /// `unknown-id` or `ambiguous-id`, or when the journal can't be read.
    pub fn find(&self, prefix: &str) -> Result<Entry, Failure> {
        select::find(&self.db.lock(), prefix)
    }

    /// Newest first.
    ///
    /// # Errors
    /// `cursor` for a cursor that is none, or when the journal can't be read.
    pub fn list(&self, filter: &Filter) -> Result<Page, Failure> {
        self.list_checked(filter, &mut |_| Ok(true))
    }

    /// Like [`Journal::list`], where `check` has the last word on each entry: the journal does
    /// not know all roots of an entry with very many.
    ///
    /// # Errors
    /// As [`Journal::list`], and those of `check`.
    pub fn list_checked(
        &self,
        filter: &Filter,
        check: &mut dyn FnMut(&Entry) -> Result<bool, Failure>,
    ) -> Result<Page, Failure> {
        select::list(&self.db.lock(), filter, check)
    }

    /// All entries of an operation.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn of_operation(&self, operation: &OperationId) -> Result<Vec<Entry>, Failure> {
        let id = Value::from(operation.as_str().to_owned());
        select::all(&self.db.lock(), "operation = ?1 ORDER BY id", &[id])
    }

    /// Every entry that has not ended, oldest first.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn unended(&self) -> Result<Vec<Entry>, Failure> {
        let rule = "ended = 0 ORDER BY removed_at, id";
        select::all(&self.db.lock(), rule, &[])
    }

    /// At most `rows_max` resident entries kept in this way that could be given up: whole, not
    /// held, removed at `from` or later; oldest first.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn evictable(
        &self,
        keep: Keep,
        from: UnixNanos,
        rows_max: u32,
    ) -> Result<Vec<Entry>, Failure> {
        let rule = "ended = 0 AND hold = 0 AND resident = 1 AND state = 'sealed' AND keep = ?1 \
                    AND removed_at >= ?2 ORDER BY removed_at, id LIMIT ?3";
        let values = [
            Value::from(keep.as_str().to_owned()),
            Value::from(from.0),
            Value::from(rows_max),
        ];
        select::all(&self.db.lock(), rule, &values)
    }

    /// What an entry occupies on the disk, if it was measured.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn disk_bytes(&self, id: &EntryId) -> Result<Option<u64>, Failure> {
        let sql = "SELECT max(disk_bytes) FROM entries WHERE id = ?1";
        self.db
            .lock()
            .query_row(sql, [id.as_str()], |row| row.get::<_, Option<i64>>(0))
            .map(|bytes| bytes.and_then(|b| u64::try_from(b).ok()))
            .map_err(|e| failure(&e))
    }

    /// Entries of which at least one tree has expired at `now`, soonest first.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn expired(&self, now: UnixNanos, rows_max: u32) -> Result<Vec<Entry>, Failure> {
        let rule = "ended = 0 AND hold = 0 AND state != 'open' AND next_expiry <= ?1 \
                    ORDER BY next_expiry LIMIT ?2";
        let values = [Value::from(now.0), Value::from(rows_max)];
        select::all(&self.db.lock(), rule, &values)
    }

    /// When the next tree expires.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn next_expiry(&self) -> Result<Option<UnixNanos>, Failure> {
        self.db
            .lock()
            .query_row(
                "SELECT min(next_expiry) FROM entries WHERE ended = 0 AND hold = 0",
                [],
                |row| row.get::<_, Option<i64>>(0),
            )
            .map(|at| at.map(UnixNanos))
            .map_err(|e| failure(&e))
    }

    /// Sealed entries without hashes that last longer than `beyond`, oldest first.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn unhashed(&self, beyond: UnixNanos, rows_max: u32) -> Result<Vec<Entry>, Failure> {
        let rule = "ended = 0 AND hashed = 0 AND resident = 1 AND state = 'sealed' \
                    AND next_expiry > ?1 ORDER BY removed_at, id LIMIT ?2";
        let values = [Value::from(beyond.0), Value::from(rows_max)];
        select::all(&self.db.lock(), rule, &values)
    }

    /// Resident entries whose occupation of the disk is not measured, largest first.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn unmeasured(&self, rows_max: u32) -> Result<Vec<Entry>, Failure> {
        let rule = "ended = 0 AND resident = 1 AND state != 'open' AND disk_bytes IS NULL \
                    ORDER BY bytes DESC LIMIT ?1";
        select::all(&self.db.lock(), rule, &[Value::from(rows_max)])
    }

    /// Numbers for `status`.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn totals(&self) -> Result<Totals, Failure> {
        let sql = "SELECT count(*), sum(pending), sum(hold), sum(hashed = 0),
                   sum(iif(keep = 'hosted' AND resident, bytes, 0)),
                   sum(iif(keep = 'local' AND resident, bytes, 0)),
                   sum(iif(resident, coalesce(disk_bytes, bytes), 0)),
                   (SELECT max(number) FROM losses), (SELECT max(number) FROM deletions)
                   FROM entries WHERE ended = 0";
        let number = |row: &rusqlite::Row<'_>, at| {
            row.get::<_, Option<i64>>(at)
                .map(|n| u64::try_from(n.unwrap_or(0)).unwrap_or(0))
        };
        self.db
            .lock()
            .query_row(sql, [], |row| {
                Ok(Totals {
                    entries: number(row, 0)?,
                    pending: number(row, 1)?,
                    held: number(row, 2)?,
                    unhashed: number(row, 3)?,
                    hosted_bytes: number(row, 4)?,
                    local_bytes: number(row, 5)?,
                    disk_bytes: number(row, 6)?,
                    losses: number(row, 7)?,
                    deleted_outright: number(row, 8)?,
                })
            })
            .map_err(|e| failure(&e))
    }

    /// The newest announced losses.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn losses(&self, rows_max: u32) -> Result<Vec<Loss>, Failure> {
        self.read(|rows| rows.losses(rows_max))
    }

    /// A small fact by name.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn note(&self, name: &str) -> Result<Option<String>, Failure> {
        self.read(|rows| rows.read_note(name))
    }

    /// Applies `event` to the entry's state, lets `change` set what goes with it, and writes
    /// both in one transaction that is durable on return.
    ///
    /// # Errors
    /// `unknown-id`, `illegal-transition`, or when the journal can't be written.
    pub fn apply(
        &self,
        id: &EntryId,
        event: Event,
        change: impl FnOnce(&mut Entry),
    ) -> Result<Entry, Failure> {
        self.batch(|rows| rows.apply(id, event, change))
    }

    /// Writes an entry as it is, new or known (adoption, settings that are no state).
    ///
    /// # Errors
    /// When the journal can't be written.
    pub fn put(&self, entry: &Entry) -> Result<(), Failure> {
        self.batch(|rows| rows.put(entry))
    }
}

impl Drop for Journal {
    /// Brings the log into the database. SQLite must not do it by itself on closing, for it would
    /// look the file up by its path.
    fn drop(&mut self) {
        if self.read_only {
            return;
        }
        let done = self
            .db
            .get_mut()
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        if let Err(error) = done {
            tracing::warn!(%error, "the journal's log was not folded in; it will be at the next start");
        }
    }
}

impl Unusable {
    fn told(self) -> Failure {
        match self {
            Self::Failure(told) => told,
            Self::Damaged(how) => {
                Failure::failed("journal-damaged", format!("the journal is damaged: {how}"))
                    .state("what was removed is intact; only its register is broken")
                    .next("trash mount the workspace: the journal is made anew from staging")
            }
        }
    }
}

fn open_dir(dir: &Path) -> Result<OwnedFd, Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty()).map_err(|e| {
        Failure::io(
            format!("opening the journal's directory {}", dir.display()),
            &e.into(),
        )
    })
}

#[cfg(test)]
mod tests;
