//! Full disks, thousands of processes, few descriptors, and the home directory itself.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use crate::common::image::{Format, Image};
use crate::common::{Snapshot, Station, assert_same, run, skip, tree};
use crate::inputs;

#[test]
fn heavy_a_small_disk_filled_ten_times_never_wedges() {
    const MIB: usize = 1 << 20;
    let scratch = tempfile::tempdir().unwrap();
    let image = Image::new(scratch.path(), Format::Ext4, 200);
    let station = Station::new();
    let dir = image.path.join("work");
    std::fs::create_dir(&dir).unwrap();
    let ws = station.mount(&dir);
    for round in 0..10 {
        let mut written = 0;
        for i in 0..60 {
            let data = tree::pattern(4 * MIB, round * 100 + i);
            let mut outcome = std::fs::write(ws.path.join(format!("f{i}")), &data);
            // Room is made behind the first refusal; an agent would try again.
            for _ in 0..300 {
                if outcome.is_ok() || written >= 100 * MIB {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
                outcome = std::fs::write(ws.path.join(format!("f{i}")), &data);
            }
            match outcome {
                Ok(()) => written += data.len(),
                Err(e) => {
                    assert_eq!(e.raw_os_error(), Some(libc::ENOSPC), "round {round}: {e}");
                    break;
                }
            }
        }
        assert!(
            written >= 60 * MIB,
            "round {round}: only {} MiB went in",
            written / MIB
        );
        ws.sh("rm -f f*").ok();
        let left = std::fs::read_dir(&ws.path).unwrap().count();
        assert_eq!(left, 0, "round {round}");
    }
    let status = ws.trash(["status", "--json"]).ok();
    assert!(status.out.contains("losses"), "{}", status.out);
    let doctor = ws.trash(["doctor", "--json"]);
    assert!(doctor.out.contains("loss"), "{}", doctor.out);
    ws.sh("echo works > after && cat after").ok();
    ws.unmount();
}

#[test]
fn heavy_ten_thousand_rm_under_one_xargs_are_one_entry() {
    let station = Station::new();
    let dir = station.dir("work");
    let native = station.dir("native");
    tree::plain(&dir.join("tree"), 10_000);
    tree::plain(&native.join("tree"), 10_000);
    const SCRIPT: &str = "find tree -type f -print0 | xargs -0 -n 1 -P 4 rm";
    let since = Instant::now();
    run(Command::new("bash")
        .args(["-c", SCRIPT])
        .current_dir(&native))
    .ok();
    let natively = since.elapsed();
    let ws = station.mount(&dir);
    let before = Snapshot::of_names(&ws.path, &["tree"]);
    let since = Instant::now();
    ws.sh(SCRIPT).ok();
    let mounted = since.elapsed();
    eprintln!("10,000 rm: {natively:?} natively, {mounted:?} mounted");
    let entries = ws.list(&[]);
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0]["members"], 10_000);
    ws.trash(["undo"]).ok();
    let files_only = |s: Snapshot| s.files_only();
    let after = files_only(Snapshot::of_names(&ws.path, &["tree"]));
    assert_same(&files_only(before), &after, "undo");
    assert!(mounted < natively * 3, "{mounted:?} against {natively:?}");
}

#[test]
fn the_home_directory_that_holds_the_stations_state_is_a_workspace() {
    let station = Station::new();
    let home = station.home().to_owned();
    inputs::repository(&home.join("project"));
    tree::awkward(&home.join("documents"), true);
    std::fs::write(home.join(".profile"), "export A=1\n").unwrap();
    let ws = station.mount(&home);
    let names = ["project", "documents"];
    let before = Snapshot::of_names(&ws.path, &names);
    ws.sh("rm -rf \"$HOME\"/*").ok();
    assert!(!ws.path.join("project").exists() && !ws.path.join("documents").exists());
    assert!(ws.path.join(".local/state/trashfs").exists());
    ws.trash(["undo"]).ok();
    assert_same(
        &before,
        &Snapshot::of_names(&ws.path, &names),
        "undo of rm -rf $HOME/*",
    );

    ws.sh("echo old > note; echo new > note").ok();
    ws.sh("rm note").ok();
    let id = ws.newest(&[]);
    ws.trash(["restore", &id]).ok();
    ws.trash(["status"]).ok();
    ws.trash(["doctor"]);
    let ws = ws.remount();
    assert_same(
        &before,
        &Snapshot::of_names(&ws.path, &names),
        "after mounting again",
    );
    ws.sh("rm -rf \"$HOME\"/documents").ok();
    let (station, home) = ws.kill();
    let ws = station.mount(&home);
    ws.trash(["undo"]).ok();
    assert_same(
        &before,
        &Snapshot::of_names(&ws.path, &names),
        "after a crash",
    );
}

#[test]
fn heavy_a_large_tree_needs_few_descriptors() {
    let files = if std::env::var_os("TRASHFS_ALL").is_some() {
        200_000
    } else {
        skip(
            "180,000 of 200,000 files",
            "the usual gate; scripts/test --all has them",
        );
        20_000
    };
    let station = Station::new();
    let dir = station.dir("work");
    tree::plain(&dir.join("tree"), files);
    let ws = station.mount_with(&dir, |command| {
        let program = command.get_program().to_owned();
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let mut limited = Command::new("bash");
        limited
            .args(["-c", "ulimit -n 1024 && exec \"$0\" \"$@\""])
            .arg(program)
            .args(args);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        limited.process_group(0);
        *command = limited;
    });
    let count = ws.sh("find tree -type f | wc -l").ok();
    assert_eq!(count.out.trim(), files.to_string());
    ws.sh("tar -cf - tree | wc -c && mkdir built && find tree -name '*7' -exec cp {} built/ \\;")
        .ok();
    ws.sh("find tree -type f -exec cat {} + | sha256sum > sum && rm -rf tree")
        .ok();
    assert!(!ws.path.join("tree").exists());
    ws.trash(["undo"]).ok();
    ws.sh("find tree -type f -exec cat {} + | sha256sum | cmp - sum")
        .ok();
    let open = std::fs::read_dir(format!("/proc/{}/fd", ws.pid()))
        .unwrap()
        .count();
    assert!(open < 1024, "{open} descriptors");
}
