use std::time::Instant;

use super::*;
use crate::ids::EntryId;
use crate::record::{Bytes, Kind, Root};

/// An entry that lost `path` at `at` nanoseconds.
pub(crate) fn entry(path: &str, at: i64) -> Entry {
    Entry {
        id: EntryId::random(),
        operation: OperationId::random(),
        state: State::Sealed,
        failed: None,
        causes: vec![Cause::Remove],
        keep: Keep::Hosted,
        kind: Kind::File,
        path: path.into(),
        roots: vec![Root {
            path: path.into(),
            kind: Kind::File,
            cause: Cause::Remove,
            version: 1,
            left: None,
        }],
        roots_total: 1,
        members: 1,
        bytes: 10,
        station: "s".into(),
        workspace: "/w".into(),
        agent: None,
        harness: None,
        session: None,
        command: None,
        pid: 1,
        removed_at: UnixNanos(at),
        resident: true,
        retain_until: UnixNanos(at + 1_000_000),
        hold: false,
        hashed: false,
        passing: false,
        made_by: None,
    }
}

fn fresh() -> (tempfile::TempDir, Journal) {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(dir.path()).unwrap();
    (dir, journal)
}

fn ids(page: &Page) -> Vec<&str> {
    page.entries.iter().map(|e| e.id.as_str()).collect()
}

#[test]
fn entries_survive_and_are_found_by_any_unique_prefix() {
    let (dir, journal) = fresh();
    let one = entry("src/main.rs", 1);
    journal.put(&one).unwrap();
    drop(journal);
    let journal = Journal::open(dir.path()).unwrap();
    assert_eq!(journal.entry(&one.id).unwrap(), Some(one.clone()));
    assert_eq!(journal.find(&one.id.as_str()[..5]).unwrap(), one);
    assert_eq!(journal.find("zzzzzzzzzzz").unwrap_err().code, "unknown-id");
    for bad in ["", "-", "../x", "' OR 1=1"] {
        let told = journal.find(bad).unwrap_err();
        assert_eq!(
            (told.code.as_str(), told.next.as_str()),
            ("unknown-id", "trash list --all")
        );
    }
}

#[test]
fn an_ambiguous_prefix_names_its_candidates() {
    let (_dir, journal) = fresh();
    for path in ["a.txt", "b.txt"] {
        let mut e = entry(path, 1);
        let tail = &e.id.as_str()[2..];
        e.id = format!("qq{tail}").parse().unwrap();
        journal.put(&e).unwrap();
    }
    let told = journal.find("qq").unwrap_err();
    assert_eq!(told.code, "ambiguous-id");
    assert!(
        told.what.contains("a.txt") && told.what.contains("b.txt"),
        "{told}"
    );
}

