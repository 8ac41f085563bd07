use super::*;
use crate::clock::{self, UnixNanos};
use crate::fixture::{DAY, Fixture};
use crate::ids::EntryId;
use crate::journal::State;
use crate::policy::{PolicyHandle, StationPolicy};
use crate::record::{Bytes, Cause, Keep};
use crate::staging::SETTINGS;

fn days_ago(days: u32) -> UnixNanos {
    let ns = i64::try_from((DAY * days).as_nanos()).unwrap();
    UnixNanos(clock::now().0 - ns)
}

fn state(f: &Fixture, id: &EntryId) -> State {
    f.ws.journal.entry(id).unwrap().unwrap().state
}

#[test]
fn an_entry_expires_when_its_time_has_passed_and_not_before() {
    let f = Fixture::new();
    let old = f.removed("old", "x", Keep::Hosted, days_ago(366));
    let young = f.removed("young", "x", Keep::Hosted, days_ago(364));
    let done = expire(&f.ws, clock::now()).unwrap();
    assert_eq!(
        (done.entries, state(&f, &old), state(&f, &young)),
        (1, State::Expired, State::Sealed)
    );
    assert!(!f.staged(&old).exists() && f.staged(&young).exists());
    assert!(purge::lying(&f.ws.staging).unwrap().is_empty());
    assert_eq!(expire(&f.ws, clock::now()).unwrap(), Expired::default());
}

#[test]
fn a_held_entry_outlives_its_time_until_it_is_let_go() {
    let f = Fixture::new();
    let id = f.removed("a", "x", Keep::Hosted, days_ago(400));
    let held = hold(&f.ws, &id.as_str()[..6], true).unwrap();
    assert!(held.hold);
    assert_eq!(expire(&f.ws, clock::now()).unwrap().entries, 0);
    hold(&f.ws, id.as_str(), false).unwrap();
    assert_eq!(expire(&f.ws, clock::now()).unwrap().entries, 1);
    assert_eq!(hold(&f.ws, id.as_str(), true).unwrap_err().code, "ended");
}

#[test]
fn retention_is_one_to_365_days_and_survives_in_staging() {
    let f = Fixture::new();
    let id = f.removed("a", "x", Keep::Hosted, days_ago(10));
    for days in [0, 366, -1, i64::MAX] {
        let told = set_days(&f.ws, id.as_str(), days).unwrap_err();
        assert_eq!((told.code.as_str(), told.exit_code()), ("usage", 1));
        assert!(told.what.contains(&days.to_string()), "{told}");
    }
    let longer = set_days(&f.ws, id.as_str(), 20).unwrap();
    assert_eq!(longer.retain_until, longer.removed_at.plus(DAY * 20));
    assert!(f.staged(&id).join(SETTINGS).exists());
    assert_eq!(expire(&f.ws, clock::now()).unwrap().entries, 0);
    assert_eq!(
        expire(&f.ws, clock::now().plus(DAY * 11)).unwrap().entries,
        1
    );
    let other = f.removed("b", "x", Keep::Hosted, days_ago(10));
    set_days(&f.ws, other.as_str(), 9).unwrap();
    assert_eq!(expire(&f.ws, clock::now()).unwrap().entries, 1);
}

