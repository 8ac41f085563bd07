//! One test for each promise of docs/semantics.md, and one that every promise has a test.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends; it clears its own scratch"
)]

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::image::{Format, Image};
use common::{Snapshot, Station, Workspace, assert_same, is_root, run, sh, skip, tree};

#[test]
fn every_promise_has_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("docs/semantics.md")).unwrap();
    let tests = all_tests(root);
    let mut sections = 0;
    for section in text.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap();
        let named = section
            .rsplit_once("\nTests: ")
            .unwrap_or_else(|| panic!("{title:?} names no tests"))
            .1;
        let names: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{title:?} names no tests");
        for name in &names {
            assert!(
                tests.contains(*name),
                "{title:?} names {name}, which is no test"
            );
        }
        let number = title.split('.').next().unwrap();
        let own = format!("promise_{number}_");
        assert!(
            names.iter().any(|n| n.starts_with(&own)),
            "{title:?} has no {own}* test"
        );
        sections += 1;
    }
    assert_eq!(sections, 8);
}

/// Names of all functions that follow a `#[test]` attribute.
fn all_tests(root: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut dirs: Vec<PathBuf> = ["tests", "src", "mount/src"]
        .iter()
        .map(|d| root.join(d))
        .collect();
    while let Some(dir) = dirs.pop() {
        for item in std::fs::read_dir(dir).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(path).unwrap();
                for part in text.split("#[test]").skip(1) {
                    let after = part.split_once("fn ").unwrap().1;
                    names.insert(after.split('(').next().unwrap().trim().to_owned());
                }
            }
        }
    }
    names
}

#[test]
fn promise_1_what_was_removed_comes_back_whole() {
    let station = Station::new();
    let dir = station.dir("work");
    tree::awkward(&dir.join("tree"), true);
    let ws = station.mount(&dir);
    let before = Snapshot::of_names(&ws.path, &["tree"]);
    ws.sh("rm -rf tree").ok();
    assert!(!ws.path.join("tree").exists());
    let id = ws.newest(&[]);
    let copies = station.dir("copies");
    ws.trash(["restore", &id, "--to", copies.to_str().unwrap()])
        .ok();
    assert_same(
        &before,
        &Snapshot::of_names(&copies, &["tree"]),
        "restore --to",
    );
    ws.trash(["undo"]).ok();
    assert_same(&before, &Snapshot::of_names(&ws.path, &["tree"]), "undo");
    let ws = ws.remount();
    assert_same(
        &before,
        &Snapshot::of_names(&ws.path, &["tree"]),
        "after mounting again",
    );
}

#[test]
fn promise_1_files_still_open_are_kept_as_they_were_left() {
    let station = Station::new();
    let ws = station.workspace("work");
    let path = ws.path.join("log");
    std::fs::write(&path, "before\n").unwrap();
    let mut open = std::fs::OpenOptions::new()
        .read(true)
        .append(true)
        .open(&path)
        .unwrap();
    ws.sh("rm log").ok();
    open.write_all(b"after\n").unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    open.rewind().unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before\nafter\n");
    drop(open);
    ws.trash(["undo"]).ok();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\nafter\n");
}

/// A workspace whose backing can be reached beside the mount.
fn with_backing(station: &std::sync::Arc<Station>) -> (Workspace, PathBuf) {
    let (source, dir) = (station.dir("source"), station.dir("mounted"));
    let ws = station.mount_with(&dir, |command| {
        command.arg("--source").arg(&source);
    });
    (ws, source)
}

