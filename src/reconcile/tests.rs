use super::*;
use crate::fixture::{DAY, Fixture};
use crate::journal::Filter;
use crate::record::{Cause, Keep};
use crate::retention;

/// Everything that is known, in a form that can be compared.
fn known(f: &Fixture) -> Vec<Entry> {
    let filter = Filter {
        all: true,
        ended: true,
        limit: 100,
        ..Filter::default()
    };
    f.ws.journal.list(&filter).unwrap().entries
}

/// Reconciles, and again, and again after a restart: the first may change something, the others
/// nothing.
fn settle(f: Fixture) -> (Fixture, Report) {
    let report = reconcile(&f.ws).unwrap();
    let after = known(&f);
    let lasting = |r: &Report| (r.missing.clone(), r.foreign.clone());
    let again = reconcile(&f.ws).unwrap();
    assert_eq!(
        (known(&f), lasting(&again)),
        (after.clone(), lasting(&report))
    );
    assert!(again.adopted.is_empty() && again.resealed.is_empty() && again.purged.is_empty());
    let f = f.reopened();
    reconcile(&f.ws).unwrap();
    assert_eq!(known(&f), after);
    (f, report)
}

#[test]
fn a_lost_journal_is_made_anew_from_staging() {
    let f = Fixture::new();
    let now = clock::now();
    let plain = f.removed("plain", "x", Keep::Hosted, now);
    let held = f.removed("held", "x", Keep::Local, now);
    retention::hold(&f.ws, held.as_str(), true).unwrap();
    let lasting = f.removed("lasting", "x", Keep::Local, now);
    retention::set_days(&f.ws, lasting.as_str(), 99).unwrap();
    let before = known(&f);
    for name in ["journal.db", "journal.db-wal"] {
        std::fs::write(f.state_dir().join(name), "rubbish").unwrap();
    }
    let f = f.reopened();
    assert!(f.ws.journal.set_aside_now().is_some());
    let (f, report) = settle(f);
    assert_eq!(report.adopted.len(), 3);
    assert!(report.adopted.contains(&plain));
    assert!(report.journal_set_aside.is_some());
    assert_eq!(known(&f), before);
}

#[test]
fn an_operation_that_was_cut_short_is_sealed() {
    let f = Fixture::new();
    f.write("a", "x");
    let op = f.begin(Keep::Hosted, clock::now());
    f.ws.journal.put(&seal::open_entry(&f.ws, &op)).unwrap();
    f.capture(&op.entry, "a", Cause::Remove, DAY * 365);
    let (f, report) = settle(f);
    assert_eq!(report.resealed, std::slice::from_ref(&op.entry));
    let entry = f.ws.journal.entry(&op.entry).unwrap().unwrap();
    assert_eq!((entry.state, entry.members), (State::Sealed, 1));
    assert_eq!(entry.agent.as_deref(), Some("claude"));
}

#[test]
fn one_that_the_journal_never_heard_of_is_adopted_even_without_its_record() {
    let f = Fixture::new();
    f.write("d/a", "x");
    f.write("d/b", "x");
    for (path, record) in [("d/a", None), ("d/b", Some("{\"format\":1,\"ent"))] {
        let op = f.begin(Keep::Hosted, clock::now());
        f.capture(&op.entry, path, Cause::Remove, DAY * 365);
        let file = f.staged(&op.entry).join("op.json");
        match record {
            Some(text) => std::fs::write(file, text).unwrap(),
            #[expect(clippy::disallowed_methods, reason = "a test damages its own scratch")]
            None => std::fs::remove_file(file).unwrap(),
        }
    }
    let (f, report) = settle(f);
    assert_eq!(report.adopted.len(), 2);
    let mut paths: Vec<String> = known(&f)
        .iter()
        .map(|e| e.path.display().into_owned())
        .collect();
    paths.sort();
    assert_eq!(paths, ["d/a", "d/b"]);
}

