//! The command line without any mount: usage, forms of output, exit codes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod common;

use std::os::unix::process::CommandExt;

use common::{Answer, Station, run};

const TRASH: &str = env!("CARGO_BIN_EXE_trash");

fn error(answer: &Answer) -> serde_json::Value {
    let error: serde_json::Value = serde_json::from_str(answer.err.trim()).unwrap();
    error["error"].clone()
}

#[test]
fn a_wrong_use_ends_with_1_and_says_what_is_right() {
    let station = Station::new();
    let none: [&str; 0] = [];
    station.trash(none).ends_with(1).says("Usage: trash");
    for (args, text) in [
        (vec!["lost"], "unrecognized subcommand 'lost'"),
        (vec!["list", "--since", "yesterday"], "as in 2h or 7d"),
        (
            vec!["list", "--cause", "rename"],
            "remove, replace, truncate",
        ),
        (vec!["list", "--limit", "0"], "1..=100"),
        (vec!["list", "--limit", "101"], "1..=100"),
        (vec!["restore"], "<ID>"),
        (
            vec!["restore", "a", "--merge", "--swap"],
            "cannot be used with",
        ),
        (vec!["put"], "<PATH>"),
        (
            vec!["retention", "a", "--days", "many"],
            "invalid value 'many'",
        ),
        (vec!["run"], "<COMMAND>"),
        (
            vec!["policy", "explain", "x", "--size", "big"],
            "as in \"10MiB\"",
        ),
    ] {
        station.trash(&args).ends_with(1).says(text);
    }
}

#[test]
fn with_json_a_wrong_use_is_json() {
    let station = Station::new();
    for args in [["--json", "lost"], ["lost", "--json"]] {
        let error = error(&station.trash(args).ends_with(1));
        assert_eq!(error["code"], "usage");
        assert_eq!(error["next"], "trash --help");
    }
}

#[test]
fn without_a_workspace_every_question_says_how_to_begin() {
    let station = Station::new();
    for args in [
        vec!["list"],
        vec!["undo"],
        vec!["restore", "abc"],
        vec!["policy", "explain", "x"],
    ] {
        station.trash(&args).ends_with(1).says("trash mount DIR");
        let json = [&["--json"][..], &args].concat();
        let error = error(&station.trash(&json).ends_with(1));
        assert_eq!(error["code"], "no-workspace", "{args:?}");
        for key in ["what", "state", "next"] {
            assert!(!error[key].as_str().unwrap().is_empty(), "{args:?} {key}");
        }
    }
    let nowhere = station.trash(["--workspace", "/nowhere", "list"]);
    nowhere
        .ends_with(1)
        .says("/nowhere lies in no workspace")
        .says("trash mount /nowhere");
}

#[test]
fn a_removed_current_directory_is_no_obstacle() {
    let station = Station::new();
    let dir = station.dir("gone");
    let script = ["-c", "rmdir ../gone && exec \"$0\" list", TRASH];
    let mut shell = std::process::Command::new("sh");
    run(station.surround(&mut shell).args(script).current_dir(&dir))
        .ends_with(1)
        .says("this station has no workspace yet");
}

#[test]
fn there_is_a_man_page_for_each_command_and_completions_for_each_shell() {
    let station = Station::new();
    let dir = station.dir("man");
    station.trash(["man".as_ref(), dir.as_os_str()]).ok();
    for page in [
        "trash.1",
        "trash-list.1",
        "trash-restore.1",
        "trash-policy-explain.1",
    ] {
        let text = std::fs::read_to_string(dir.join(page)).unwrap();
        assert!(text.contains(".SH NAME"), "{page}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = station.trash(["completions", shell]).ok().out;
        assert!(script.contains("recover"), "{shell}");
    }
    let nowhere = station.trash(["man", "/nowhere/at/all"]);
    nowhere.ends_with(1).says("no such file or directory");
}

#[test]
fn run_gives_the_command_a_session_and_ends_as_it_does() {
    let station = Station::new();
    let echo = ["run", "--", "sh", "-c", "echo $TRASH_SESSION; exit 7"];
    let first = station
        .trash(echo)
        .ends_with(7)
        .says("trash undo --session");
    let second = station.trash(echo).ends_with(7);
    assert_eq!(first.out.trim().len(), 16);
    assert_ne!(first.out, second.out);
    let inherited = run(station.command().args(echo).env("TRASH_SESSION", "mine"));
    assert_eq!(inherited.out, "mine\n");
    let mut named = vec!["run", "--session", "other"];
    named.extend(&echo[1..]);
    let named = run(station.command().args(named).env("TRASH_SESSION", "mine"));
    assert_eq!(named.out, "other\n");
    station
        .trash(["run", "--", "/no/such/command"])
        .ends_with(1)
        .says("/no/such/command can't be run: no such file or directory");
}

#[test]
fn run_passes_on_the_signal_that_would_leave_the_command_behind() {
    let station = Station::new();
    let ready = station.dir("signal").join("ready");
    let script = format!(
        "trap 'exit 42' TERM; : > {}; while :; do sleep 0.02; done",
        ready.display()
    );
    let mut child = station
        .command()
        .args(["run", "--", "sh", "-c", &script])
        .process_group(0)
        .spawn()
        .unwrap();
    while !ready.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(42));
}
