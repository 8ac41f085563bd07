//! Mounting and unmounting, above all where something stands in the way: each bad input with its
//! message, its exit code and what is left behind.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends; it clears its own scratch"
)]

mod common;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::{Answer, Station, detach, is_root, run, sh};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Mounts in the background, as users do.
fn mount(station: &Station, dir: &Path, more: &[&str]) -> Answer {
    let mut args: Vec<OsString> = vec!["mount".into(), dir.into()];
    args.extend(more.iter().map(OsString::from));
    station.trash(args)
}

fn unmount(station: &Station, dir: &Path, more: &[&str]) -> Answer {
    let mut args: Vec<OsString> = vec!["unmount".into(), dir.into()];
    args.extend(more.iter().map(OsString::from));
    station.trash(args)
}

fn failure(answer: &Answer) -> Value {
    let json: Value = serde_json::from_str(&answer.err)
        .unwrap_or_else(|e| panic!("{e} in\nout: {}\nerr: {}", answer.out, answer.err));
    json["error"].clone()
}

/// Demands a refusal with this code that names a next step or a state.
#[track_caller]
fn refused(answer: Answer, exit: i32, code: &str) -> Value {
    let answer = answer.ends_with(exit);
    let failure = failure(&answer);
    assert_eq!(failure["code"], code, "{failure}");
    assert!(
        !failure["state"].as_str().unwrap_or_default().is_empty(),
        "no state in {failure}"
    );
    failure
}

fn kill(pid: &Value, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid.as_i64().unwrap()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
    let gone = (0..2_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        !is_alive(pid)
    });
    assert!(gone, "process {pid:?} goes on");
}

fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|text| !text.contains(") Z "))
}

/// Takes the mount away however the test ends.
struct Gone<'a>(&'a Path);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        detach(self.0);
    }
}

fn small_filesystem(dir: &Path, options: &str) {
    let mut command = Command::new("mount");
    let source = ["-t", "tmpfs", "-o", options, "tmpfs"];
    run(command.args(source).arg(dir)).ok();
}

#[test]
fn a_directory_is_mounted_over_itself_and_unmounted() {
    let station = Station::new();
    let dir = station.dir("w");
    let _gone = Gone(&dir);
    std::fs::write(dir.join("file"), "content").unwrap();
    let report = mount(&station, &dir, &["--json"]).ok().json();
    assert_eq!(report["alreadyMounted"], false);
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"content");
    assert!(!dir.join(".trashfs").exists());
    let again = mount(&station, &dir, &["--json"]).ok().json();
    assert_eq!(again["alreadyMounted"], true);
    assert_eq!(again["pid"], report["pid"]);
    let done = unmount(&station, &dir, &["--json"]).ok().json();
    assert_eq!(done["wasStale"], false);
    assert!(dir.join(".trashfs").exists());
    refused(unmount(&station, &dir, &["--json"]), 1, "not-mounted");
}

#[test]
fn another_directory_can_be_shown_elsewhere() {
    let station = Station::new();
    let (source, dir) = (station.dir("source"), station.dir("w"));
    let _gone = Gone(&dir);
    std::fs::write(source.join("file"), "content").unwrap();
    let source_option = ["--json", "--source", source.to_str().unwrap()];
    mount(&station, &dir, &source_option).ok();
    assert!(dir.join("file").exists());
    mount(&station, &dir, &source_option).ok();
    refused(mount(&station, &dir, &["--json"]), 2, "mounted");
    // The same backing can't be served twice: whoever has it is named.
    let third = station.dir("third");
    let failure = refused(mount(&station, &third, &source_option), 2, "locked");
    assert!(failure["what"].as_str().unwrap().contains("process "));
    unmount(&station, &dir, &[]).ok();
}

#[test]
fn what_is_no_directory_is_named() {
    let station = Station::new();
    let dir = station.dir("d");
    let missing = dir.join("missing");
    let told = refused(
        mount(&station, &missing, &["--json"]),
        1,
        "no-such-directory",
    );
    assert!(told["what"].as_str().unwrap().contains("missing"));
    std::fs::write(dir.join("file"), "").unwrap();
    let file = dir.join("file");
    refused(mount(&station, &file, &["--json"]), 1, "not-a-directory");
    let below = file.join("x");
    refused(mount(&station, &below, &["--json"]), 1, "not-a-directory");
    let source = ["--json", "--source", missing.to_str().unwrap()];
    refused(mount(&station, &dir, &source), 1, "no-such-directory");
}

