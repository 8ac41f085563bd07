//! Requests that can't be met: each with its message, its exit code, and nothing changed.
//! What stands in the way of mounting is in mounting.rs.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on ends; it clears its own scratch"
)]

mod common;

use common::image::{Format, Image};
use common::{Answer, Snapshot, Station, assert_same, is_root, sh, skip};
use serde_json::Value;

/// The failure that `--json` gives on standard error.
#[track_caller]
fn failure(answer: &Answer) -> Value {
    let json: Value =
        serde_json::from_str(&answer.err).unwrap_or_else(|e| panic!("{e}: {answer:?}"));
    let failure = json["error"].clone();
    assert!(!failure["what"].as_str().unwrap().is_empty(), "{failure}");
    failure
}

#[track_caller]
fn refused(answer: Answer, exit: i32, code: &str) -> Value {
    let answer = answer.ends_with(exit);
    let failure = failure(&answer);
    assert_eq!(failure["code"], code, "{failure:#}");
    failure
}

#[test]
fn an_unknown_id_is_named_and_the_list_suggested() {
    let station = Station::new();
    let ws = station.workspace("work");
    for verb in ["info", "show", "diff", "restore", "hold"] {
        let said = refused(
            ws.trash([verb, "aaaaaaaaaaaaaaaa", "--json"]),
            1,
            "unknown-id",
        );
        assert!(
            said["what"].as_str().unwrap().contains("aaaaaaaaaaaaaaaa"),
            "{said}"
        );
        assert!(
            said["next"].as_str().unwrap().contains("trash list"),
            "{said}"
        );
    }
    for wrong in ["../../etc", "ABC", "", "a b"] {
        let answer = ws.trash(["info", wrong, "--json"]);
        assert_ne!(answer.code, 0, "{wrong:?}");
        failure(&answer);
    }
}