#[test]
fn promise_2_what_cannot_be_kept_is_not_removed() {
    if !is_root() {
        return skip(
            "a refused capture",
            "making a directory immutable needs root",
        );
    }
    let station = Station::new();
    let (ws, source) = with_backing(&station);
    tree::plain(&ws.path.join("tree"), 3);
    std::fs::write(ws.path.join("over"), "new\n").unwrap();
    let before = Snapshot::of(&ws.path);
    let ops = source.join(".trashfs/ops");
    run(Command::new("chattr").arg("+i").arg(&ops)).ok();
    let answers = [
        ws.sh("rm -r tree"),
        ws.sh("rm tree/d0/f1"),
        ws.sh("mv over tree/d0/f1"),
        ws.sh(": > tree/d0/f2"),
    ];
    let after = Snapshot::of(&ws.path);
    run(Command::new("chattr").arg("-i").arg(&ops)).ok();
    for answer in answers {
        assert_ne!(answer.code, 0, "{answer:?}");
        answer.says("Operation not permitted");
    }
    assert_same(&before, &after, "refused removals");
    ws.sh("rm -r tree && rm over").ok();
    ws.trash(["undo"]).ok();
    assert_same(&before, &Snapshot::of(&ws.path), "undo");
}

#[test]
fn promise_2_a_truncation_without_room_is_refused() {
    if !is_root() {
        return skip("a refused capture", "a filesystem of its own needs root");
    }
    let scratch = tempfile::tempdir().unwrap();
    let image = Image::new(scratch.path(), Format::Ext4, 64);
    let station = Station::new();
    let dir = image.path.join("work");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("large"), tree::pattern(20 << 20, 5)).unwrap();
    std::fs::write(dir.join("filler"), tree::pattern(16 << 20, 6)).unwrap();
    let ws = station.mount(&dir);
    let before = Snapshot::of_names(&ws.path, &["large"]);
    let answer = ws.sh("head -c 16M /dev/urandom > filler2 2>/dev/null; : > large");
    assert_ne!(answer.code, 0, "{answer:?}");
    answer.says("No space left on device");
    assert_same(
        &before,
        &Snapshot::of_names(&ws.path, &["large"]),
        "refused truncation",
    );
    ws.sh("rm large").ok();
    ws.trash(["undo"]).ok();
    assert_same(&before, &Snapshot::of_names(&ws.path, &["large"]), "undo");
}

#[test]
fn promise_2_only_an_explicit_rule_deletes() {
    let station = Station::new();
    let dir = station.dir("work");
    let rules = "[[rule]]\nname = \"scratch\"\nmatch = \"/scratch\"\nkeep = \"none\"\n";
    std::fs::write(dir.join(".trashfs.toml"), rules).unwrap();
    std::fs::create_dir(dir.join("scratch")).unwrap();
    std::fs::write(dir.join(".gitignore"), "ignored\n").unwrap();
    for name in ["scratch/f", "ignored", "tmp"] {
        std::fs::write(dir.join(name), name).unwrap();
    }
    let ws = station.mount(&dir);
    ws.sh("rm scratch/f ignored tmp").ok();
    let shown = format!("{:?}", ws.list(&["--all"])[0]["roots"]);
    assert!(
        shown.contains("ignored") && shown.contains("tmp"),
        "{shown}"
    );
    assert!(!shown.contains("scratch/f"), "{shown}");
    let explained = ws.trash(["policy", "explain", "scratch/f"]).ok();
    assert!(explained.out.contains("scratch"), "{}", explained.out);
    assert!(
        logs(&station).contains("scratch/f"),
        "a deletion by rule is logged"
    );
}

/// All that the daemons of this station logged.
fn logs(station: &Station) -> String {
    let found = sh(
        station.home().parent().unwrap(),
        "find home/.local/state logs -type f \\( -name '*.log' -o -name '*.err' \\) -exec cat {} +",
    );
    found.out
}