#[test]
fn the_root_directory_is_refused() {
    let station = Station::new();
    refused(
        mount(&station, Path::new("/"), &["--json"]),
        2,
        "unsuitable",
    );
}

#[test]
fn a_directory_that_lost_its_staging_area_is_found_by_its_new_one() {
    let station = Station::new();
    let dir = station.dir("w");
    let _gone = Gone(&dir);
    let first = mount(&station, &dir, &["--json"]).ok().json();
    unmount(&station, &dir, &[]).ok();
    // Another workspace's area, moved here.
    let other = station.dir("other");
    let second = mount(&station, &other, &["--json"]).ok().json();
    unmount(&station, &other, &[]).ok();
    std::fs::remove_dir_all(dir.join(".trashfs")).unwrap();
    std::fs::rename(other.join(".trashfs"), dir.join(".trashfs")).unwrap();
    let third = mount(&station, &dir, &["--json"]).ok().json();
    assert_eq!(third["workspace"], second["workspace"]);
    assert_ne!(third["workspace"], first["workspace"]);
    unmount(&station, &dir, &[]).ok();
    let status = station.trash(["status", "--json"]).ok().json();
    assert_eq!(
        status["workspaces"].as_array().unwrap().len(),
        1,
        "{status}"
    );
    assert_eq!(status["workspaces"][0]["status"]["id"], second["workspace"]);
}

#[test]
fn names_of_any_bytes_are_mounted() {
    let station = Station::new();
    let parent = station.dir("names");
    for name in [
        b"a,allow_other b\\040c".to_vec(),
        b"not utf-8 \xff\xfe".to_vec(),
        b"new\nline\tand\x01control".to_vec(),
        b"-f".to_vec(),
    ] {
        let dir = parent.join(OsString::from_vec(name));
        std::fs::create_dir(&dir).unwrap();
        let _gone = Gone(&dir);
        std::fs::write(dir.join("file"), "content").unwrap();
        mount(&station, &dir, &[]).ok();
        assert!(!dir.join(".trashfs").exists(), "{}", dir.display());
        let list = run(station.command().args(["list", "--json"]).current_dir(&dir));
        list.ok();
        station.trash(["status", "--json"]).ok();
        station.trash(["doctor", "--json"]).ok();
        unmount(&station, &dir, &[]).ok();
        assert!(dir.join(".trashfs").exists());
    }
}

#[test]
fn a_dead_mount_is_taken_away_and_made_anew() {
    let station = Station::new();
    let dir = station.dir("w");
    let _gone = Gone(&dir);
    let report = mount(&station, &dir, &["--json"]).ok().json();
    kill(&report["pid"], Signal::KILL);
    // What is asked while the daemon's last thread ends is aborted.
    let errors = std::iter::repeat_with(|| std::fs::read_dir(&dir).unwrap_err().raw_os_error());
    let lasting = errors.take(100).find(|e| *e != Some(libc::ECONNABORTED));
    assert_eq!(lasting, Some(Some(libc::ENOTCONN)));
    let list = run(station
        .command()
        .args(["list", "--json", "--workspace"])
        .arg(&dir));
    let told = refused(list, 2, "stale-mount");
    assert!(told["next"].as_str().unwrap().starts_with("trash mount"));
    let again = mount(&station, &dir, &["--json"]).ok().json();
    assert_eq!(again["alreadyMounted"], false);
    assert!(again["notices"][0].as_str().unwrap().contains("dead mount"));
    assert!(std::fs::read_dir(&dir).is_ok());
    kill(&again["pid"], Signal::KILL);
    let done = unmount(&station, &dir, &["--json"]).ok().json();
    assert_eq!(done["wasStale"], true);
    assert!(std::fs::read_dir(&dir).is_ok());
}

#[test]
fn a_dead_mount_over_the_stations_own_state_is_no_trap() {
    let station = Station::new();
    let home = station.home().to_owned();
    let _gone = Gone(&home);
    let report = mount(&station, &home, &["--json"]).ok().json();
    kill(&report["pid"], Signal::KILL);
    let told = refused(station.trash(["list", "--json"]), 2, "stale-mount");
    let next = told["next"].as_str().unwrap();
    assert_eq!(next, format!("trash mount {}", home.display()));
    let doctor = station.trash(["doctor", "--json"]).ends_with(1);
    assert!(doctor.out.contains("is dead"), "{}", doctor.out);
    let again = mount(&station, &home, &["--json"]).ok().json();
    assert_eq!(again["workspace"], report["workspace"]);
    kill(&again["pid"], Signal::KILL);
    let done = unmount(&station, &home, &["--json"]).ok().json();
    assert_eq!(done["wasStale"], true);
    station.trash(["list", "--json"]).ok();
}