#[test]
fn an_ambiguous_id_lists_the_candidates() {
    let station = Station::new();
    let ws = station.workspace("work");
    // More entries than there are first characters.
    for i in 0..33 {
        ws.sh(&format!("echo {i} > f{i}; rm f{i}")).ok();
    }
    let ids: Vec<String> = ws
        .list(&[])
        .iter()
        .map(|e| e["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 33);
    let twice = ids
        .iter()
        .find(|id| ids.iter().filter(|o| o[..1] == id[..1]).count() > 1)
        .unwrap();
    let said = refused(ws.trash(["info", &twice[..1], "--json"]), 1, "ambiguous-id");
    assert!(said.to_string().contains(twice.as_str()), "{said}");
    let unique = ws.trash(["info", &twice[..12], "--json"]).ok();
    assert!(unique.out.contains(twice.as_str()));
}

#[test]
fn a_retention_outside_a_year_is_refused() {
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("echo x > f; rm f").ok();
    let before = ws.list(&[]);
    let id = ws.newest(&[]);
    for days in ["0", "366", "-1", "many"] {
        let answer = ws
            .trash(["retention", &id, "--json", &format!("--days={days}")])
            .ends_with(1);
        assert!(answer.err.contains(days), "{answer:?}");
    }
    assert_eq!(before, ws.list(&[]));
    ws.trash(["retention", &id, "--days", "1"]).ok();
    assert_ne!(before[0]["retainUntil"], ws.list(&[])[0]["retainUntil"]);
}

#[test]
fn a_destination_that_is_missing_or_occupied_is_refused() {
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("mkdir d; echo x > d/f").ok();
    ws.sh("rm -r d").ok();
    let id = ws.newest(&[]);
    let missing = station.dir("out").join("no/such");
    let answer = ws.trash(["restore", &id, "--json", "--to", missing.to_str().unwrap()]);
    assert_ne!(answer.code, 0);
    assert!(
        failure(&answer)["what"]
            .as_str()
            .unwrap()
            .contains("no/such"),
        "{answer:?}"
    );
    let file = station.dir("out").join("file");
    std::fs::write(&file, "").unwrap();
    let answer = ws.trash(["restore", &id, "--json", "--to", file.to_str().unwrap()]);
    assert_ne!(answer.code, 0);
    failure(&answer);
    let occupied = station.dir("occupied");
    std::fs::write(occupied.join("d"), "mine\n").unwrap();
    let before = Snapshot::of(&occupied);
    refused(
        ws.trash(["restore", &id, "--json", "--to", occupied.to_str().unwrap()]),
        2,
        "occupied",
    );
    assert_same(&before, &Snapshot::of(&occupied), "occupied");
    ws.trash(["restore", &id]).ok();
}

#[test]
fn a_read_only_destination_is_refused() {
    if !is_root() {
        skip("a read-only destination", "loop devices need root");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let image = Image::new(scratch.path(), Format::Ext4, 16);
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("echo x > f; rm f").ok();
    let id = ws.newest(&[]);
    sh(scratch.path(), "mount -o remount,ro disk").ok();
    let answer = ws.trash([
        "restore",
        &id,
        "--json",
        "--to",
        image.path.to_str().unwrap(),
    ]);
    assert_ne!(answer.code, 0);
    let said = failure(&answer);
    assert!(
        said["what"]
            .as_str()
            .unwrap()
            .to_lowercase()
            .contains("read-only"),
        "{said:#}"
    );
    ws.trash(["restore", &id]).ok();
}

#[test]
fn a_full_destination_is_refused_and_left_clean() {
    if !is_root() {
        skip("a full destination", "loop devices need root");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let image = Image::new(scratch.path(), Format::Ext4, 16);
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("mkdir d; head -c 40M /dev/urandom > d/f; rm -r d")
        .ok();
    let id = ws.newest(&[]);
    let answer = ws.trash([
        "restore",
        &id,
        "--json",
        "--to",
        image.path.to_str().unwrap(),
    ]);
    assert_ne!(answer.code, 0);
    failure(&answer);
    assert!(!image.path.join("d").exists(), "something half is left");
    ws.trash(["recover", &id]);
    assert!(!image.path.join("d").exists(), "something half is left");
    ws.trash(["restore", &id]).ok();
    assert_eq!(
        std::fs::metadata(ws.path.join("d/f")).unwrap().len(),
        40 << 20
    );
}

#[test]
fn a_foreign_file_in_staging_is_left_alone_and_reported() {
    let station = Station::new();
    let dir = station.dir("work");
    let ws = station.mount(&dir);
    ws.sh("echo x > f; rm f").ok();
    ws.unmount();
    std::fs::write(dir.join(".trashfs/ops/not-an-entry"), "whose?").unwrap();
    std::fs::create_dir(dir.join(".trashfs/strange")).unwrap();
    let ws = station.mount(&dir);
    let doctor = ws.trash(["doctor", "--json"]);
    assert!(doctor.out.contains("foreign"), "{}", doctor.out);
    let status = ws.trash(["status", "--json"]).ok();
    assert!(status.out.contains("not-an-entry"), "{}", status.out);
    ws.trash(["undo"]).ok();
    ws.unmount();
    assert_eq!(
        std::fs::read_to_string(dir.join(".trashfs/ops/not-an-entry")).unwrap(),
        "whose?"
    );
    assert!(dir.join(".trashfs/strange").exists());
}

#[test]
fn a_policy_garbled_while_mounted_keeps_the_last_good_one() {
    let station = Station::new();
    let dir = station.dir("work");
    std::fs::write(
        dir.join(".trashfs.toml"),
        "[[rule]]\nname = \"mine\"\nmatch = \"*.o\"\nkeep = \"none\"\n",
    )
    .unwrap();
    let ws = station.mount(&dir);
    ws.sh("echo '[[rule]' > .trashfs.toml").ok();
    ws.sh("echo x > a.o; rm a.o; echo x > b; rm b").ok();
    let status = ws.trash(["status", "--json"]).ok();
    assert!(status.out.contains(".trashfs.toml"), "{}", status.out);
    let shown = format!("{:?}", ws.list(&[]));
    assert!(!shown.contains("a.o") && shown.contains("\"b\""), "{shown}");
    ws.sh("echo '' > .trashfs.toml").ok();
    ws.sh("echo x > c.o; rm c.o").ok();
    assert!(format!("{:?}", ws.list(&[])).contains("c.o"));
}

#[test]
fn wrong_usage_ends_with_one() {
    let station = Station::new();
    for args in [
        vec!["no-such-verb"],
        vec!["list", "--cause", "boredom"],
        vec!["restore"],
        vec![],
    ] {
        let answer = station.trash(&args).ends_with(1);
        assert!(!answer.err.is_empty() || !answer.out.is_empty(), "{args:?}");
    }
}

#[test]
fn a_command_outside_every_workspace_says_what_to_do() {
    let station = Station::new();
    let answer = station.trash(["list", "--json"]);
    assert_ne!(answer.code, 0);
    let said = failure(&answer);
    assert!(
        said["next"].as_str().unwrap().contains("trash mount"),
        "{said:#}"
    );
}

#[test]
fn a_current_directory_that_was_removed_does_not_matter() {
    let station = Station::new();
    let ws = station.workspace("work");
    let trash = env!("CARGO_BIN_EXE_trash");
    let answer = ws.sh(&format!(
        "mkdir d && cd d && echo x > f && rm -r ../d && {trash} undo && cat ../d/f"
    ));
    assert_eq!(answer.ok().out.lines().last(), Some("x"));
}

#[test]
fn what_put_must_not_take_is_refused() {
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("mkdir d; ln -s d l; echo x > d/f").ok();
    let before = Snapshot::of(&ws.path);
    for path in [
        "/",
        ".",
        "..",
        "l/",
        "no-such",
        ws.path.to_str().unwrap(),
        "/proc",
        "d/..",
    ] {
        let answer = ws.trash(["put", path, "--json"]);
        assert_ne!(answer.code, 0, "{path}");
        failure(&answer);
    }
    assert_same(&before, &Snapshot::of(&ws.path), "refused puts");
}

#[test]
fn put_takes_a_path_outside_every_mount_and_gives_it_back() {
    let station = Station::new();
    let ws = station.workspace("work");
    let outside = station.dir("outside");
    common::tree::awkward(&outside.join("tree"), false);
    let before = Snapshot::of_names(&outside, &["tree"]);
    let path = outside.join("tree");
    let put = ws.trash(["put", path.to_str().unwrap(), "--json"]).ok();
    assert!(!path.exists());
    let put: Value = put.json();
    let text = put.to_string();
    let id = text
        .split("\"id\":\"")
        .nth(1)
        .or(text.split("\"entry\":\"").nth(1))
        .unwrap_or_else(|| panic!("{put:#}"));
    let id = &id[..16];
    station.trash(["restore", id]).ok();
    assert_same(
        &before,
        &Snapshot::of_names(&outside, &["tree"]),
        "put and restore",
    );
}

#[test]
fn what_is_mounted_over_the_workspace_is_not_torn_off() {
    if !is_root() {
        return skip("a mount over the workspace", "only root may mount");
    }
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("mkdir n && echo old > n/f && rm -rf n && mkdir -p n/m && mount -t tmpfs none n/m && echo x > n/m/x")
        .ok();
    let removed = ws.newest(&[]);
    refused(ws.trash(["put", "n", "--json"]), 2, "mount-point");
    refused(
        ws.trash(["restore", removed.as_str(), "--swap", "--json"]),
        2,
        "mount-point",
    );
    assert_eq!(ws.sh("cat n/m/x; umount n/m").ok().out, "x\n");
    ws.trash(["restore", removed.as_str(), "--swap"]).ok();
    assert_eq!(ws.sh("cat n/f").ok().out, "old\n");
}
