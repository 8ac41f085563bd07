use std::os::unix::fs::PermissionsExt;

use super::bench::Bench;
use super::spec;
use crate::ids::OperationId;
use crate::journal::State;
use crate::record::{Cause, Keep};
use crate::restore::{UndoSpec, Why, restore, undo};

fn replacing() -> UndoSpec {
    UndoSpec {
        cause: Some(Cause::Replace),
        ..UndoSpec::default()
    }
}

#[test]
fn the_newest_removal_is_taken_back_first_and_then_the_one_before() {
    let bench = Bench::new();
    bench.write("one", "text 1");
    bench.write("two", "text 2");
    bench.removed("one");
    bench.removed("two");
    undo(&bench.ws, &UndoSpec::default()).unwrap();
    assert!(bench.exists("two") && !bench.exists("one"));
    undo(&bench.ws, &UndoSpec::default()).unwrap();
    assert!(bench.exists("one"));
    let nothing = undo(&bench.ws, &UndoSpec::default()).unwrap_err();
    assert_eq!(
        (nothing.code.as_str(), nothing.exit_code()),
        ("nothing-to-undo", 2)
    );
}

#[test]
fn an_operation_is_taken_back_from_all_its_entries() {
    let bench = Bench::new();
    bench.write("p/node_modules/m", "text m");
    bench.write("p/own", "text own");
    let before = bench.snapshot();
    let operation = OperationId::random();
    let local = bench
        .op_of(&operation, Keep::Local, None)
        .remove_into("remove-3d-1", "p/node_modules");
    // The real one gets its old time back when its removal is captured.
    restore_time(&bench, "p", &before);
    let hosted = bench.op_of(&operation, Keep::Hosted, None).remove("p");
    let (local, hosted) = (local.seal(), hosted.seal());
    let undone = undo(&bench.ws, &UndoSpec::default()).unwrap();
    assert_eq!(undone.operations.len(), 1);
    assert_eq!(undone.operations[0].entries.len(), 2);
    assert_eq!(bench.snapshot(), before);
    for entry in [local, hosted] {
        assert_eq!(bench.entry(&entry.id).state, State::Restored);
    }
}

fn restore_time(
    bench: &Bench,
    path: &str,
    before: &std::collections::BTreeMap<std::path::PathBuf, String>,
) {
    let line = &before[std::path::Path::new(path)];
    let (secs, nanos) = line.split(' ').nth(2).unwrap().split_once('.').unwrap();
    let time = std::time::UNIX_EPOCH
        + std::time::Duration::new(secs.parse().unwrap(), nanos.parse().unwrap());
    let times = std::fs::FileTimes::new()
        .set_modified(time)
        .set_accessed(time);
    std::fs::File::open(bench.path(path))
        .unwrap()
        .set_times(times)
        .unwrap();
}

#[test]
fn an_overwritten_file_goes_back_while_it_is_what_the_operation_left() {
    let bench = Bench::new();
    bench.write("f", "text 1");
    bench.op().replace("f", "text 2").seal();
    bench.op().replace("f", "text 3").seal();
    let undone = undo(&bench.ws, &replacing()).unwrap();
    assert_eq!(bench.read("f"), "text 2");
    assert_eq!(undone.restored.captured.len(), 1);
    undo(&bench.ws, &replacing()).unwrap();
    assert_eq!(bench.read("f"), "text 1");
    assert_eq!(bench.contents(), ["text 1", "text 2", "text 3"]);
    assert_eq!(
        undo(&bench.ws, &replacing()).unwrap_err().code,
        "nothing-to-undo"
    );
    // What the undo took is kept, too, and can be had again by its own id.
    let redo = UndoSpec {
        entry: Some(undone.restored.captured[0].to_string()),
        ..UndoSpec::default()
    };
    assert_eq!(undo(&bench.ws, &redo).unwrap_err().code, "changed-since");
}

#[test]
fn later_work_is_never_touched() {
    let bench = Bench::new();
    bench.write("f", "text 1");
    let entry = bench.op().replace("f", "text 2").seal();
    bench.write("f", "text by hand");
    let failure = undo(&bench.ws, &replacing()).unwrap_err();
    assert_eq!(failure.code, "changed-since");
    assert_eq!(failure.next, format!("trash restore {} f --swap", entry.id));
    assert_eq!(bench.read("f"), "text by hand");
}