#[test]
fn a_workspace_is_not_mounted_inside_another_or_around_one() {
    let station = Station::new();
    let outer = station.dir("outer");
    let inner = station.dir("outer/a/inner");
    let (_first, _second) = (Gone(&outer), Gone(&inner));
    mount(&station, &outer, &[]).ok();
    let told = refused(mount(&station, &inner, &["--json"]), 2, "inside-workspace");
    assert!(told["what"].as_str().unwrap().contains("outer"));
    unmount(&station, &outer, &[]).ok();
    mount(&station, &inner, &[]).ok();
    let told = refused(
        mount(&station, &outer, &["--json"]),
        2,
        "contains-workspace",
    );
    assert!(told["next"].as_str().unwrap().contains("inner"));
    unmount(&station, &inner, &[]).ok();
    let source = ["--json", "--source", outer.to_str().unwrap()];
    refused(mount(&station, &inner, &source), 2, "inside-backing");
}

#[test]
fn a_read_only_backing_is_refused() {
    let station = Station::new();
    let dir = station.dir("ro");
    let _gone = Gone(&dir);
    small_filesystem(&dir, "size=1m,ro");
    refused(mount(&station, &dir, &["--json"]), 2, "read-only");
}

#[test]
fn a_full_backing_is_mounted_and_things_can_be_removed() {
    let station = Station::new();
    let dir = station.dir("full");
    let _gone = Gone(&dir);
    small_filesystem(&dir, "size=4m");
    mount(&station, &dir, &[]).ok();
    unmount(&station, &dir, &[]).ok();
    std::fs::create_dir(dir.join("tree")).unwrap();
    sh(
        &dir,
        "cp /dev/zero tree/zeros 2>/dev/null; head -c 100 /dev/zero > tree/x; :",
    )
    .ok();
    let _mounted = Gone(&dir);
    mount(&station, &dir, &[]).ok();
    sh(&dir, "rm -rf tree").ok();
    assert!(!dir.join("tree").exists());
    unmount(&station, &dir, &[]).ok();
}

#[test]
fn a_full_home_with_the_stations_state_in_it_is_mounted_and_emptied() {
    let scratch = tempfile::tempdir().unwrap();
    let _filesystem = Gone(scratch.path());
    small_filesystem(scratch.path(), "size=64m");
    let station = Station::below(scratch.path());
    let home = station.home().to_owned();
    let _mounted = Gone(&home);
    mount(&station, &home, &[]).ok();
    unmount(&station, &home, &[]).ok();
    std::fs::create_dir(home.join("tree")).unwrap();
    sh(&home, "cp /dev/zero tree/zeros 2>/dev/null; :").ok();
    mount(&station, &home, &[]).ok();
    sh(&home, "rm -rf tree").ok();
    assert!(!home.join("tree").exists());
    run(station.command().arg("status").current_dir(&home)).ok();
    unmount(&station, &home, &[]).ok();
}

#[test]
fn a_foreign_staging_directory_is_left_alone() {
    let station = Station::new();
    let dir = station.dir("w");
    std::fs::create_dir(dir.join(".trashfs")).unwrap();
    std::fs::write(dir.join(".trashfs/mine"), "precious").unwrap();
    let told = refused(mount(&station, &dir, &["--json"]), 2, "foreign-staging");
    assert!(told["next"].as_str().unwrap().starts_with("mv "));
    assert_eq!(
        std::fs::read(dir.join(".trashfs/mine")).unwrap(),
        b"precious"
    );
    assert_eq!(std::fs::read_dir(dir.join(".trashfs")).unwrap().count(), 1);
}

#[test]
fn a_copy_of_a_workspace_is_told_from_the_workspace() {
    let station = Station::new();
    let (dir, copy) = (station.dir("w"), station.dir("copies").join("w"));
    mount(&station, &dir, &[]).ok();
    unmount(&station, &dir, &[]).ok();
    run(Command::new("cp").arg("-a").arg(&dir).arg(&copy)).ok();
    refused(mount(&station, &copy, &["--json"]), 2, "copied-staging");
    // A workspace that was moved is still the same one.
    std::fs::rename(copy.join(".trashfs"), copy.join("old")).unwrap();
    let moved = dir.with_file_name("moved");
    std::fs::rename(&dir, &moved).unwrap();
    let _gone = Gone(&moved);
    mount(&station, &moved, &[]).ok();
    unmount(&station, &moved, &[]).ok();
}