#[test]
fn pages_follow_each_other_without_gap_or_repetition() {
    let (_dir, journal) = fresh();
    let mut all: Vec<Entry> = (0..57).map(|n| entry(&format!("f{n}"), n / 3)).collect();
    journal
        .batch(|rows| all.iter().try_for_each(|e| rows.put(e)))
        .unwrap();
    all.sort_by(|a, b| (b.removed_at, &b.id).cmp(&(a.removed_at, &a.id)));
    let mut seen = Vec::new();
    let mut filter = Filter {
        limit: 10,
        ..Filter::default()
    };
    loop {
        let page = journal.list(&filter).unwrap();
        seen.extend(page.entries);
        match page.next_cursor {
            Some(next) => filter.cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(seen, all);
    filter.cursor = Some("rubbish".into());
    assert_eq!(journal.list(&filter).unwrap_err().code, "cursor");
}

#[test]
fn a_page_of_ten_thousand_comes_quickly() {
    let (_dir, journal) = fresh();
    journal
        .batch(|rows| (0..10_000).try_for_each(|n| rows.put(&entry(&format!("dir/f{n}"), n))))
        .unwrap();
    let begun = Instant::now();
    for _ in 0..10 {
        assert_eq!(journal.list(&Filter::default()).unwrap().entries.len(), 20);
    }
    let each = begun.elapsed() / 10;
    assert!(each.as_millis() < 20, "{each:?} (debug build)");
    let by_path = Filter {
        path: Some("dir/f4711".into()),
        ..Filter::default()
    };
    assert_eq!(journal.list(&by_path).unwrap().entries.len(), 1);
}

#[test]
fn filters_select() {
    let (_dir, journal) = fresh();
    let removed = entry("src", 1);
    let mut replaced = entry("other/x\u{e9}", 2);
    replaced.causes = vec![Cause::Replace];
    replaced.agent = Some("claude".into());
    replaced.session = Some("s1".into());
    let mut ended = entry("gone", 3);
    ended.state = State::Restored;
    let mut open = entry("still", 4);
    open.state = State::Open;
    for e in [&removed, &replaced, &ended, &open] {
        journal.put(e).unwrap();
    }
    let list = |filter: Filter| {
        let page = journal.list(&filter).unwrap();
        ids(&page).join(" ")
    };
    let id = |e: &Entry| e.id.to_string();
    let f = Filter::default;
    assert_eq!(list(f()), format!("{} {}", open.id, removed.id));
    assert_eq!(
        list(Filter {
            cause: Some(Cause::Replace),
            ..f()
        }),
        id(&replaced)
    );
    assert_eq!(
        list(Filter {
            agent: Some("claude".into()),
            all: true,
            ..f()
        }),
        id(&replaced)
    );
    assert_eq!(
        list(Filter {
            session: Some("s1".into()),
            all: true,
            ..f()
        }),
        id(&replaced)
    );
    assert_eq!(
        list(Filter {
            path: Some("x\u{e9}".into()),
            ..f()
        }),
        id(&replaced)
    );
    assert_eq!(
        list(Filter {
            path: Some("src/deep/lib.rs".into()),
            ..f()
        }),
        id(&removed)
    );
    assert_eq!(
        list(Filter {
            path: Some("srcs".into()),
            ..f()
        }),
        ""
    );
    assert_eq!(
        list(Filter {
            pending: true,
            ..f()
        }),
        id(&open)
    );
    assert_eq!(
        list(Filter {
            since: Some(UnixNanos(4)),
            ..f()
        }),
        id(&open)
    );
    assert_eq!(
        list(Filter {
            all: true,
            ended: true,
            ..f()
        })
        .split(' ')
        .count(),
        4
    );
}

#[test]
fn events_move_the_state_and_illegal_ones_change_nothing() {
    let (_dir, journal) = fresh();
    let one = entry("a", 1);
    journal.put(&one).unwrap();
    let told = journal
        .apply(&one.id, Event::Commit, |e| e.hold = true)
        .unwrap_err();
    assert_eq!(told.code, "illegal-transition");
    assert_eq!(journal.entry(&one.id).unwrap(), Some(one.clone()));
    let after = journal
        .apply(&one.id, Event::Restore, |e| e.resident = false)
        .unwrap();
    assert_eq!((after.state, after.resident), (State::Restored, false));
    assert_eq!(journal.entry(&one.id).unwrap(), Some(after));
    let nobody = EntryId::random();
    assert_eq!(
        journal
            .apply(&nobody, Event::Seal, |_| ())
            .unwrap_err()
            .code,
        "unknown-id"
    );
}

#[test]
fn a_batch_that_fails_changes_nothing() {
    let (_dir, journal) = fresh();
    let one = entry("a", 1);
    let failed: Result<(), Failure> = journal.batch(|rows| {
        rows.put(&one)?;
        Err(Failure::failed("x", "y"))
    });
    assert!(failed.is_err());
    assert_eq!(journal.entry(&one.id).unwrap(), None);
}

#[test]
fn it_is_read_while_a_writer_has_it_and_when_nobody_has() {
    let (dir, journal) = fresh();
    let one = entry("a", 1);
    journal.put(&one).unwrap();
    let reader = Journal::open_read_only(dir.path()).unwrap();
    assert_eq!(reader.entry(&one.id).unwrap(), Some(one.clone()));
    assert!(reader.put(&one).is_err());
    let two = entry("b", 2);
    journal.put(&two).unwrap();
    assert_eq!(reader.entry(&two.id).unwrap(), Some(two.clone()));
    drop((reader, journal));
    let reader = Journal::open_read_only(dir.path()).unwrap();
    assert_eq!(reader.list(&Filter::default()).unwrap().entries.len(), 2);
    let empty = tempfile::tempdir().unwrap();
    let told = Journal::open_read_only(empty.path()).err().unwrap();
    assert_eq!(told.code, "no-journal");
}

#[test]
fn a_damaged_journal_is_set_aside_and_made_anew() {
    for damage in ["not SQLite", "torn page", "cut short"] {
        let (dir, journal) = fresh();
        journal
            .batch(|rows| (0..500).try_for_each(|n| rows.put(&entry(&format!("f{n}"), n))))
            .unwrap();
        drop(journal);
        let file = dir.path().join(schema::FILE);
        let mut content = std::fs::read(&file).unwrap();
        let half = content.len() / 2;
        match damage {
            "not SQLite" => content = b"hello, this is no database at all".repeat(99),
            "torn page" => content[4096..half].fill(0xa5),
            _ => content.truncate(half),
        }
        std::fs::write(&file, &content).unwrap();
        let reader = Journal::open_read_only(dir.path()).and_then(|j| {
            j.list(&Filter {
                all: true,
                limit: 100,
                path: Some("f4".into()),
                ..Filter::default()
            })
        });
        assert!(reader.is_err() || damage == "torn page", "{damage}");
        let journal = Journal::open(dir.path()).unwrap();
        let name = journal.set_aside_now().unwrap().to_owned();
        assert_eq!(
            journal.set_aside().unwrap(),
            std::slice::from_ref(&name),
            "{damage}"
        );
        assert_eq!(
            std::fs::read(dir.path().join(name)).unwrap(),
            content,
            "{damage}"
        );
        assert!(journal.unended().unwrap().is_empty());
        journal.put(&entry("new", 1)).unwrap();
        drop(journal);
        let again = Journal::open(dir.path()).unwrap();
        assert_eq!(
            (again.set_aside_now(), again.unended().unwrap().len()),
            (None, 1)
        );
    }
}

#[test]
fn a_newer_journal_is_refused_untouched() {
    let (dir, journal) = fresh();
    journal.put(&entry("a", 1)).unwrap();
    journal
        .db
        .lock()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    drop(journal);
    for opened in [
        Journal::open(dir.path()),
        Journal::open_read_only(dir.path()),
    ] {
        let told = opened.err().unwrap();
        assert_eq!((told.code.as_str(), told.exit_code()), ("journal-newer", 2));
        assert!(told.what.contains("99"));
    }
    let db = Connection::open(dir.path().join(schema::FILE)).unwrap();
    let rows: i64 = db
        .query_row("SELECT count(*) FROM entries", [], |r| r.get(0))
        .unwrap();
    assert_eq!(rows, 1);
}

/// The fixture was written by version 1 of the schema; it must stay readable for ever.
#[test]
fn the_oldest_schema_is_migrated() {
    let dir = tempfile::tempdir().unwrap();
    let db = Connection::open(dir.path().join(schema::FILE)).unwrap();
    db.execute_batch(include_str!("fixture_1.sql")).unwrap();
    drop(db);
    let journal = Journal::open(dir.path()).unwrap();
    let found = journal.unended().unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].path, Bytes::from("notes.txt"));
    let version: i64 = journal
        .db
        .lock()
        .query_row("PRAGMA user_version", [], |r| r.get(0))
        .unwrap();
    assert_eq!(version, 1);
}

