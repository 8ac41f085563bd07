//! Opening the database file: pragmas, schema versions, and what to do with a damaged one.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Mode, OFlags};

use crate::clock;
use crate::failure::Failure;
use crate::relocate;
use crate::walk::names_in;

/// The journal's file in the workspace's state directory.
pub(super) const FILE: &str = "journal.db";
/// What a damaged file is called from then on, followed by the time in seconds.
const DAMAGED: &str = "journal.db.damaged-";
/// How long to wait for another process that reads or writes.
const BUSY: Duration = Duration::from_secs(5);

/// The schema, step by step: a journal of version N runs through the steps from N on. A step
/// that was ever released is never changed.
const MIGRATIONS: [&str; 1] = [include_str!("schema_1.sql")];

/// Why a file can't be used as it is.
pub(super) enum Unusable {
    /// It is no intact database: to be set aside.
    Damaged(String),
    /// Anything else: to be told.
    Failure(Failure),
}

impl From<rusqlite::Error> for Unusable {
    fn from(error: rusqlite::Error) -> Self {
        if is_damage(&error) {
            Self::Damaged(error.to_string())
        } else {
            Self::Failure(failure(&error))
        }
    }
}

/// Whether the file itself is broken, as opposed to busy, full or forbidden.
fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// A database error for people.
pub(super) fn failure(error: &rusqlite::Error) -> Failure {
    if is_damage(error) {
        return Failure::failed(
            "journal-damaged",
            format!("the journal is damaged: {error}"),
        )
        .state("what was removed is intact; only its register is broken")
        .next("trash unmount, then trash mount again: the journal is made anew from staging");
    }
    Failure::failed("journal", format!("the journal can't be used: {error}"))
}

/// The database below `dir`, through a descriptor: the path that the user knows may soon lead
/// into the mount.
fn path_through(dir: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd")
        .join(dir.as_raw_fd().to_string())
        .join(FILE)
}

/// Opens for writing, making or migrating the schema.
///
/// SQLite resolves the path to the user's own. So everything that it ever opens (database, log,
/// index) is opened here, before the mount, and it is kept from reopening or deleting later.
pub(super) fn open(dir: &OwnedFd) -> Result<Connection, Unusable> {
    make_private(dir)?;
    let mut db = Connection::open(path_through(dir))?;
    db.busy_timeout(BUSY)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    check(&db)?;
    migrate(&mut db)?;
    // A write, so that the log and its index are open from now on.
    db.execute(
        "INSERT INTO notes (name, value) VALUES ('opened', ?1)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [clock::now().to_rfc3339()],
    )?;
    Ok(db)
}

/// The file is for its owner only, like all that SQLite makes beside it: they take its mode.
fn make_private(dir: &OwnedFd) -> Result<(), Unusable> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made =
        rustix::fs::openat(dir, FILE, flags, mode).and_then(|file| rustix::fs::fchmod(file, mode));
    made.map_err(|e| Unusable::Failure(Failure::io("the journal", &e.into())))
}

/// Opens for reading only, while another process may be writing or none is.
pub(super) fn open_read_only(dir: &OwnedFd) -> Result<Connection, Unusable> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path_through(dir), flags)?;
    db.busy_timeout(BUSY)?;
    let version = version(&db)?;
    if version > MIGRATIONS.len() {
        return Err(Unusable::Failure(newer(version)));
    }
    if version < MIGRATIONS.len() {
        return Err(Unusable::Failure(
            Failure::failed(
                "journal-older",
                "the journal is of an older version of trashfs",
            )
            .next("trash mount the workspace once: that brings it up to date"),
        ));
    }
    Ok(db)
}

fn check(db: &Connection) -> Result<(), Unusable> {
    let verdict: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict == "ok" {
        Ok(())
    } else {
        Err(Unusable::Damaged(verdict))
    }
}

fn version(db: &Connection) -> rusqlite::Result<usize> {
    db.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))
        .map(|v| usize::try_from(v).unwrap_or(usize::MAX))
}

fn newer(version: usize) -> Failure {
    Failure::refused(
        "journal-newer",
        format!(
            "the journal has version {version}; this trash knows versions up to {}",
            MIGRATIONS.len()
        ),
    )
    .state("nothing was changed")
    .next("install the trash that wrote it, or a later one")
}

fn migrate(db: &mut Connection) -> Result<(), Unusable> {
    let from = version(db)?;
    if from > MIGRATIONS.len() {
        return Err(Unusable::Failure(newer(from)));
    }
    for (step, sql) in MIGRATIONS.iter().enumerate().skip(from) {
        let change = db.transaction()?;
        change.execute_batch(sql)?;
        change.pragma_update(None, "user_version", step + 1)?;
        change.commit()?;
    }
    Ok(())
}

/// Sets a damaged database aside with its log, destroying nothing, and says under which name.
pub(super) fn set_aside(dir: &OwnedFd) -> Result<String, Failure> {
    let name = format!("{DAMAGED}{}", clock::now().0 / 1_000_000_000);
    let told =
        |error: rustix::io::Errno| Failure::io("moving the damaged journal aside", &error.into());
    for ending in ["-wal", "-shm", ""] {
        match relocate::move_new(
            dir,
            format!("{FILE}{ending}"),
            dir,
            format!("{name}{ending}"),
        ) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(told(error)),
        }
    }
    Ok(name)
}

/// Databases that were set aside and that nobody has removed yet.
pub(super) fn set_aside_before(dir: &OwnedFd) -> std::io::Result<Vec<String>> {
    let mut names: Vec<String> = names_in(dir.as_fd())?
        .into_iter()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| {
            name.strip_prefix(DAMAGED)
                .is_some_and(|time| time.bytes().all(|b| b.is_ascii_digit()))
        })
        .collect();
    names.sort_unstable();
    Ok(names)
}
