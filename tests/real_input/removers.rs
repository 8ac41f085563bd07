//! Each input removed in each way, and brought back in each way.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{Snapshot, Station, Workspace, assert_same, skip, tree};
use crate::inputs;

/// A way to remove the directory `tree`, as an agent would type it.
struct Remover {
    name: &'static str,
    /// Before the operation, in one of its own.
    prepare: &'static str,
    script: &'static str,
    /// Whether it leaves the top directory.
    leaves_top: bool,
    /// Whether it reaches what no joined path can name.
    beyond_path_max: bool,
}

const REMOVERS: [Remover; 6] = [
    Remover {
        name: "rm -rf",
        prepare: "",
        script: "rm -rf tree",
        leaves_top: false,
        beyond_path_max: true,
    },
    Remover {
        name: "git clean -fdx",
        prepare: "git init -q .",
        // The second -f lets it enter repositories inside.
        script: "git clean -qffdx",
        leaves_top: false,
        beyond_path_max: false,
    },
    Remover {
        name: "find -delete",
        prepare: "",
        script: "find tree -delete",
        leaves_top: false,
        beyond_path_max: true,
    },
    Remover {
        name: "shutil.rmtree",
        prepare: "",
        script: "python3 -c 'import shutil; shutil.rmtree(\"tree\")'",
        leaves_top: false,
        beyond_path_max: true,
    },
    Remover {
        name: "rsync --delete",
        prepare: "mkdir -p nothing",
        script: "rsync -a --delete nothing/ tree/",
        leaves_top: true,
        beyond_path_max: false,
    },
    Remover {
        name: "four rm at once",
        prepare: "",
        script: "find tree -mindepth 1 -maxdepth 1 -print0 | xargs -0 -r -n 3 -P 4 rm -rf --",
        leaves_top: true,
        beyond_path_max: true,
    },
];

fn remove_and_bring_back(removers: &[Remover], make: impl Fn(&Path, bool) -> Option<()>) {
    for remover in removers {
        let station = Station::new();
        let dir = station.dir("work");
        if make(&dir.join("tree"), remover.beyond_path_max).is_none() {
            return;
        }
        let ws = station.mount(&dir);
        ws.sh(remover.prepare).ok();
        let before = below(&ws, remover.leaves_top);
        ws.sh(remover.script).ok();
        assert_gone(&ws, remover);
        copies_are_the_same(&ws, &before, remover);
        let answer = ws.trash(["undo", "--json"]).ok();
        assert_same(
            &before,
            &below(&ws, remover.leaves_top),
            &format!("undo after {}: {}", remover.name, answer.out),
        );
        if remover.prepare.is_empty() {
            let again = ws.trash(["undo", "--json"]);
            assert_ne!(again.code, 0, "nothing is left to undo: {}", again.out);
        }
    }
}

/// The tree as it is compared: with its top, where that was removed as well.
fn below(ws: &Workspace, leaves_top: bool) -> Snapshot {
    let all = Snapshot::of_names(&ws.path, &["tree"]);
    if leaves_top {
        all.without_top("tree")
    } else {
        all
    }
}

fn assert_gone(ws: &Workspace, remover: &Remover) {
    let top = ws.path.join("tree");
    let gone = if remover.leaves_top {
        std::fs::read_dir(&top).unwrap().count() == 0
    } else {
        std::fs::symlink_metadata(&top).is_err()
    };
    assert!(gone, "{} left something", remover.name);
}

fn copies_are_the_same(ws: &Workspace, before: &Snapshot, remover: &Remover) {
    let entries = ws.list(&["--all"]);
    let newest = &entries[0]["operation"];
    let of_it: Vec<_> = entries
        .iter()
        .filter(|e| e["operation"] == *newest)
        .collect();
    let ways: BTreeSet<_> = of_it.iter().map(|e| e["keep"].as_str()).collect();
    assert_eq!(
        ways.len(),
        of_it.len(),
        "{}: one entry a way of keeping: {of_it:#?}",
        remover.name
    );
    if remover.prepare.is_empty() {
        assert_eq!(
            of_it.len(),
            entries.len(),
            "{}: one operation",
            remover.name
        );
    }
    let mut copies = Snapshot::default();
    for entry in of_it {
        copies = copies.with(copied_out(ws, entry["id"].as_str().unwrap()));
    }
    let what = format!("restore --to after {}", remover.name);
    assert_same(before, &copies, &what);
}

/// What `restore --to` gives of an entry, at the paths where it was removed.
fn copied_out(ws: &Workspace, id: &str) -> Snapshot {
    let to = ws.station().dir(&format!("copies/{id}"));
    let answer = ws.trash(["restore", id, "--json", "--to", to.to_str().unwrap()]);
    let answer = answer.ok().json();
    assert_eq!(answer["leftAlone"], Value::Array(vec![]));
    let all = Snapshot::of(&to);
    let path = |value: &Value| match value.as_str() {
        Some(text) => PathBuf::from(text),
        None => bytes(value["base64"].as_str().unwrap()),
    };
    let mut copies = Snapshot::default();
    for placed in answer["restored"].as_array().unwrap() {
        let (from, at) = (path(&placed["path"]), path(&placed["to"]));
        copies = copies.with(all.clone().moved(&at, &from));
    }
    copies
}

fn bytes(base64: &str) -> PathBuf {
    let raw = data_encoding::BASE64.decode(base64.as_bytes()).unwrap();
    OsString::from_vec(raw).into()
}

#[test]
fn sources_of_ten_crates() {
    remove_and_bring_back(&REMOVERS, |dir, _| {
        inputs::ten_crates(dir);
        Some(())
    });
}

#[test]
fn a_repository_with_history_and_untracked_files() {
    remove_and_bring_back(&REMOVERS, |dir, _| {
        inputs::repository(dir);
        Some(())
    });
}

#[test]
fn heavy_node_modules_with_hundreds_of_packages() {
    let removers = if std::env::var_os("TRASHFS_ALL").is_some() {
        &REMOVERS[..]
    } else {
        skip("five of six removers", "scripts/test --all has them");
        &REMOVERS[..1]
    };
    remove_and_bring_back(removers, |dir, _| inputs::node_modules(dir));
}

#[test]
fn everything_awkward() {
    remove_and_bring_back(&REMOVERS, |dir, beyond_path_max| {
        tree::awkward(dir, beyond_path_max);
        Some(())
    });
}

#[test]
fn git_clean_gives_back_ignored_and_untracked_files() {
    let station = Station::new();
    let dir = station.dir("work");
    inputs::repository(&dir.join("repo"));
    let ws = station.mount(&dir);
    let before = Snapshot::of_names(&ws.path, &["repo"]);
    let untracked = ["repo/ignored", "repo/untracked", "repo/x.log"];
    let kept = before.clone().only(&untracked);
    ws.sh("cd repo && git clean -qfdx").ok();
    assert!(untracked.iter().all(|name| !ws.path.join(name).exists()));
    ws.trash(["undo"]).ok();
    let after = Snapshot::of_names(&ws.path, &["repo"]);
    assert_same(&kept, &after.only(&untracked), "git clean -fdx");
    ws.sh("cd repo && git status --short && git fsck --strict")
        .ok();
}
