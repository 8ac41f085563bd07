//! Overwritten files: found by path, shown, undone, and swapped back.

use std::path::Path;

use crate::common::{Station, Workspace};

const OLD: &str = "the old content\nof several lines\n";

/// A way to overwrite `notes.txt` that has the content [`OLD`].
struct Overwriting {
    name: &'static str,
    prepare: &'static str,
    script: &'static str,
}

const OVERWRITINGS: [Overwriting; 8] = [
    Overwriting {
        name: "mv over",
        prepare: "echo new > other",
        script: "mv other notes.txt",
    },
    Overwriting {
        name: ">",
        prepare: "",
        script: "echo new > notes.txt",
    },
    Overwriting {
        name: "cp over",
        prepare: "echo new > other",
        script: "cp other notes.txt",
    },
    Overwriting {
        name: "sed -i",
        prepare: "",
        script: "sed -i s/old/new/ notes.txt",
    },
    Overwriting {
        name: "vim",
        prepare: "",
        script: "vim -N -u NONE -es -c '%s/old/new/' -c wq notes.txt </dev/null",
    },
    Overwriting {
        name: "an editor that writes beside and renames",
        prepare: "",
        script: "python3 -c 'import os; open(\".notes.tmp\", \"w\").write(\"new\\n\"); \
                 os.replace(\".notes.tmp\", \"notes.txt\")'",
    },
    Overwriting {
        name: "git checkout -- .",
        prepare: "git init -q . && git config user.name a && git config user.email a@b && \
                  git stash -q -u 2>/dev/null; cp notes.txt /dev/null; mv notes.txt edited && \
                  echo committed > notes.txt && git add notes.txt && git commit -qm one && \
                  rm notes.txt && cat edited > notes.txt && rm edited",
        script: "git checkout -q -- .",
    },
    Overwriting {
        name: "git reset --hard",
        prepare: "git init -q . && git config user.name a && git config user.email a@b && \
                  mv notes.txt edited && echo committed > notes.txt && git add notes.txt && \
                  git commit -qm one && rm notes.txt && cat edited > notes.txt && rm edited",
        script: "git reset -q --hard",
    },
];

fn overwritten(station: &std::sync::Arc<Station>, dir: &Path, how: &Overwriting) -> Workspace {
    let ws = station.mount(dir);
    std::fs::write(ws.path.join("notes.txt"), OLD).unwrap();
    ws.sh(how.prepare).ok();
    assert_eq!(content(&ws), OLD, "{}: prepared", how.name);
    // The scratch rule keeps what the same process has just made in another way; this file is
    // one that somebody worked on.
    ws.sh(how.script).ok();
    assert_ne!(content(&ws), OLD, "{}", how.name);
    ws
}

fn content(ws: &Workspace) -> String {
    std::fs::read_to_string(ws.path.join("notes.txt")).unwrap()
}

/// The newest entry whose `notes.txt` has the old content.
#[track_caller]
fn entry_with_old(ws: &Workspace, how: &Overwriting) -> String {
    let entries = ws.list(&["--path", "notes.txt"]);
    assert!(
        !entries.is_empty(),
        "{}: list --path shows nothing",
        how.name
    );
    let id = entries[0]["id"].as_str().unwrap();
    let shown = ws.trash(["show", id, "notes.txt"]).ok();
    assert_eq!(shown.out, OLD, "{}: {:#}", how.name, entries[0]);
    id.to_owned()
}

#[test]
fn the_old_content_is_found_by_path_and_shown() {
    for how in &OVERWRITINGS {
        let station = Station::new();
        let ws = overwritten(&station, &station.dir("work"), how);
        entry_with_old(&ws, how);
    }
}

#[test]
fn undo_takes_an_overwriting_back() {
    for how in &OVERWRITINGS {
        let station = Station::new();
        let ws = overwritten(&station, &station.dir("work"), how);
        let newer = content(&ws);
        ws.trash(["undo", "--cause", "replace"]).ok();
        assert_eq!(content(&ws), OLD, "{}", how.name);
        let id = ws.newest(&["--path", "notes.txt"]);
        let shown = ws.trash(["show", &id, "notes.txt"]).ok();
        assert_eq!(
            shown.out, newer,
            "{}: the newer content is in the list",
            how.name
        );
    }
}

#[test]
fn a_swap_puts_the_newer_content_into_the_list() {
    for how in &OVERWRITINGS {
        let station = Station::new();
        let ws = overwritten(&station, &station.dir("work"), how);
        let newer = content(&ws);
        let id = entry_with_old(&ws, how);
        ws.trash(["restore", &id, "notes.txt"]).ends_with(2);
        assert_eq!(
            content(&ws),
            newer,
            "{}: a refusal changes nothing",
            how.name
        );
        ws.trash(["restore", &id, "notes.txt", "--swap"]).ok();
        assert_eq!(content(&ws), OLD, "{}", how.name);
        let id = ws.newest(&["--path", "notes.txt"]);
        let shown = ws.trash(["show", &id, "notes.txt"]).ok();
        assert_eq!(shown.out, newer, "{}", how.name);
    }
}

#[test]
fn undo_does_not_touch_what_was_written_later() {
    for how in &OVERWRITINGS {
        let station = Station::new();
        let ws = overwritten(&station, &station.dir("work"), how);
        // At once: what the operation left is noted before somebody else may write to it.
        ws.sh("echo later >> notes.txt").ok();
        let later = content(&ws);
        ws.trash(["undo", "--cause", "replace"]).ends_with(2);
        assert_eq!(content(&ws), later, "{}", how.name);
        entry_with_old(&ws, how);
    }
}