#[test]
fn versions_beyond_the_bound_are_named_oldest_first() {
    let (_dir, journal) = fresh();
    let path = Bytes::from("notes.txt");
    let all: Vec<EntryId> = (0..5).map(|_| EntryId::random()).collect();
    let beyond = journal
        .batch(|rows| {
            for (at, id) in all.iter().enumerate() {
                rows.add_version(&path, UnixNanos(at as i64), id)?;
            }
            rows.versions_beyond(&path, 3)
        })
        .unwrap();
    assert_eq!(beyond, all[..2]);
}

#[test]
fn losses_are_kept_newest_first_and_counted() {
    let (_dir, journal) = fresh();
    let one = entry("a", 1);
    let loss = |at| Loss {
        at: UnixNanos(at),
        entry: one.id.clone(),
        path: one.path.clone(),
        removed_at: one.removed_at,
        retain_until: one.retain_until,
        members: 1,
        bytes: 10,
        reason: LossReason::LowDisk,
    };
    journal
        .batch(|rows| {
            rows.loss(&loss(1))?;
            rows.loss(&loss(2))?;
            rows.deleted_outright(&"x".into(), "scratch")
        })
        .unwrap();
    assert_eq!(journal.losses(10).unwrap(), [loss(2), loss(1)]);
    let totals = journal.totals().unwrap();
    assert_eq!((totals.losses, totals.deleted_outright), (2, 1));
}