#[test]
fn a_command_that_removed_and_overwrote_is_taken_back_but_for_what_changed_since() {
    let bench = Bench::new();
    for name in ["gone", "same", "edited"] {
        bench.write(name, &format!("text old {name}"));
    }
    bench
        .op()
        .remove("gone")
        .replace("same", "text new same")
        .replace("edited", "text new edited")
        .seal();
    bench.write("edited", "text by hand");
    let undone = undo(&bench.ws, &UndoSpec::default()).unwrap();
    assert_eq!(bench.read("gone"), "text old gone");
    assert_eq!(bench.read("same"), "text old same");
    assert_eq!(bench.read("edited"), "text by hand");
    let left: Vec<_> = undone
        .restored
        .left_alone
        .iter()
        .map(|l| (l.path.display(), l.why))
        .collect();
    assert_eq!(left, [("edited".into(), Why::ChangedSince)]);
    assert_eq!(
        undo(&bench.ws, &UndoSpec::default()).unwrap_err().code,
        "nothing-to-undo"
    );
}

#[test]
fn a_removed_path_that_is_taken_again_refuses_the_whole_undo() {
    let bench = Bench::new();
    bench.write("a", "text a");
    bench.write("b", "text b");
    bench.op().remove("a").remove("b").seal();
    bench.write("b", "text new");
    assert_eq!(
        undo(&bench.ws, &UndoSpec::default()).unwrap_err().code,
        "occupied"
    );
    assert!(!bench.exists("a"));
}

#[test]
fn versions_within_one_operation_end_at_the_oldest_and_the_rest_stays() {
    let bench = Bench::new();
    bench.write("f", "text 1");
    let op = bench.op().replace("f", "text 2");
    let entry = op.remove("f").seal();
    undo(&bench.ws, &UndoSpec::default()).unwrap();
    assert_eq!(bench.read("f"), "text 1");
    assert_eq!(bench.contents(), ["text 1", "text 2"]);
    assert_eq!(bench.entry(&entry.id).state, State::Sealed);
    assert_eq!(
        undo(&bench.ws, &UndoSpec::default()).unwrap_err().code,
        "nothing-to-undo"
    );
}

#[test]
fn what_was_removed_and_filled_again_by_one_command_counts_as_overwritten() {
    let bench = Bench::new();
    bench.write("f", "text 1");
    let op = bench.op().remove("f");
    bench.write("f", "text 2");
    let entry = op.seal();
    assert_eq!(entry.causes, [Cause::Replace]);
    assert_eq!(
        undo(&bench.ws, &UndoSpec::default()).unwrap_err().code,
        "nothing-to-undo"
    );
    undo(&bench.ws, &replacing()).unwrap();
    assert_eq!(bench.read("f"), "text 1");
    assert_eq!(bench.contents(), ["text 1", "text 2"]);
}

#[test]
fn what_a_command_made_and_removed_itself_does_not_come_back() {
    let bench = Bench::new();
    let id = OperationId::random();
    for (path, text) in [
        ("work/HEAD", "text 1"),
        (".git/HEAD.lock", "text lock"),
        ("tmp", "text t"),
    ] {
        bench.write(path, text);
    }
    bench
        .op_of(&id, Keep::Local, None)
        .replace("work/HEAD", "text 2")
        .seal();
    let own = bench
        .op_of(&id, Keep::Local, None)
        .remove_into("remove-1d-1", ".git/HEAD.lock");
    let own = own.remove_into("remove-1h-1", "tmp").seal();
    undo(&bench.ws, &replacing()).unwrap();
    assert_eq!(bench.read("work/HEAD"), "text 1");
    assert!(!bench.exists(".git/HEAD.lock") && !bench.exists("tmp"));
    // By its id it is what is meant.
    restore(&bench.ws, &spec(&own)).unwrap();
    assert_eq!(bench.read("tmp"), "text t");
    let only = bench
        .op_of(&OperationId::random(), Keep::Local, None)
        .remove_into("remove-1h-1", "tmp")
        .seal();
    let named = UndoSpec {
        entry: Some(only.id.to_string()),
        ..UndoSpec::default()
    };
    undo(&bench.ws, &named).unwrap();
    assert_eq!(bench.read("tmp"), "text t");
}

#[test]
fn a_truncation_of_one_of_several_links_is_taken_back_and_the_others_are_named() {
    let bench = Bench::new();
    bench.write("f", "text 1");
    std::fs::hard_link(bench.path("f"), bench.path("g")).unwrap();
    let op = bench.op();
    let tree = bench.path(&format!(".trashfs/ops/{}/truncate-7d-1", op.entry));
    std::fs::create_dir(&tree).unwrap();
    std::fs::copy(bench.path("f"), tree.join("f")).unwrap();
    bench.write("f", "text 2");
    op.seal();
    let undone = undo(&bench.ws, &replacing()).unwrap();
    assert_eq!(
        (bench.read("f"), bench.read("g")),
        ("text 1".into(), "text 2".into())
    );
    let [note] = &undone.restored.notes[..] else {
        panic!("{undone:?}")
    };
    assert!(note.contains("other hard links"), "{note}");
}

