//! What each command answers on a mounted workspace: the JSON form, the text form, the exit
//! code.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use std::process::Command;

use common::{Answer, Station, Workspace, program, run};
use serde_json::Value;

fn error(answer: &Answer) -> Value {
    let error: Value =
        serde_json::from_str(answer.err.trim()).unwrap_or_else(|e| panic!("{e} in {answer:?}"));
    error["error"].clone()
}

/// Demands a failure with this code and exit code, and that it says all that errors must.
#[track_caller]
fn fails(ws: &Workspace, args: &[&str], exit: i32, code: &str) -> Value {
    let args = [&["--json"], args].concat();
    let error = error(&ws.trash(args).ends_with(exit));
    assert_eq!(error["code"], code, "{error}");
    for key in ["what", "state", "next"] {
        assert!(
            !error[key].as_str().unwrap().is_empty(),
            "no {key}: {error}"
        );
    }
    error
}

/// The text form, as on a terminal.
fn on_a_terminal(ws: &Workspace, args: &str) -> String {
    let line = format!("{} {args}", program().display());
    let mut script = Command::new("script");
    ws.station().surround(&mut script);
    script
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .current_dir(&ws.path);
    run(&mut script).out.replace('\r', "")
}

fn removed(ws: &Workspace, name: &str) -> String {
    ws.sh(&format!("mkdir {name}; echo {name} > {name}/f")).ok();
    ws.sh(&format!("rm -r {name}")).ok();
    ws.newest(&["--path", name])
}

#[test]
fn list_has_the_fields_that_scripts_rely_on() {
    let station = Station::new();
    let ws = station.workspace("work");
    removed(&ws, "src");
    let entry = &ws.list(&[])[0];
    for field in [
        "id",
        "state",
        "causes",
        "keep",
        "kind",
        "path",
        "roots",
        "members",
        "bytes",
        "station",
        "workspace",
        "agent",
        "session",
        "command",
        "pid",
        "removedAt",
        "resident",
        "retainUntil",
        "hold",
    ] {
        assert!(entry.get(field).is_some(), "no {field} in {entry}");
    }
    assert_eq!(entry["path"], "src");
    assert_eq!(entry["kind"], "directory");
    assert_eq!(entry["causes"], serde_json::json!(["remove"]));
    assert_eq!((&entry["members"], &entry["bytes"]), (&2.into(), &4.into()));
    assert_eq!(entry["workspace"], ws.path.to_str().unwrap());
}

#[test]
fn overwritten_versions_come_only_when_they_are_meant() {
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("echo 1 > doc").ok();
    ws.sh("echo 2 > doc").ok();
    removed(&ws, "src");
    assert_eq!(ws.list(&[]).len(), 1);
    assert_eq!(ws.list(&["--all"]).len(), 2);
    assert_eq!(ws.list(&["--cause", "truncate"]).len(), 1);
    assert_eq!(ws.list(&["--cause", "replace"]).len(), 0);
    assert_eq!(ws.list(&["--path", "doc"]).len(), 1);
    assert_eq!(ws.list(&["--path", "./doc"]).len(), 1);
    let absolute = ws.path.join("doc");
    assert_eq!(ws.list(&["--path", absolute.to_str().unwrap()]).len(), 1);
    assert_eq!(ws.list(&["--since", "1h"]).len(), 1);
    assert_eq!(ws.list(&["--since", "2199-01-01T00:00:00Z"]).len(), 0);
    assert_eq!(ws.list(&["--agent", "nobody"]).len(), 0);
    fails(&ws, &["list", "--path", "/etc"], 1, "outside-workspace");
}

#[test]
fn a_list_goes_on_where_the_last_page_ended() {
    let station = Station::new();
    let ws = station.workspace("work");
    for name in ["a", "b", "c"] {
        removed(&ws, name);
    }
    let page = ws.trash(["list", "--limit", "2"]).ok().json();
    let paths = |page: &Value| -> Vec<String> {
        let entries = page["entries"].as_array().unwrap();
        let path = |e: &Value| e["path"].as_str().unwrap().to_owned();
        entries.iter().map(path).collect()
    };
    assert_eq!(paths(&page), ["c", "b"]);
    let cursor = page["nextCursor"].as_str().unwrap();
    let rest = ws.trash(["list", "--cursor", cursor]).ok().json();
    assert_eq!(paths(&rest), ["a"]);
    assert_eq!(rest["nextCursor"], Value::Null);
}