#[test]
fn a_garbled_policy_refuses_the_mount() {
    let station = Station::new();
    let dir = station.dir("w");
    std::fs::write(dir.join(".trashfs.toml"), "[[rule]]\nkeep = \"forever\"\n").unwrap();
    let told = refused(mount(&station, &dir, &["--json"]), 2, "garbled-policy");
    assert!(told["what"].as_str().unwrap().contains(".trashfs.toml:2:"));
    assert!(std::fs::read_dir(&dir).is_ok());
}

#[test]
fn a_garbled_configuration_is_named() {
    let station = Station::new();
    let dir = station.dir("w");
    let config = station.home().join(".config/trashfs");
    std::fs::create_dir_all(&config).unwrap();
    let file = config.join("config.toml");
    std::fs::write(&file, "profile = \"moon\"\nstation = \"a\"\n").unwrap();
    refused(mount(&station, &dir, &["--json"]), 1, "config");
    std::fs::write(&file, "profil = \"local\"\n").unwrap();
    let told = refused(mount(&station, &dir, &["--json"]), 1, "config");
    assert!(told["what"].as_str().unwrap().contains("profil"));
    sh(&config, "chmod 666 config.toml").ok();
    refused(mount(&station, &dir, &["--json"]), 2, "config-unsafe");
}

#[test]
fn a_corrupt_journal_is_set_aside_and_the_workspace_mounted() {
    let station = Station::new();
    let dir = station.dir("w");
    let _gone = Gone(&dir);
    let report = mount(&station, &dir, &["--json"]).ok().json();
    unmount(&station, &dir, &[]).ok();
    let id = report["workspace"].as_str().unwrap();
    let state = station.state().join("workspaces").join(id);
    std::fs::write(state.join("journal.db"), "this is no database").unwrap();
    mount(&station, &dir, &[]).ok();
    let names = std::fs::read_dir(&state).unwrap();
    let aside = names
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .find(|name| {
            let time = name.strip_prefix("journal.db.damaged-");
            time.is_some_and(|t| t.bytes().all(|b| b.is_ascii_digit()))
        });
    let aside = aside.expect("the damaged journal was set aside");
    assert_eq!(
        std::fs::read(state.join(aside)).unwrap(),
        b"this is no database"
    );
    unmount(&station, &dir, &[]).ok();
}

#[test]
fn a_mount_in_use_stays_unless_told_otherwise() {
    let station = Station::new();
    let dir = station.dir("w");
    let _gone = Gone(&dir);
    mount(&station, &dir, &[]).ok();
    let mut user = Command::new("sleep")
        .arg("60")
        .current_dir(&dir)
        .spawn()
        .unwrap();
    let told = refused(unmount(&station, &dir, &["--json"]), 2, "busy");
    let user_is_named = told["state"]
        .as_str()
        .unwrap()
        .contains(&format!("({})", user.id()));
    assert!(user_is_named, "{told}");
    assert!(!dir.join(".trashfs").exists());
    unmount(&station, &dir, &["--lazy"]).ok();
    assert!(dir.join(".trashfs").exists());
    user.kill().unwrap();
    user.wait().unwrap();
}

#[test]
fn a_mount_that_was_detached_by_hand_is_let_go() {
    let station = Station::new();
    let dir = station.dir("w");
    let _gone = Gone(&dir);
    mount(&station, &dir, &[]).ok();
    let user = std::fs::File::create(dir.join("open")).unwrap();
    detach(&dir);
    refused(mount(&station, &dir, &["--json"]), 2, "locked");
    unmount(&station, &dir, &[]).ok();
    drop(user);
    mount(&station, &dir, &[]).ok();
    unmount(&station, &dir, &[]).ok();
}

#[test]
fn a_signal_ends_the_daemon_and_takes_the_mount_away() {
    let station = Station::new();
    let dir = station.dir("w");
    let _gone = Gone(&dir);
    for (signal, in_use) in [(Signal::TERM, false), (Signal::INT, true)] {
        let report = mount(&station, &dir, &["--json"]).ok().json();
        let open = in_use.then(|| std::fs::File::create(dir.join("open")).unwrap());
        kill(&report["pid"], signal);
        assert!(dir.join(".trashfs").exists());
        drop(open);
    }
}

#[test]
fn an_unmount_by_hand_ends_the_daemon_and_another_mount_there_stays() {
    let station = Station::new();
    let dir = station.dir("w");
    let _gone = Gone(&dir);
    let mut foreground = station.command();
    foreground.args(["mount", "-f"]).arg(&dir);
    let daemon = station.start(&dir, foreground).unwrap();
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
    // Something else is mounted on top: the daemon's end must not take that away.
    small_filesystem(&dir, "size=1m");
    std::fs::write(dir.join("on-top"), "").unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(dir.join("on-top").exists());
    detach(&dir);
    drop(daemon);
}