#[test]
fn versions_keep_their_order_when_an_older_one_is_touched_by_another_link() {
    for taken_back in [true, false] {
        let bench = Bench::new();
        bench.write("f", "text 1");
        std::fs::hard_link(bench.path("f"), bench.path("g")).unwrap();
        let op = bench.op().remove("f");
        bench.write("f", "text 2");
        let entry = op.remove_into("remove-365d-2", "f").seal();
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::set_permissions(bench.path("g"), PermissionsExt::from_mode(0o600)).unwrap();
        if taken_back {
            undo(&bench.ws, &UndoSpec::default()).unwrap();
            assert_eq!(bench.read("f"), "text 1");
        } else {
            restore(&bench.ws, &spec(&entry)).unwrap();
            assert_eq!(bench.read("f"), "text 2");
        }
    }
}

#[test]
fn a_removed_directory_stays_a_removal_when_its_path_is_filled_again() {
    let bench = Bench::new();
    bench.write("d/s/f", "text precious");
    let op = bench.op().remove("d");
    bench.write("d/s/g", "text new");
    let entry = op.seal();
    assert_eq!(entry.causes, [Cause::Remove]);
    let failure = undo(&bench.ws, &UndoSpec::default()).unwrap_err();
    assert_eq!(failure.code, "occupied");
    assert!(failure.next.contains("--swap"));
    assert_eq!(bench.contents(), ["text new", "text precious"]);
}

#[test]
fn a_tree_moved_onto_an_empty_directory_is_not_taken_back_with_later_work_in_it() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("d")).unwrap();
    let op = bench.op().remove_into("replace-7d-1", "d");
    bench.write("d/s/f", "text moved");
    op.seal();
    std::thread::sleep(std::time::Duration::from_millis(20));
    bench.write("d/s/f", "text later");
    assert_eq!(
        undo(&bench.ws, &replacing()).unwrap_err().code,
        "changed-since"
    );
    assert_eq!(bench.read("d/s/f"), "text later");
}

#[test]
fn a_session_is_taken_back_to_where_it_began() {
    let bench = Bench::new();
    bench.write("f", "text 1");
    bench.write("d/g", "text g");
    let op = |bench: &Bench| OperationId::random().to_string() + &bench.ws.station;
    assert_ne!(op(&bench), op(&bench));
    let session =
        |bench: &'static Bench| bench.op_of(&OperationId::random(), Keep::Hosted, Some("s1"));
    let bench: &'static Bench = Box::leak(Box::new(bench));
    session(bench).remove("f").seal();
    bench.write("f", "text 2");
    session(bench).replace("f", "text 3").seal();
    session(bench).remove("d/g").seal();
    session(bench).remove("d").seal();
    session(bench).remove("f").seal();
    bench.write("other", "text other");
    bench.removed("other");
    let undone = undo(
        &bench.ws,
        &UndoSpec {
            session: Some("s1".into()),
            ..UndoSpec::default()
        },
    )
    .unwrap();
    assert_eq!(undone.operations.len(), 5);
    assert_eq!(bench.read("f"), "text 1");
    assert_eq!(bench.read("d/g"), "text g");
    assert!(!bench.exists("other"));
    assert_eq!(
        bench.contents(),
        ["text 1", "text 2", "text 3", "text g", "text other"]
    );
}

#[test]
fn what_a_tool_removed_of_its_own_is_passed_over_unless_it_is_asked_for() {
    let bench = Bench::new();
    bench.write("work", "text work");
    bench.write("scratch", "text scratch");
    let work = bench.removed("work");
    let operation = OperationId::random();
    let tool = bench.op_of(&operation, Keep::Local, None);
    let tool = tool.remove_into("remove-1h-1", "scratch").seal();
    assert!(tool.passing && !work.passing);
    let plain = bench
        .ws
        .journal
        .list(&crate::journal::Filter::default())
        .unwrap();
    assert_eq!(
        plain.entries.iter().map(|e| &e.id).collect::<Vec<_>>(),
        [&work.id]
    );
    undo(&bench.ws, &UndoSpec::default()).unwrap();
    assert!(bench.exists("work") && !bench.exists("scratch"));
    let asked = UndoSpec {
        cause: Some(Cause::Remove),
        ..UndoSpec::default()
    };
    undo(&bench.ws, &asked).unwrap();
    assert!(bench.exists("scratch"));
}