#[test]
fn undo_of_an_overwriting_passes_over_what_git_keeps_of_its_own() {
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("git init -q . && git config user.name a && git config user.email a@b")
        .ok();
    ws.sh("echo good > notes; git add . && git commit -qm one")
        .ok();
    ws.sh("echo oops > notes").ok();
    ws.sh("git add . && git commit -qm two").ok();
    let two = ws.sh("git rev-parse HEAD").ok().out;
    ws.trash(["undo", "--cause", "replace"]).ok();
    assert_eq!(ws.sh("cat notes").ok().out, "good\n");
    assert_eq!(ws.sh("git rev-parse HEAD").ok().out, two);
}

#[test]
fn the_next_command_can_be_typed_as_it_stands() {
    let station = Station::new();
    let missing = station.dir("a b").join("no such");
    let answer = station.trash(["mount", missing.to_str().unwrap()]);
    let quoted = format!("mkdir -p '{}'", missing.display());
    assert!(answer.err.contains(&quoted), "{answer:?}");
}

#[test]
fn what_a_command_of_a_session_did_is_taken_back_together() {
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("mkdir a b; echo 1 > a/f; echo 2 > b/g; echo 3 > h")
        .ok();
    let script = "rm -r a; rm -r b; echo 4 > h";
    let ran = ws
        .trash(["run", "--session", "s1", "--", "bash", "-c", script])
        .ok()
        .says("trash undo --session s1");
    assert!(ran.err.contains("kept 5 things"), "{ran:?}");
    let quiet = ws.trash(["--quiet", "run", "--", "true"]).ok();
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
    assert!(!ws.list(&["--session", "s1"]).is_empty());
    let undone = ws.trash(["undo", "--session", "s1"]).ok().json();
    assert_eq!(undone["operations"].as_array().unwrap().len(), 1);
    let now = ws.sh("cat a/f b/g h").ok().out;
    assert_eq!(now, "1\n2\n3\n");
    fails(&ws, &["undo", "--session", "s1"], 2, "nothing-to-undo");
}

#[test]
fn a_restore_says_what_is_in_the_way_and_how_to_go_on() {
    let station = Station::new();
    let ws = station.workspace("work");
    let id = removed(&ws, "src");
    ws.sh("echo other > src").ok();
    let error = fails(&ws, &["restore", &id], 2, "occupied");
    assert!(error["what"].as_str().unwrap().contains("src"), "{error}");
    assert!(
        error["next"].as_str().unwrap().contains("--swap"),
        "{error}"
    );
    let dry = ws
        .trash(["restore", &id, "--swap", "--dry-run"])
        .ok()
        .json();
    assert_eq!(dry["dryRun"], true);
    assert_eq!(ws.sh("cat src").ok().out, "other\n");
    fails(
        &ws,
        &["restore", &id, "--to", "nowhere"],
        2,
        "no-such-directory",
    );
    fails(
        &ws,
        &["restore", &id, "--to", "src"],
        2,
        "no-such-directory",
    );
    let outside = station.dir("outside");
    ws.trash(["restore", &id, "--to", outside.to_str().unwrap()])
        .ok();
    assert_eq!(
        std::fs::read_to_string(outside.join("src/f")).unwrap(),
        "src\n"
    );
    ws.sh("mkdir inside").ok();
    ws.trash(["restore", &id, "--to", "inside"]).ok();
    assert_eq!(ws.sh("cat inside/src/f").ok().out, "src\n");
    // From elsewhere, by a prefix of the id alone.
    let answer = station.trash(["restore", &id[..12], "--swap"]).ok().json();
    assert_eq!(answer["restored"][0]["path"], "src");
    assert_eq!(ws.sh("cat src/f").ok().out, "src\n");
    assert_eq!(ws.newest(&["--path", "src"]).len(), 16);
}

#[test]
fn ids_that_name_nothing_or_too_much_are_told_apart() {
    let station = Station::new();
    let ws = station.workspace("work");
    fails(&ws, &["info", "abcd"], 1, "unknown-id");
    let mut first = std::collections::BTreeSet::new();
    // Of 33 ids two begin alike, since there are 32 letters.
    let shared = (0..33)
        .map(|n| removed(&ws, &format!("d{n}"))[..1].to_owned())
        .find(|letter| !first.insert(letter.clone()))
        .unwrap();
    for verb in ["info", "hold", "restore", "recover"] {
        fails(&ws, &[verb, &shared], 1, "ambiguous-id");
    }
}