#[test]
fn promise_3_an_occupied_path_is_refused() {
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("echo old > f; mkdir d; echo in > d/f; ln -s f l")
        .ok();
    ws.sh("rm -r f d l").ok();
    let id = ws.newest(&[]);
    for there in [
        "echo new > f",
        "mkdir d && echo new > d/f",
        "ln -s elsewhere l",
    ] {
        ws.sh(there).ok();
        let before = Snapshot::of(&ws.path);
        ws.trash(["restore", &id]).ends_with(2).says("--swap");
        ws.trash(["undo", "--dry-run"]);
        assert_same(&before, &Snapshot::of(&ws.path), there);
        ws.sh("rm -r f d l 2>/dev/null; true").ok();
    }
    ws.trash(["restore", &id]).ok();
    assert_eq!(
        std::fs::read_to_string(ws.path.join("d/f")).unwrap(),
        "in\n"
    );
}

#[test]
fn promise_3_a_swap_keeps_both() {
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("mkdir d; echo old > d/f").ok();
    let old = Snapshot::of_names(&ws.path, &["d"]);
    ws.sh("rm -r d").ok();
    let id = ws.newest(&[]);
    ws.sh("mkdir d; echo new > d/f; echo more > d/g").ok();
    let new = Snapshot::of_names(&ws.path, &["d"]);
    ws.trash(["restore", &id, "--swap"]).ok();
    assert_same(&old, &Snapshot::of_names(&ws.path, &["d"]), "swapped");
    let newer = ws.newest(&["--all"]);
    assert_ne!(newer, id);
    ws.trash(["restore", &newer, "--swap"]).ok();
    assert_same(&new, &Snapshot::of_names(&ws.path, &["d"]), "swapped back");
}

#[test]
fn promise_4_staged_bytes_go_only_for_a_stated_reason() {
    let station = Station::new();
    let ws = station.workspace("work");
    ws.sh("echo 1 > a; echo 2 > b; echo 3 > c").ok();
    ws.sh("rm a").ok();
    let held = ws.newest(&[]);
    ws.trash(["hold", &held]).ok();
    ws.sh("rm b").ok();
    ws.sh("rm c").ok();
    ws.trash(["release"]);
    assert_eq!(ws.list(&[]).len(), 3, "release frees nothing that is whole");
    ws.trash(["empty"]).ends_with(2);
    ws.trash(["empty", "--dry-run", "--yes"]).ok();
    assert_eq!(ws.list(&[]).len(), 3, "a dry run changes nothing");
    let ws = ws.remount();
    assert_eq!(ws.list(&[]).len(), 3, "mounting again changes nothing");
    ws.trash(["empty", "--yes"]).ok();
    let left = ws.list(&[]);
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(left[0]["id"], held.as_str());
    ws.trash(["restore", &held]).ok();
    assert_eq!(std::fs::read_to_string(ws.path.join("a")).unwrap(), "1\n");
}

#[test]
fn promise_5_a_crash_loses_nothing() {
    let station = Station::new();
    let dir = station.dir("work");
    tree::awkward(&dir.join("tree"), true);
    let ws = station.mount(&dir);
    let before = Snapshot::of_names(&ws.path, &["tree"]);
    ws.sh("rm -rf tree").ok();
    let (station, dir) = ws.kill();
    let first = {
        let ws = station.mount(&dir);
        let list = ids(&ws);
        assert_eq!(list.len(), 1, "{list:?}");
        ws.kill();
        list
    };
    let ws = station.mount(&dir);
    assert_eq!(first, ids(&ws), "recovery twice is recovery once");
    ws.trash(["undo"]).ok();
    assert_same(
        &before,
        &Snapshot::of_names(&ws.path, &["tree"]),
        "undo after two crashes",
    );
}

fn ids(ws: &Workspace) -> Vec<String> {
    let text = |entry: serde_json::Value| format!("{} {}", entry["id"], entry["roots"]);
    ws.list(&["--all"]).into_iter().map(text).collect()
}