#[test]
fn what_nothing_was_captured_in_goes_without_a_trace() {
    let f = Fixture::new();
    let heard = f.begin(Keep::Hosted, clock::now());
    f.ws.journal.put(&seal::open_entry(&f.ws, &heard)).unwrap();
    let unheard = f.begin(Keep::Local, clock::now());
    let undone = f.begin(Keep::Local, clock::now());
    f.ws.journal.put(&seal::open_entry(&f.ws, &undone)).unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test damages its own scratch")]
    std::fs::remove_dir_all(f.staged(&undone.entry)).unwrap();
    let (f, _) = settle(f);
    assert_eq!(known(&f), []);
    assert!(!f.staged(&heard.entry).exists() && !f.staged(&unheard.entry).exists());
}

#[test]
fn one_that_staging_lost_is_reported_until_a_person_lets_it_go() {
    let f = Fixture::new();
    let id = f.removed("a", "x", Keep::Hosted, clock::now());
    let place = f.staged(&id);
    let aside = f.path("aside");
    #[expect(clippy::disallowed_methods, reason = "a test damages its own scratch")]
    std::fs::rename(&place, &aside).unwrap();
    let (f, report) = settle(f);
    assert_eq!(report.missing, std::slice::from_ref(&id));
    let entry = f.ws.journal.entry(&id).unwrap().unwrap();
    assert_eq!((entry.state, entry.resident), (State::Sealed, false));
    assert!(!entry.failed.unwrap().retryable);
    #[expect(clippy::disallowed_methods, reason = "a test damages its own scratch")]
    std::fs::rename(&aside, &place).unwrap();
    let (f, report) = settle(f);
    assert_eq!(report.missing, []);
    let entry = f.ws.journal.entry(&id).unwrap().unwrap();
    assert!(entry.resident && entry.failed.is_none());
}

#[test]
fn an_end_that_was_interrupted_is_finished() {
    let f = Fixture::new();
    let now = clock::now();
    let given_up = f.removed("given-up", "x", Keep::Hosted, now);
    f.ws.journal
        .apply(&given_up, Event::Discard, |e| e.resident = false)
        .unwrap();
    let evicted = f.removed("evicted", "x", Keep::Hosted, now);
    let outgoing = purge::take_out(&f.ws.staging, &evicted).unwrap();
    assert_eq!(outgoing.len(), 1);
    drop(outgoing);
    let (f, report) = settle(f);
    assert_eq!(report.purged.len(), 2);
    assert!(!f.staged(&given_up).exists());
    let state = |id| f.ws.journal.entry(id).unwrap().unwrap().state;
    assert_eq!(
        (state(&given_up), state(&evicted)),
        (State::Discarded, State::Expired)
    );
    let losses = f.ws.journal.losses(10).unwrap();
    assert_eq!(
        (losses.len(), losses[0].reason),
        (1, LossReason::Interrupted)
    );
    assert!(purge::lying(&f.ws.staging).unwrap().is_empty());
}

#[test]
fn foreign_files_are_left_alone_and_named() {
    let f = Fixture::new();
    let id = f.begin(Keep::Local, clock::now()).entry;
    let foreign = [
        ".trashfs/precious",
        ".trashfs/ops/not-an-id",
        ".trashfs/purge/Mine.txt",
    ];
    for path in foreign {
        f.write(path, "x");
    }
    let inside = format!(".trashfs/ops/{id}/photos/1.jpg");
    f.write(&inside, "x");
    f.write(".trashfs/scratch/half-made", "x");
    let (f, report) = settle(f);
    assert_eq!(report.foreign.len(), 4, "{:?}", report.foreign);
    for path in foreign.iter().copied().chain([inside.as_str()]) {
        assert!(f.path(path).exists(), "{path}");
    }
    assert!(!f.path(".trashfs/scratch/half-made").exists());
    assert_eq!(
        Report::last(&f.ws.journal).unwrap().unwrap().foreign,
        report.foreign
    );
}

#[test]
fn a_clean_start_reports_nothing() {
    let f = Fixture::new();
    f.removed("a", "x", Keep::Hosted, clock::now());
    let (_f, report) = settle(f);
    assert!(report.is_clean(), "{report:?}");
}