#[test]
fn a_hold_and_a_retention_are_shown_and_bounded() {
    let station = Station::new();
    let ws = station.workspace("work");
    let id = removed(&ws, "src");
    assert_eq!(ws.trash(["hold", &id]).ok().json()["hold"], true);
    for days in ["0", "366", "-1"] {
        fails(&ws, &["retention", &id, "--days", days], 1, "usage");
    }
    let before = ws.trash(["info", &id]).ok().json();
    ws.trash(["retention", &id, "--days", "2"]).ok();
    let after = ws.trash(["info", &id]).ok().json();
    assert_ne!(
        before["entry"]["retainUntil"],
        after["entry"]["retainUntil"]
    );
    assert_eq!(after["members"].as_array().unwrap().len(), 2);
    let emptied = ws.trash(["empty", "--yes"]).ok().json();
    assert_eq!(emptied["held"], 1);
    assert_eq!(ws.trash(["hold", &id, "--off"]).ok().json()["hold"], false);
}

#[test]
fn nothing_is_emptied_unasked() {
    let station = Station::new();
    let ws = station.workspace("work");
    removed(&ws, "src");
    let error = fails(&ws, &["empty"], 2, "not-confirmed");
    assert_eq!(error["next"], "trash empty --yes");
    let would = ws.trash(["empty", "--dry-run"]).ok().json();
    assert_eq!(would["entries"].as_array().unwrap().len(), 1);
    ws.trash(["empty", "--older-than", "1", "--yes"]).ok();
    assert_eq!(ws.list(&[]).len(), 1);
    ws.trash(["empty", "--yes"]).ok();
    assert_eq!(ws.list(&[]).len(), 0);
    assert_eq!(ws.list(&["--ended"])[0]["state"], "discarded");
}

#[test]
fn what_is_unfinished_has_its_list() {
    let station = Station::new();
    let ws = station.workspace("work");
    let pending = ws.trash(["pending", "--json"]).ok().json();
    assert_eq!(pending, serde_json::json!({ "operations": [] }));
    let released = ws.trash(["release", "--dry-run"]).ok().json();
    assert_eq!(released["released"], serde_json::json!([]));
    fails(&ws, &["release", "abcd"], 1, "unknown-id");
}

#[test]
fn the_policy_explains_itself() {
    let station = Station::new();
    let ws = station.workspace("work");
    let rule = "[[rule]]\nname = \"objects\"\nmatch = \"*.o\"\nkeep = \"none\"\n";
    std::fs::write(ws.path.join(".trashfs.toml"), rule).unwrap();
    let explained = ws.trash(["policy", "explain", "x/a.o"]).ok().json();
    assert_eq!(explained["keep"], "none");
    assert_eq!(explained["considered"][0]["rule"], "objects");
    assert_eq!(explained["considered"][0]["decides"], true);
    let other = ws
        .trash(["policy", "explain", "a.c", "--cause", "replace"])
        .ok()
        .json();
    assert_eq!(
        (&other["keep"], &other["retain"]),
        (&"local".into(), &"7d".into())
    );
    fails(
        &ws,
        &["policy", "explain", "/etc/passwd"],
        1,
        "outside-workspace",
    );
    let text = on_a_terminal(&ws, "policy explain x/a.o");
    assert!(text.contains("is deleted outright"), "{text}");
    assert!(text.contains("* workspace objects: it matches"), "{text}");
}

#[test]
fn a_terminal_gets_words_and_everything_else_json() {
    let station = Station::new();
    let ws = station.workspace("work");
    let id = removed(&ws, "src");
    let list = on_a_terminal(&ws, "list");
    assert!(list.contains("PATH") && list.contains("src/"), "{list}");
    let info = on_a_terminal(&ws, &format!("info {id}"));
    assert!(
        info.contains("src/f") && info.contains("hosted, until"),
        "{info}"
    );
    let json = on_a_terminal(&ws, "list --json");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["entries"][0]["id"], id);
    let undo = on_a_terminal(&ws, "undo");
    assert!(undo.contains("restored src/"), "{undo}");
    assert_eq!(on_a_terminal(&ws, "--quiet list"), "");
    assert_eq!(ws.trash(["--quiet", "list"]).ok().out, "");
    assert_ne!(ws.trash(["--quiet", "--json", "list"]).ok().out, "");
    ws.sh("printf x > \"$(printf 'a\\033[31mb\\nc')\"").ok();
    ws.sh("rm a*").ok();
    let list = on_a_terminal(&ws, "list");
    assert!(list.contains(r"a\u{1b}[31mb\nc"), "{list:?}");
}