#[test]
fn without_fuse_the_message_says_so() {
    if !is_root() {
        return common::skip("no /dev/fuse", "hiding it needs root");
    }
    let station = Station::new();
    let dir = station.dir("w");
    let script = format!(
        "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec {} mount --json {}",
        env!("CARGO_BIN_EXE_trash"),
        dir.display()
    );
    let mut command = Command::new("unshare");
    station.surround(&mut command);
    let answer = run(command.args(["-m", "bash", "-c", &script]));
    let told = refused(answer, 1, "no-fuse");
    assert!(told["what"].as_str().unwrap().contains("/dev/fuse"));
}

/// Runs a script as an ordinary user, in a mount namespace where that user may use FUSE.
fn as_user(station: &Station, fuse_mode: &str, script: &str) -> Answer {
    let node = station.dir("dev").join("fuse");
    let setup = format!(
        "rm -f {node}; mknod -m {fuse_mode} {node} c 10 229; mount --bind {node} /dev/fuse && \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups bash -c \"$0\"",
        node = node.display()
    );
    let mut command = Command::new("unshare");
    station.surround(&mut command);
    run(command.args(["-m", "bash", "-c", &setup, script]))
}

fn owned_by_user(station: &Arc<Station>) -> std::path::PathBuf {
    let dir = station.dir("w");
    let base = station.home().parent().unwrap();
    sh(
        base,
        "mkdir -p run; chmod 755 .; chown -R 65534:65534 home run w",
    )
    .ok();
    dir
}

#[test]
fn an_ordinary_user_mounts_through_fusermount() {
    if !is_root() {
        return common::skip("another user", "becoming it needs root");
    }
    let station = Station::new();
    let dir = owned_by_user(&station);
    let script = format!(
        "set -e; t='{}'; w='{}'; $t mount $w >&2; mkdir $w/d; echo x > $w/d/file; cd $w; rm -r d; $t undo >&2; cd /; \
         ls $w/d; $t list --json >&2; grep -c 'fuse.trashfs.*user_id=65534' /proc/self/mountinfo; $t unmount $w >&2; test -d $w/.trashfs",
        station.program_for_all().display(),
        dir.display()
    );
    let answer = as_user(&station, "666", &script).ok();
    assert_eq!(answer.out, "file\n1\n");
}

#[test]
fn an_ordinary_user_without_permission_is_told_what_is_missing() {
    if !is_root() {
        return common::skip("another user", "becoming it needs root");
    }
    let station = Station::new();
    let dir = owned_by_user(&station);
    let trash = station.program_for_all();
    let trash = trash.display();
    let script = format!("exec {trash} mount --json '{}'", dir.display());
    let told = refused(as_user(&station, "600", &script), 1, "no-permission");
    assert!(!told["next"].as_str().unwrap().is_empty());
    let script = format!(
        "exec {trash} mount --json --allow-other '{}'",
        dir.display()
    );
    let told = refused(as_user(&station, "666", &script), 1, "no-permission");
    assert!(
        told["next"].as_str().unwrap().contains("user_allow_other"),
        "{told}"
    );
    let closed = station.dir("closed");
    sh(&closed, "chmod 755 . && mkdir -m 700 inner").ok();
    let script = format!("exec {trash} mount --json '{}/inner'", closed.display());
    refused(as_user(&station, "666", &script), 1, "no-permission");
}

#[test]
fn setting_up_is_idempotent_and_owner_only() {
    let station = Station::new();
    let first = station
        .trash(["setup", "--local", "--station", "first", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&first["station"], &first["changed"]),
        (&"first".into(), &true.into())
    );
    let again = station.trash(["setup", "--json"]).ok().json();
    assert_eq!(
        (&again["station"], &again["changed"]),
        (&"first".into(), &false.into())
    );
    refused(
        station.trash(["setup", "--station", "a b", "--json"]),
        1,
        "station-name",
    );
    let config = station.home().join(".config/trashfs/config.toml");
    let mode = std::os::unix::fs::MetadataExt::mode(&config.metadata().unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let systemd = station.trash(["setup", "--systemd"]).ok();
    assert!(systemd.out.contains("first"));
    let unit = station.home().join(".config/systemd/user/trashfs@.service");
    let text = std::fs::read_to_string(unit).unwrap();
    assert!(text.contains("mount --foreground -- %f"), "{text}");
}
