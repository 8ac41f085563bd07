-- One row per entry. `record` is the entry as users see it; the columns beside it are what
-- lists filter and order by, and what the keeper needs and users don't.
CREATE TABLE entries (
    id          TEXT PRIMARY KEY,
    operation   TEXT NOT NULL,
    state       TEXT NOT NULL,
    removed_at  INTEGER NOT NULL,   -- ns since the epoch
    ended       INTEGER NOT NULL,   -- nothing more can happen
    pending     INTEGER NOT NULL,   -- open, failed, or on its way
    causes      INTEGER NOT NULL,   -- 1 remove, 2 replace, 4 truncate
    keep        TEXT NOT NULL,
    agent       TEXT,
    session     TEXT,
    hold        INTEGER NOT NULL,
    resident    INTEGER NOT NULL,
    hashed      INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,   -- length of its files
    disk_bytes  INTEGER,            -- what they occupy that nothing else does, once measured
    paths       BLOB NOT NULL,      -- the roots shown, each between NULs
    cut         INTEGER NOT NULL,   -- has roots that `paths` lacks
    next_expiry INTEGER NOT NULL,   -- when the first of its trees expires, ns
    record      TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX entries_by_time      ON entries (removed_at DESC, id DESC) WHERE ended = 0;
CREATE INDEX entries_all_by_time  ON entries (removed_at DESC, id DESC);
CREATE INDEX entries_by_session   ON entries (session, removed_at DESC) WHERE session IS NOT NULL;
CREATE INDEX entries_pending      ON entries (removed_at DESC, id DESC) WHERE pending = 1;
CREATE INDEX entries_by_expiry    ON entries (next_expiry) WHERE ended = 0 AND hold = 0;
-- Covers the sums that the watch over the disk's room asks for again and again.
CREATE INDEX entries_sums         ON entries (keep, pending, hold, hashed, resident, bytes, disk_bytes)
    WHERE ended = 0;
CREATE INDEX entries_by_operation ON entries (operation);

-- What was given up before its time, and why. Shown by status and doctor.
CREATE TABLE losses (
    number INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    record TEXT NOT NULL
);

-- What a policy rule deleted outright.
CREATE TABLE deletions (
    number INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    path   BLOB NOT NULL,
    rule   TEXT NOT NULL
);

-- Overwritten versions by path, for the bound on their number.
CREATE TABLE versions (
    path       BLOB NOT NULL,
    removed_at INTEGER NOT NULL,
    entry      TEXT NOT NULL,
    PRIMARY KEY (path, removed_at, entry)
) WITHOUT ROWID;
CREATE INDEX versions_by_entry ON versions (entry);

-- Small facts by name: the last reconciliation, and the like.
CREATE TABLE notes (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
