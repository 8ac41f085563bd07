CREATE TABLE entries (id TEXT PRIMARY KEY, operation TEXT NOT NULL, state TEXT NOT NULL,
    removed_at INTEGER NOT NULL, ended INTEGER NOT NULL, pending INTEGER NOT NULL,
    causes INTEGER NOT NULL, keep TEXT NOT NULL, agent TEXT, session TEXT, hold INTEGER NOT NULL,
    resident INTEGER NOT NULL, hashed INTEGER NOT NULL, bytes INTEGER NOT NULL,
    disk_bytes INTEGER, paths BLOB NOT NULL, cut INTEGER NOT NULL, next_expiry INTEGER NOT NULL,
    record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE losses (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, record TEXT NOT NULL);
CREATE TABLE deletions (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, path BLOB NOT NULL,
    rule TEXT NOT NULL);
CREATE TABLE versions (path BLOB NOT NULL, removed_at INTEGER NOT NULL, entry TEXT NOT NULL,
    PRIMARY KEY (path, removed_at, entry)) WITHOUT ROWID;
CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO entries VALUES ('aaaabbbbccccdddd', 'eeeeffffgggghhhh', 'sealed',
    1700000000000000000, 0, 0, 1, 'hosted', NULL, NULL, 0, 1, 0, 5, NULL,
    x'006e6f7465732e74787400', 0, 1731536000000000000,
    '{"id":"aaaabbbbccccdddd","operation":"eeeeffffgggghhhh","state":"sealed","causes":["remove"],"keep":"hosted","kind":"file","path":"notes.txt","roots":[{"path":"notes.txt","kind":"file","cause":"remove","version":1}],"rootsTotal":1,"members":1,"bytes":5,"station":"s","workspace":"/w","agent":null,"harness":null,"session":null,"command":"rm notes.txt","pid":7,"removedAt":"2023-11-14T22:13:20.000000000Z","resident":true,"retainUntil":"2024-11-13T22:13:20.000000000Z","hold":false,"hashed":false}');
PRAGMA user_version = 1;