#[test]
fn promise_6_the_mount_fails_closed() {
    let station = Station::new();
    let (ws, source) = with_backing(&station);
    std::fs::write(ws.path.join("f"), "x").unwrap();
    let open = std::fs::File::open(ws.path.join("f")).unwrap();
    let before = Snapshot::of_names(&source, &["f"]);
    let pid = rustix::process::Pid::from_raw(ws.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let refused = |outcome: std::io::Result<()>| {
        let code = outcome.unwrap_err().raw_os_error();
        assert!(
            matches!(code, Some(libc::ENOTCONN | libc::ECONNABORTED)),
            "{code:?}"
        );
    };
    refused(std::fs::read_dir(&ws.path).map(drop));
    refused(std::fs::write(ws.path.join("g"), "unprotected"));
    refused(std::fs::remove_file(ws.path.join("f")));
    refused(open.metadata().map(drop));
    assert!(!source.join("g").exists());
    assert_same(&before, &Snapshot::of_names(&source, &["f"]), "the backing");
    let said = station
        .trash([
            "mount",
            ws.path.to_str().unwrap(),
            "--source",
            source.to_str().unwrap(),
        ])
        .ok();
    assert_eq!(
        std::fs::read_to_string(ws.path.join("f")).unwrap(),
        "x",
        "{said:?}"
    );
    station.trash(["unmount", ws.path.to_str().unwrap()]).ok();
}

#[test]
fn promise_7_system_calls_have_the_results_of_the_backing() {
    const CALLS: &str = r#"
import errno, os, stat
def t(name, f):
    try: r = f(); print(name, "ok" if r is None else r)
    except OSError as e: print(name, errno.errorcode[e.errno])
w = lambda p, s="x": open(p, "w").write(s)
w("f"); w("g", "yy"); os.mkdir("d"); w("d/x"); os.mkdir("e"); os.symlink("f", "l"); os.link("f", "h")
t("unlink dir", lambda: os.unlink("d")); t("rmdir full", lambda: os.rmdir("d")); t("rmdir file", lambda: os.rmdir("f"))
t("rename file to dir", lambda: os.rename("f", "d")); t("rename dir to file", lambda: os.rename("d", "f"))
t("rename dir to full", lambda: os.rename("e", "d")); t("rename dir to empty", lambda: os.rename("d", "e"))
t("rename into itself", lambda: os.rename("e", "e/sub")); t("rename same inode", lambda: os.rename("f", "h"))
t("both names", lambda: sorted(os.listdir(".")))
t("nlink", lambda: os.stat("f").st_nlink); t("unlink one", lambda: os.unlink("h")); t("nlink", lambda: os.stat("f").st_nlink)
t("long name", lambda: w("n" * 256)); t("longest name", lambda: w("n" * 255)); t("missing", lambda: os.unlink("no"))
t("not a dir", lambda: os.stat("f/x")); t("loop", lambda: (os.symlink("loop", "loop"), os.stat("loop"))[1])
t("link to dir", lambda: os.link("e", "e2")); t("excl", lambda: os.open("f", os.O_CREAT | os.O_EXCL))
t("readlink", lambda: os.readlink("l")); t("readlink file", lambda: os.readlink("f")); t("nofollow", lambda: os.open("l", os.O_NOFOLLOW))
t("xattr", lambda: os.setxattr("f", "user.a", b"1")); t("xattr list", lambda: os.listxattr("f")); t("xattr gone", lambda: os.getxattr("f", "user.b"))
t("bad xattr", lambda: os.setxattr("f", "nonsense", b"1")); t("xattr create", lambda: os.setxattr("f", "user.a", b"1", os.XATTR_CREATE))
t("truncate", lambda: (os.truncate("g", 1), os.stat("g").st_size)[1]); t("grow", lambda: (os.truncate("g", 100), os.stat("g").st_size)[1])
t("negative", lambda: os.truncate("g", -1)); t("mode", lambda: (os.chmod("g", 0o4711), oct(os.stat("g").st_mode))[1])
t("times", lambda: (os.utime("g", ns=(1, 1234567890123456789)), os.stat("g").st_mtime_ns)[1])
t("fifo", lambda: (os.mkfifo("p"), stat.S_ISFIFO(os.stat("p").st_mode))[1]); t("open dir", lambda: os.open("e", os.O_WRONLY))
fd = os.open("f", os.O_RDWR); os.unlink("f"); t("open unlinked", lambda: (os.pwrite(fd, b"abc", 0), os.pread(fd, 9, 0), os.fstat(fd).st_nlink)[1:])
t("again", lambda: os.unlink("f")); t("dirfd", lambda: os.rmdir("e/x")); t("sync dir", lambda: os.fsync(os.open("e", os.O_RDONLY)))
t("punch", lambda: os.posix_fallocate(fd, 0, 8192)); t("size", lambda: os.fstat(fd).st_size)
t("list", lambda: sorted(os.listdir(".")))
"#;
    let station = Station::new();
    let (native, ws) = (station.dir("native"), station.workspace("work"));
    let script = format!("python3 - <<'PY'{CALLS}PY");
    let plain = sh(&native, &script).ok();
    let mounted = ws.sh(&script).ok();
    assert_eq!(plain.out, mounted.out);
}

#[test]
fn promise_7_only_one_name_is_reserved() {
    let station = Station::new();
    let ws = station.workspace("work");
    let reserved = ws.path.join(".trashfs");
    assert!(std::fs::symlink_metadata(&reserved).is_err());
    assert!(std::fs::create_dir(&reserved).is_err());
    assert!(std::fs::write(&reserved, "").is_err());
    assert!(std::fs::metadata(reserved.join("ops")).is_err());
    ws.sh("rm -rf .trashfs; ls -A | wc -l").ok();
    assert_eq!(std::fs::read_dir(&ws.path).unwrap().count(), 0);
    std::fs::create_dir_all(ws.path.join("d/.trashfs/ops")).unwrap();
    std::fs::write(ws.path.join("d/.trashfs/ops/f"), "mine").unwrap();
    ws.sh("rm -r d").ok();
    ws.trash(["undo"]).ok();
    assert_eq!(
        std::fs::read_to_string(ws.path.join("d/.trashfs/ops/f")).unwrap(),
        "mine"
    );
}

#[test]
fn promise_8_another_user_reaches_nothing_that_is_kept() {
    if !is_root() {
        skip("promise 8", "it takes root to be two users");
        return;
    }
    let station = Station::new();
    let root = station.home().parent().unwrap();
    sh(root, "chmod 755 . home && mkdir -p run && chmod 755 run").ok();
    let (ws, source) = with_backing(&station);
    sh(
        &ws.path,
        "chmod 777 . && echo secret > f && chmod 600 f && rm f",
    )
    .ok();
    let trash = station.program_for_all();
    let trash = trash.display();
    let tries = format!(
        "exec 2>/dev/null; cd {mounted}
        ls .trashfs && echo reached; cat .trashfs/ops/*/*/f && echo reached
        cd {source}/.trashfs && echo reached; cat {source}/.trashfs/ops/*/*/f && echo reached
        cat {state}/workspaces/*/journal.db | head -c 1 | grep -q . && echo reached
        for s in $(find {run} -type s); do python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); s.connect('$s')\" && echo reached; done
        {trash} empty --yes --workspace {mounted} && echo reached
        umount {mounted} && echo reached
        touch made-by-nobody && rm made-by-nobody && echo usual",
        mounted = ws.path.display(),
        source = source.display(),
        state = station.state().display(),
        run = station.dir("run").display(),
    );
    let answer = run(station.surround(&mut Command::new("setpriv")).args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "bash",
        "-c",
        &tries,
    ]));
    assert_eq!(answer.out.trim(), "usual", "{}", answer.err);
    ws.trash(["restore", &ws.newest(&["--path", "f"])]).ok();
    assert_eq!(
        std::fs::read_to_string(ws.path.join("f")).unwrap(),
        "secret\n"
    );
}
