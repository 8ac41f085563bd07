use std::time::Duration;

use super::*;
use crate::fixture::{DAY, Fixture};
use crate::journal::Filter;
use crate::record::{Cause, Keep};

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn remove(f: &Fixture, keeper: &Keeper, path: &str) -> EntryId {
    f.write(path, "content");
    let op = f.begin(Keep::Hosted, clock::now());
    let id = op.entry.clone();
    let events = keeper.events();
    events.send(CaptureEvent::Opened(Box::new(op))).unwrap();
    f.capture(&id, path, Cause::Remove, DAY * 365);
    events
        .send(CaptureEvent::Closed {
            entry: id.clone(),
            members: 1,
            bytes: 7,
        })
        .unwrap();
    id
}

#[test]
fn an_entry_that_waits_for_a_writer_is_found_by_what_it_holds() {
    let f = Fixture::new();
    let keeper = Keeper::start(f.ws.clone()).unwrap();
    f.write("log", "content");
    let op = f.begin(Keep::Hosted, clock::now());
    let entry = op.entry.clone();
    let events = keeper.events();
    events.send(CaptureEvent::Opened(Box::new(op))).unwrap();
    f.capture(&entry, "log", Cause::Remove, DAY * 365);
    let (members, bytes) = (1, 7);
    let id = entry.clone();
    events
        .send(CaptureEvent::Waiting {
            entry,
            members,
            bytes,
        })
        .unwrap();
    keeper.sync();
    let found = || f.ws.journal.list(&Filter::default()).unwrap().entries;
    let [waiting] = &found()[..] else {
        panic!("{:?}", found())
    };
    assert_eq!((waiting.state, waiting.members), (State::Open, 1));
    let entry = id;
    events
        .send(CaptureEvent::Closed {
            entry,
            members,
            bytes,
        })
        .unwrap();
    keeper.sync();
    assert_eq!(found()[0].state, State::Sealed);
}

#[test]
fn after_sync_the_journal_has_everything() {
    let f = Fixture::new();
    let keeper = Keeper::start(f.ws.clone()).unwrap();
    let ids: Vec<EntryId> = (0..50)
        .map(|n| remove(&f, &keeper, &format!("f{n}")))
        .collect();
    keeper.sync();
    for id in &ids {
        let entry = f.ws.journal.entry(id).unwrap().unwrap();
        assert_eq!(
            (entry.state, entry.members, entry.bytes),
            (State::Sealed, 1, 7)
        );
    }
    keeper.stop();
}

#[test]
fn it_writes_by_itself_after_a_while_and_hashes_when_it_is_quiet() {
    let f = Fixture::new();
    let keeper = Keeper::start(f.ws.clone()).unwrap();
    let id = remove(&f, &keeper, "a");
    wait_until("sealed", || f.ws.journal.entry(&id).unwrap().is_some());
    wait_until("hashed", || {
        f.ws.journal.entry(&id).unwrap().unwrap().hashed
    });
    assert!(f.staged(&id).join("manifest.jsonl").exists());
    keeper.stop();
}

#[test]
fn stopping_writes_what_is_there() {
    let f = Fixture::new();
    let keeper = Keeper::start(f.ws.clone()).unwrap();
    let id = remove(&f, &keeper, "a");
    let op = f.begin(Keep::Local, clock::now());
    let events = keeper.events();
    events
        .send(CaptureEvent::Opened(Box::new(op.clone())))
        .unwrap();
    events
        .send(CaptureEvent::DeletedOutright {
            path: "tmp/x".into(),
            rule: "scratch".into(),
        })
        .unwrap();
    drop(keeper);
    assert_eq!(
        f.ws.journal.entry(&id).unwrap().unwrap().state,
        State::Sealed
    );
    assert_eq!(
        f.ws.journal.entry(&op.entry).unwrap().unwrap().state,
        State::Open
    );
    assert_eq!(f.ws.journal.totals().unwrap().deleted_outright, 1);
}

#[test]
fn an_entry_in_which_everything_was_taken_back_leaves_no_trace() {
    let f = Fixture::new();
    let keeper = Keeper::start(f.ws.clone()).unwrap();
    let op = f.begin(Keep::Hosted, clock::now());
    let id = op.entry.clone();
    let events = keeper.events();
    events.send(CaptureEvent::Opened(Box::new(op))).unwrap();
    keeper.sync();
    assert_eq!(f.ws.journal.entry(&id).unwrap().unwrap().state, State::Open);
    events
        .send(CaptureEvent::Closed {
            entry: id.clone(),
            members: 0,
            bytes: 0,
        })
        .unwrap();
    keeper.sync();
    assert_eq!(f.ws.journal.entry(&id).unwrap(), None);
    assert!(!f.staged(&id).exists());
}

#[test]
fn thousands_of_small_operations_are_written_in_few_batches() {
    let f = Fixture::new();
    let keeper = Keeper::start(f.ws.clone()).unwrap();
    let begun = Instant::now();
    for n in 0..2_000 {
        remove(&f, &keeper, &format!("d/f{n}"));
    }
    keeper.sync();
    let took = begun.elapsed();
    assert_eq!(f.ws.journal.totals().unwrap().entries, 2_000);
    assert!(took < Duration::from_secs(20), "{took:?} in a debug build");
    let page = f.ws.journal.list(&Filter::default()).unwrap();
    assert!(page.next_cursor.is_some());
}

#[test]
fn what_expires_soon_is_ended_without_being_asked() {
    let f = Fixture::new();
    let keeper = Keeper::start(f.ws.clone()).unwrap();
    f.write("a", "x");
    let op = f.begin(Keep::Local, clock::now());
    f.capture(&op.entry, "a", Cause::Remove, Duration::from_secs(1));
    keeper
        .events()
        .send(CaptureEvent::Closed {
            entry: op.entry.clone(),
            members: 1,
            bytes: 1,
        })
        .unwrap();
    keeper.sync();
    wait_until("expired", || {
        f.ws.journal.entry(&op.entry).unwrap().unwrap().state == State::Expired
    });
    assert!(!f.staged(&op.entry).exists());
}
