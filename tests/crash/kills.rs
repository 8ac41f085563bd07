//! kill -9 of the daemon: at each mutating system call, and at random under load.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::{Snapshot, Station, Workspace, count};
use crate::load::Load;
use crate::scene::{Scene, victims};

/// System calls that change something, in groups: the Nth of a group is counted by thread, so that a
/// busy thread of one kind would hide another's.
const MUTATING: [&str; 3] = [
    "renameat2,renameat,linkat,unlinkat,symlinkat,mknodat",
    "mkdirat,fallocate,copy_file_range,fchmod,fchmodat,fchown,fchownat,utimensat,\
     lsetxattr,fsetxattr,setxattr",
    "write,pwrite64,ftruncate,fsync,fdatasync,syncfs",
];

/// Destroys all victims, one system call after the other, as far as the daemon lives. Says
/// which paths were taken away with success.
fn destroy(dir: &Path) -> Vec<&'static str> {
    let mut done = Vec::new();
    let mut step = |name: &'static str, outcome: std::io::Result<()>| {
        if outcome.is_ok() {
            done.push(name);
        }
    };
    step("gone/a", std::fs::remove_file(dir.join("gone/a")));
    step("over", std::fs::rename(dir.join("next"), dir.join("over")));
    step(
        "gone/below/c",
        std::fs::remove_file(dir.join("gone/below/c")),
    );
    step("gone/below", std::fs::remove_dir(dir.join("gone/below")));
    step("cut", std::fs::write(dir.join("cut"), "short\n"));
    step("gone/b", std::fs::remove_file(dir.join("gone/b")));
    step("gone", std::fs::remove_dir(dir.join("gone")));
    step("link1", std::fs::remove_file(dir.join("link1")));
    step("symlink", std::fs::remove_file(dir.join("symlink")));
    step("single", std::fs::remove_file(dir.join("single")));
    done
}

/// The daemon under strace with this injection; `Err` when it did not live to be mounted.
fn traced(scene: &Scene, calls: &str, how: &str, log: &str) -> Option<Workspace> {
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-o", log])
        .args(["-e", &format!("trace={calls}")])
        .args(["-e", &format!("inject={calls}:{how}")])
        .arg(env!("CARGO_BIN_EXE_trash"))
        .args(["mount", "-f"])
        .arg(&scene.mounted)
        .arg("--source")
        .arg(&scene.source);
    scene.station.surround(&mut command);
    scene.station.start(&scene.mounted, command).ok()
}

/// One workload under the injection: removal by system calls, then by the product's own verbs.
fn work(scene: &Scene, calls: &str, how: &str, log: &str) -> Vec<&'static str> {
    let Some(ws) = traced(scene, calls, how, log) else {
        crate::common::detach(&scene.mounted);
        return Vec::new();
    };
    let done = destroy(&ws.path);
    // From outside, since a dead mount is nobody's working directory.
    let workspace = scene.mounted.to_str().unwrap();
    let verb = |args: &[&str]| {
        scene
            .station
            .trash([&["--workspace", workspace], args].concat())
    };
    verb(&["put", &format!("{workspace}/put")]);
    verb(&["undo"]);
    verb(&["undo", "--cause", "replace"]);
    let script = format!("rm -rf {workspace}/link2 {workspace}/symlink");
    crate::common::sh(scene.station.home(), &script);
    ws.kill();
    done
}

/// How many of these calls the busiest thread makes in one workload.
fn points(calls: &str) -> usize {
    let scene = Scene::new(Station::new());
    victims(&scene.source);
    let log = scene.station.dir("trace").join("log");
    work(
        &scene,
        calls,
        "delay_enter=1:when=65535",
        log.to_str().unwrap(),
    );
    let text = std::fs::read_to_string(log).unwrap();
    let mut made = std::collections::BTreeMap::new();
    for line in text
        .lines()
        .filter(|l| !l.contains("+++") && !l.contains("resumed>"))
    {
        let thread = line.split_whitespace().next().unwrap();
        *made.entry(thread.to_owned()).or_insert(0) += 1;
    }
    made.into_values().max().unwrap_or(0)
}

/// Kills the daemon before the call, kills the recovery once as well, and looks.
fn killed_at(calls: &str, point: usize) {
    let scene = Scene::new(Station::new());
    let before = victims(&scene.source);
    let done = work(
        &scene,
        calls,
        &format!("signal=KILL:when={point}"),
        "/dev/null",
    );
    let again = format!("signal=KILL:when={}", 1 + point % 9);
    if let Some(ws) = traced(&scene, calls, &again, "/dev/null") {
        ws.kill();
    }
    crate::common::detach(&scene.mounted);
    let what = format!("killed at call {point} of {calls} after {done:?}");
    scene.assert_whole(&before, &what);
    let anonymous = scene.anonymous();
    assert!(
        anonymous.is_empty(),
        "{what}: staged before op.json was written: {anonymous:?}"
    );
}

#[test]
fn kills_at_every_mutating_system_call_lose_nothing() {
    for calls in MUTATING {
        let points = points(calls);
        assert!(points > 5, "{points} of {calls} are too few");
        let step = points.div_ceil(count("TRASHFS_KILL_POINTS", 100));
        for point in (1..=points).step_by(step) {
            killed_at(calls, point);
        }
        eprintln!(
            "{} kill points of {points} of {calls}",
            points.div_ceil(step)
        );
    }
}

#[test]
fn random_kills_under_load_lose_nothing() {
    for round in 0..count("TRASHFS_RANDOM_KILLS", 20) {
        let scene = Scene::new(Station::new());
        let ws = scene.mount();
        let load = Load::start(&ws.path, 4, false);
        std::thread::sleep(Duration::from_millis(30 + (round as u64 * 37) % 300));
        load.under_way();
        ws.kill();
        let acknowledged = load.stop();
        let ws = scene.mount();
        let entries = Scene::entries(&ws);
        acknowledged.assert_kept(&scene, &format!("round {round}"));
        let ws = ws.remount();
        assert_eq!(
            entries,
            Scene::entries(&ws),
            "round {round}: recovery twice"
        );
    }
}

#[test]
fn a_lost_file_is_noticed() {
    let scene = Scene::new(Station::new());
    let before = victims(&scene.source);
    let ws = scene.mount();
    destroy(&ws.path);
    ws.kill();
    assert!(scene.lost_after_mount(&before).is_empty());
    let staged = crate::common::sh(
        &scene.source,
        "find .trashfs/ops -path '*/gone/b' -exec rm {} +",
    );
    staged.ok();
    assert_eq!(scene.lost_after_mount(&before), [Path::new("gone/b")]);
}

#[test]
fn a_damaged_op_record_costs_only_the_attribution() {
    for content in ["", "{\"format\":1,", "\0\0\0\0"] {
        let scene = Scene::new(Station::new());
        let before = victims(&scene.source);
        let ws = scene.mount();
        destroy(&ws.path);
        ws.kill();
        for record in find(&scene.source, "op.json") {
            std::fs::File::create(record)
                .unwrap()
                .write_all(content.as_bytes())
                .unwrap();
        }
        std::fs::remove_dir_all(scene.station.state()).unwrap();
        scene.assert_whole(
            &before,
            &format!("op.json is {content:?} and the journal gone"),
        );
    }
}

fn find(dir: &Path, name: &str) -> Vec<std::path::PathBuf> {
    let files = Snapshot::of(&dir.join(".trashfs/ops")).into_files();
    let wanted = files.into_iter().filter(|(path, _)| path.ends_with(name));
    wanted
        .map(|(path, _)| dir.join(".trashfs/ops").join(path))
        .collect()
}