#[test]
fn trees_of_one_entry_expire_one_by_one() {
    let f = Fixture::new();
    for name in ["scratch", "cache/x", "mod/left"] {
        f.write(name, "x");
    }
    let op = f.begin(Keep::Local, days_ago(2));
    f.capture(&op.entry, "scratch", Cause::Remove, DAY / 24);
    f.capture(&op.entry, "cache", Cause::Remove, DAY * 3);
    f.capture(&op.entry, "mod/left", Cause::Replace, DAY * 7);
    crate::seal::seal_now(&f.ws, &op.entry).unwrap().unwrap();
    let paths = || {
        let entry = f.ws.journal.entry(&op.entry).unwrap().unwrap();
        let roots = entry.roots.iter().map(|r| r.path.display().into_owned());
        roots.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(paths(), "cache mod/left scratch");
    assert_eq!(expire(&f.ws, clock::now()).unwrap().trees, 1);
    assert_eq!(paths(), "cache mod/left");
    assert_eq!(expire(&f.ws, clock::now().plus(DAY * 2)).unwrap().trees, 1);
    assert_eq!(
        (paths().as_str(), state(&f, &op.entry)),
        ("mod/left", State::Sealed)
    );
    assert_eq!(
        expire(&f.ws, clock::now().plus(DAY * 6)).unwrap().entries,
        1
    );
    assert_eq!(state(&f, &op.entry), State::Expired);
}

#[test]
fn what_is_being_restored_does_not_expire() {
    let f = Fixture::new();
    let id = f.removed("a", "x", Keep::Hosted, days_ago(400));
    let pin = f.ws.staging.pin(&id).unwrap();
    assert!(f.ws.staging.pin(&id).is_none());
    assert_eq!(expire(&f.ws, clock::now()).unwrap().entries, 0);
    drop(pin);
    assert_eq!(expire(&f.ws, clock::now().plus(DAY)).unwrap().entries, 1);
}

#[test]
fn of_one_path_ten_versions_stay() {
    let f = Fixture::new();
    let path = Bytes::from("notes");
    let ids: Vec<EntryId> = (0..13)
        .map(|n| {
            f.write("notes", &n.to_string());
            let op = f.begin(Keep::Local, UnixNanos(days_ago(1).0 + n));
            f.capture(&op.entry, "notes", Cause::Replace, DAY * 7);
            if n == 0 {
                f.write("other", "x");
                f.capture(&op.entry, "other", Cause::Replace, DAY * 7);
            }
            crate::seal::seal_now(&f.ws, &op.entry).unwrap().unwrap();
            op.entry
        })
        .collect();
    for _ in 0..2 {
        versions::enforce(&f.ws, std::slice::from_ref(&path)).unwrap();
        let alive: Vec<bool> = ids.iter().map(|id| f.staged(id).exists()).collect();
        assert_eq!(
            alive.iter().filter(|a| **a).count(),
            11,
            "ten, and what else the first holds"
        );
        let first = f.ws.journal.entry(&ids[0]).unwrap().unwrap();
        assert_eq!(
            (first.roots.len(), first.roots[0].path.display().as_ref()),
            (1, "other")
        );
        assert_eq!(state(&f, &ids[1]), State::Expired);
        assert_eq!(state(&f, &ids[3]), State::Sealed);
    }
}

#[test]
fn emptying_takes_what_is_old_enough_and_not_held() {
    let f = Fixture::new();
    let old = f.removed("old", "xx", Keep::Hosted, days_ago(30));
    let held = f.removed("held", "x", Keep::Hosted, days_ago(30));
    let young = f.removed("young", "x", Keep::Hosted, days_ago(1));
    hold(&f.ws, held.as_str(), true).unwrap();
    let would = empty(&f.ws, 7, true).unwrap();
    assert_eq!(
        (
            would.entries.len(),
            would.bytes,
            would.held,
            would.freed_bytes
        ),
        (1, 2, 1, None)
    );
    assert!(f.staged(&old).exists());
    let did = empty(&f.ws, 7, false).unwrap();
    assert_eq!((did.entries[0].id.clone(), did.bytes), (old.clone(), 2));
    assert_eq!(state(&f, &old), State::Discarded);
    assert!(!f.staged(&old).exists() && f.staged(&held).exists() && f.staged(&young).exists());
    assert_eq!(empty(&f.ws, 0, false).unwrap().entries.len(), 1);
    assert!(f.staged(&held).exists());
}

#[test]
fn release_keeps_the_only_copy_and_says_why() {
    let f = Fixture::new();
    let whole = f.removed("whole", "x", Keep::Hosted, days_ago(1));
    let done = release(&f.ws, Some(whole.as_str()), true, false).unwrap();
    assert!(done.released.is_empty() && done.kept[0].reason.contains("only copy"));
    let gone = f.removed("gone", "x", Keep::Hosted, days_ago(1));
    #[expect(clippy::disallowed_methods, reason = "a test damages its own scratch")]
    std::fs::remove_dir_all(f.staged(&gone)).unwrap();
    crate::reconcile::reconcile(&f.ws).unwrap();
    let kept = release(&f.ws, None, false, false).unwrap();
    assert_eq!((kept.kept.len(), kept.released.len()), (1, 0));
    assert!(kept.kept[0].next.contains("--discard-incomplete"));
    let would = release(&f.ws, None, true, true).unwrap();
    assert_eq!((would.released.len(), state(&f, &gone)), (1, State::Sealed));
    release(&f.ws, None, true, false).unwrap();
    assert_eq!(state(&f, &gone), State::Discarded);
    assert_eq!(release(&f.ws, None, true, false).unwrap().released, []);
}

/// A filesystem of its own in memory; unmounted when dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn new(mib: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={mib}m");
        rustix::mount::mount(
            "tmpfs",
            dir.path(),
            "tmpfs",
            rustix::mount::MountFlags::empty(),
            std::ffi::CString::new(size).unwrap().as_c_str(),
        )
        .unwrap();
        Self(dir)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

fn mib(n: usize) -> String {
    "x".repeat(n << 20)
}

#[test]
fn beyond_the_budget_the_oldest_go_but_nothing_young() {
    let disk = Small::new(100);
    let f = Fixture::over(disk.0.path());
    let local = f.removed("l", &mib(5), Keep::Local, days_ago(0));
    let old = f.removed("old", &mib(5), Keep::Hosted, days_ago(9));
    let newer = f.removed("newer", &mib(5), Keep::Hosted, days_ago(8));
    let held = f.removed("held", &mib(5), Keep::Hosted, days_ago(20));
    hold(&f.ws, held.as_str(), true).unwrap();
    assert_eq!(make_room(&f.ws, false).unwrap(), []);
    let young = f.removed("young", &mib(9), Keep::Hosted, days_ago(0));
    let lost = make_room(&f.ws, false).unwrap();
    let ids: Vec<&EntryId> = lost.iter().map(|l| &l.entry).collect();
    assert_eq!(
        ids,
        [&local, &old],
        "local first, then the oldest, and no more than needed"
    );
    assert_eq!(f.ws.journal.losses(10).unwrap().len(), 2);
    for id in [&held, &newer, &young] {
        assert_eq!(state(&f, id), State::Sealed);
    }
    f.removed("young2", &mib(30), Keep::Hosted, days_ago(0));
    let lost = make_room(&f.ws, false).unwrap();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert_eq!(
        (lost[0].entry.clone(), state(&f, &young)),
        (newer, State::Sealed)
    );
    assert_eq!(
        make_room(&f.ws, false).unwrap(),
        [],
        "what is young stays while there is room"
    );
}

#[test]
fn a_small_disk_can_be_filled_again_and_the_losses_are_announced() {
    let disk = Small::new(100);
    let f = Fixture::over(disk.0.path());
    let first = f.removed("first", &mib(60), Keep::Hosted, days_ago(0));
    assert_eq!(
        make_room(&f.ws, false).unwrap(),
        [],
        "undo is possible while there is room"
    );
    f.write("more", &mib(35));
    assert_eq!(
        make_room(&f.ws, false).unwrap(),
        [],
        "nor before somebody needs it"
    );
    let lost = make_room(&f.ws, true).unwrap();
    assert_eq!(
        (lost.len(), lost[0].reason),
        (1, crate::journal::LossReason::DiskFull)
    );
    assert_eq!(state(&f, &first), State::Expired);
    assert!(rooms(&f.ws).unwrap()[0].free_bytes > 60 << 20);
    assert_eq!(f.ws.journal.losses(10).unwrap(), lost);
}

/// Half of the disk is to be kept free: so it is low long before it is full.
fn cautious(disk: &Small) -> Fixture {
    let f = Fixture::over(disk.0.path());
    let station = StationPolicy::parse("config.toml", "[budget]\nfree = \"50%\"\n").unwrap();
    let root = std::fs::File::open(disk.0.path()).unwrap().into();
    f.with_policy(PolicyHandle::load(station, root).unwrap())
}

#[test]
fn a_disk_filled_by_live_files_costs_young_removals_only_at_the_last() {
    let disk = Small::new(100);
    let f = cautious(&disk);
    f.write("live", &mib(55));
    let young = f.removed("young", &mib(8), Keep::Hosted, days_ago(0));
    assert_eq!(
        make_room(&f.ws, false).unwrap(),
        [],
        "low, but within the budget and not full"
    );
    f.write("live2", &mib(10));
    assert_eq!(make_room(&f.ws, true).unwrap().len(), 1);
    assert_eq!(state(&f, &young), State::Expired);
}

#[test]
fn on_a_low_disk_the_last_removal_can_be_taken_back_for_a_moment() {
    let disk = Small::new(100);
    let f = cautious(&disk);
    let a_while_ago = UnixNanos(clock::now().0 - 120_000_000_000);
    let earlier = f.removed("earlier", &mib(10), Keep::Hosted, a_while_ago);
    let just_now = f.removed("just-now", &mib(45), Keep::Hosted, clock::now());
    let lost = make_room(&f.ws, false).unwrap();
    assert_eq!((lost.len(), lost[0].entry.clone()), (1, earlier));
    assert_eq!(state(&f, &just_now), State::Sealed);
    assert_eq!(make_room(&f.ws, true).unwrap(), [], "writers have room yet");
    f.write("live", &mib(30));
    assert_eq!(make_room(&f.ws, false).unwrap(), []);
    assert_eq!(make_room(&f.ws, true).unwrap().len(), 1);
}

#[test]
fn a_sparse_file_counts_as_what_it_occupies() {
    let disk = Small::new(50);
    let f = Fixture::over(disk.0.path());
    let file = std::fs::File::create(f.path("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    let op = f.begin(Keep::Hosted, days_ago(9));
    f.capture(&op.entry, "sparse", Cause::Remove, DAY * 365);
    crate::seal::seal_now(&f.ws, &op.entry).unwrap().unwrap();
    f.write("live", &mib(30));
    assert_eq!(make_room(&f.ws, false).unwrap(), []);
    assert_eq!(f.ws.journal.totals().unwrap().disk_bytes, 0);
}
