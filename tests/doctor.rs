//! What `trash doctor` finds, and how it ends.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends"
)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{Answer, Station, run};
use serde_json::Value;

fn check(answer: &Answer, name: &str) -> Value {
    let examined = answer.json();
    let checks = examined["checks"].as_array().unwrap();
    let found = checks.iter().find(|c| c["name"] == name);
    found
        .unwrap_or_else(|| panic!("no check {name} in {examined}"))
        .clone()
}

/// Dead mounts of other tests, run by the same user meanwhile, are found as well: the exit code
/// is theirs, too.
fn doctor(station: &Station) -> Answer {
    let answer = station.trash(["doctor", "--json"]);
    let alone = check(&answer, "mounts")["outcome"] == "ok";
    assert_eq!(answer.code, i32::from(!alone), "{answer:?}");
    answer
}

fn doctor_with_path(station: &Station, path: &str) -> Answer {
    run(station
        .command()
        .env("PATH", path)
        .args(["doctor", "--json"]))
}

#[test]
fn another_trash_on_path_is_found() {
    let station = Station::new();
    let bin = station.dir("bin");
    let other = bin.join("trash");
    std::fs::write(&other, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o755)).unwrap();
    let own = Path::new(env!("CARGO_BIN_EXE_trash")).parent().unwrap();
    let order = |first: &Path, then: &Path| format!("{}:{}", first.display(), then.display());
    let shadowed = check(
        &doctor_with_path(&station, &order(&bin, own)),
        "pathShadowing",
    );
    assert_eq!(shadowed["outcome"], "warn");
    assert!(
        shadowed["found"]
            .as_str()
            .unwrap()
            .contains(other.to_str().unwrap())
    );
    assert!(!shadowed["next"].as_str().unwrap().is_empty());
    let first = check(
        &doctor_with_path(&station, &order(own, &bin)),
        "pathShadowing",
    );
    assert_eq!(first["outcome"], "ok", "{first}");
}

#[test]
fn a_station_in_order_is_found_in_order() {
    let station = Station::new();
    let fresh = doctor(&station);
    assert_eq!(check(&fresh, "setup")["outcome"], "warn");
    let workspace = station.workspace("w");
    workspace.sh("echo x > f; rm f").ok();
    let mounted = doctor(&station);
    for name in [
        "setup",
        "mounts",
        "workspace",
        "staging",
        "journal",
        "losses",
        "disk",
    ] {
        assert_eq!(check(&mounted, name)["outcome"], "ok", "{}", mounted.out);
    }
    let station = workspace.unmount();
    let unmounted = doctor(&station);
    let told = check(&unmounted, "workspace");
    assert_eq!(told["outcome"], "warn");
    assert!(told["next"].as_str().unwrap().starts_with("trash mount"));
}

#[test]
fn a_damaged_journal_and_missing_bytes_are_reported() {
    let station = Station::new();
    let workspace = station.workspace("w");
    workspace.sh("echo x > f; rm f; mkdir d").ok();
    workspace.sh("rmdir d").ok();
    let dir = workspace.path.clone();
    let entries = workspace.list(&[]);
    let station = workspace.unmount();
    let lost = dir
        .join(".trashfs/ops")
        .join(entries[0]["id"].as_str().unwrap());
    std::fs::remove_dir_all(lost).unwrap();
    let told = check(&doctor(&station), "staging");
    assert_eq!(told["outcome"], "warn", "{told}");
    assert!(
        told["found"].as_str().unwrap().contains("no bytes"),
        "{told}"
    );
    let state = station.state().join("workspaces");
    let id = std::fs::read_dir(&state).unwrap().next().unwrap().unwrap();
    std::fs::write(id.path().join("journal.db"), "garbage").unwrap();
    let told = check(&doctor(&station), "journal");
    assert_eq!(told["outcome"], "warn", "{told}");
    // What staging holds is known again.
    let list = run(station.command().args(["list", "--json"]).current_dir(&dir)).ok();
    assert_eq!(
        list.json()["entries"].as_array().unwrap().len(),
        entries.len() - 1
    );
}