#[test]
fn a_current_directory_that_was_removed_still_has_its_workspace() {
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("mkdir -p a/b; echo x > a/b/f").ok();
    let trash = program();
    let trash = trash.display();
    ws.sh(&format!("cd a/b; rm -r ../../a; {trash} undo")).ok();
    assert_eq!(ws.sh("cat a/b/f").ok().out, "x\n");
}

#[test]
fn what_is_kept_can_be_looked_at_and_compared() {
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("printf 'a\\nb\\n' > doc; ln -s doc link; mkdir d; echo 1 > d/x; echo 2 > d/y")
        .ok();
    ws.sh("printf 'a\\nc\\n' > doc").ok();
    let id = ws.newest(&["--path", "doc"]);
    assert_eq!(ws.trash(["show", &id]).ok().out, "a\nb\n");
    assert_eq!(ws.trash(["show", &id, "doc"]).ok().out, "a\nb\n");
    assert_eq!(ws.trash(["show", &id, "./doc@1"]).ok().out, "a\nb\n");
    let told = ws.trash(["show", &id, "--json"]).ok().json();
    assert_eq!(
        (&told["path"], &told["sizeBytes"]),
        (&"doc".into(), &4.into())
    );
    let diff = ws.trash(["diff", &id]).ok().out;
    assert!(diff.contains("\n-b\n+c\n"), "{diff}");
    assert!(on_a_terminal(&ws, &format!("diff {id}")).contains("-b\n+c\n"));
    assert_eq!(ws.trash(["diff", &id, "--json"]).ok().json()["same"], false);
    fails(&ws, &["show", &id, "other"], 1, "no-such-member");
    ws.sh("rm -r d link").ok();
    let id = ws.newest(&["--path", "link"]);
    assert_eq!(ws.trash(["show", &id, "link"]).ok().json()["target"], "doc");
    let names = ws.trash(["show", &id, "d"]).ok().json();
    assert_eq!(names["names"], serde_json::json!(["x", "y"]));
    assert_eq!(on_a_terminal(&ws, &format!("show {id} d")), "x\ny\n");
    fails(&ws, &["show", &id], 1, "which-member");
    let piped = format!("{} show {id} d/x | head -c 0", program().display());
    assert_eq!(ws.sh(&piped).ok().err, "");
}

#[test]
fn what_is_put_away_comes_back_wherever_it_was() {
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("mkdir src; echo x > src/f; echo y > g").ok();
    let put = ws
        .trash(["put", "src", "./g", "--retention", "3"])
        .ok()
        .json();
    assert_eq!(put["put"].as_array().unwrap().len(), 2);
    assert!(!ws.path.join("src").exists() && !ws.path.join("g").exists());
    ws.trash(["undo"]).ok();
    assert_eq!(ws.sh("cat src/f g").ok().out, "x\ny\n");
    fails(&ws, &["put", "src", "--retention", "366"], 1, "retention");
    for (path, code) in [("missing", 1), (".", 2), ("/", 2)] {
        let answer = ws.trash(["put", path]);
        assert_eq!(answer.code, code, "{path}: {answer:?}");
    }
    ws.trash(["put", "--permanent", "g"]).ok();
    assert!(!ws.list(&[]).iter().any(|entry| entry["path"] == "g"));

    let outside = station.dir("outside").join("file");
    std::fs::write(&outside, "z").unwrap();
    let put = station
        .trash(["put".as_ref(), outside.as_os_str()])
        .ok()
        .json();
    let id = put["put"][0]["entry"].as_str().unwrap();
    assert!(!outside.exists());
    let everywhere = ws.list(&["--everywhere"]);
    assert!(everywhere.iter().any(|entry| entry["id"] == id));
    // In a workspace that does not have it, and in none.
    assert_eq!(ws.trash(["show", id]).ok().out, "z");
    station.trash(["undo", "--entry", id]).ok();
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "z");
}
