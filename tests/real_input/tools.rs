//! Everyday tools, whose results inside the mount are those of the backing.

use std::path::Path;
use std::time::Duration;

use rustix::fs::inotify;

use crate::common::{Snapshot, Station, Workspace, assert_same, detach, run, sh, skip, tree};
use crate::inputs;

/// Runs a script in a plain directory and in a mount: same exit code and output.
fn same_in_both(prepare: impl Fn(&Path), script: &str) -> (std::sync::Arc<Station>, Workspace) {
    let station = Station::new();
    let (native, dir) = (station.dir("native"), station.dir("work"));
    prepare(&native);
    prepare(&dir);
    let ws = station.mount(&dir);
    let plain = run(station
        .surround(&mut std::process::Command::new("bash"))
        .args(["-c", script])
        .current_dir(&native));
    let mounted = ws.sh(script);
    assert_eq!(plain.code, 0, "natively: {plain:?}");
    assert_eq!(mounted.code, plain.code, "mounted: {mounted:?}");
    assert_eq!(mounted.out, plain.out, "{}", mounted.err);
    (station, ws)
}

const GIT: &str = "set -e
    export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
    git config --global user.name a; git config --global user.email a@b; git config --global init.defaultBranch main
    git config --global advice.detachedHead false";

#[test]
fn git_works_from_clone_to_gc() {
    let script = format!(
        "{GIT}
        git clone -q repo clone && cd clone
        git checkout -q -b work && echo x > new && git add new && git commit -qm new
        git checkout -q main 2>/dev/null || git checkout -q master
        git merge -q --no-ff -m merge work && git worktree add -q ../wt side 2>/dev/null || git worktree add -q -b side ../wt
        git rm -rq src/d0 && git commit -qm removed && git checkout -q HEAD~1 && git checkout -q -
        git stash list | wc -l; mv src/d1 src/dx; git add -A; git commit -qm moved
        git gc -q --prune=now && git fsck --strict --no-dangling && git status --short
        git rev-parse HEAD^{{tree}} && git log --format=%T | sha256sum && git clean -qfdx && git ls-files | wc -l"
    );
    let dates =
        "export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z';";
    same_in_both(
        |dir| {
            tree::plain(&dir.join("repo/src"), 300);
            sh(
                &dir.join("repo"),
                &format!("{dates} git init -q -b main . && git -c user.name=a -c user.email=a@b add . && \
                 git -c user.name=a -c user.email=a@b commit -qm one && git branch side"),
            )
            .ok();
        },
        &script,
    );
}

#[test]
fn cargo_builds_and_builds_again() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let script = format!(
        "set -e
        export HOME={home:?} CARGO_TARGET_DIR=
        unset CARGO_TARGET_DIR
        cd tool && {cargo} build -q --offline 2>&1 && ./target/debug/tool
        echo 'pub fn word() -> &'\"'\"'static str {{ \"changed\" }}' > src/word.rs
        touch -d '+5 seconds' src/word.rs
        {cargo} build -q --offline 2>&1 && ./target/debug/tool && {cargo} clean -q --offline && ls",
        home = std::env::var("HOME").unwrap()
    );
    same_in_both(
        |dir| {
            let src = dir.join("tool/src");
            std::fs::create_dir_all(&src).unwrap();
            let manifest = "[package]\nname = \"tool\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
            std::fs::write(dir.join("tool/Cargo.toml"), manifest).unwrap();
            std::fs::write(
                src.join("main.rs"),
                "mod word;\nfn main() { println!(\"{}\", word::word()) }\n",
            )
            .unwrap();
            std::fs::write(
                src.join("word.rs"),
                "pub fn word() -> &'static str { \"first\" }\n",
            )
            .unwrap();
        },
        &script,
    );
}

#[test]
fn heavy_npm_ci_installs_and_removes() {
    let station = Station::new();
    let dir = station.dir("work");
    if inputs::node_modules(&dir.join("package")).is_none() {
        return;
    }
    let ws = station.mount(&dir);
    let home = std::env::var("HOME").unwrap();
    let npm = format!(
        "cd package && HOME={home} npm ci --no-audit --no-fund --loglevel=error && ls node_modules | wc -l"
    );
    let before = ws.sh("ls package/node_modules | wc -l").ok();
    let answer = ws.sh(&npm);
    if inputs::registry_is_out_of_reach(&answer) {
        skip("npm ci", &answer.err);
        return;
    }
    let answer = answer.ok();
    assert_eq!(answer.out.lines().last(), before.out.lines().last());
    ws.sh("cd package && node -e 'require(\"jest\")'").ok();
}

#[test]
fn sqlite_in_wal_and_delete_mode_with_several_processes() {
    const SCRIPT: &str = r#"set -e
cat > writer.py <<'PY'
import sqlite3, sys
c = sqlite3.connect("x.db", timeout=60, isolation_level=None)
for i in range(100):
    c.execute("begin immediate")
    c.execute("update n set v = v + 1")
    c.execute("insert into t values (?, ?)", (int(sys.argv[1]), i))
    c.execute("commit")
PY
for mode in wal delete; do
    rm -f x.db*
    python3 -c "import sqlite3; c = sqlite3.connect('x.db'); print(c.execute('pragma journal_mode=$mode').fetchone()[0]); c.execute('create table n(v)'); c.execute('insert into n values (0)'); c.execute('create table t(a, b)'); c.commit()"
    for p in 1 2 3 4; do python3 writer.py $p & pids="$pids $!"; done
    for pid in $pids; do wait $pid; done; pids=
    python3 -c "import sqlite3; c = sqlite3.connect('x.db'); print(c.execute('select v from n').fetchone()[0], c.execute('select count(*) from t').fetchone()[0], c.execute('pragma integrity_check').fetchone()[0])"
done"#;
    same_in_both(|_| {}, SCRIPT);
}

#[test]
fn tar_packs_and_unpacks_everything() {
    let station = Station::new();
    let dir = station.dir("work");
    tree::awkward(&dir.join("tree"), false);
    let ws = station.mount(&dir);
    // A socket has no place in an archive.
    ws.sh("rm tree/special/socket && mkdir out && \
           tar --xattrs --xattrs-include='*' --acls --sparse --format=posix -cf a.tar tree && \
           tar --xattrs --xattrs-include='*' --acls -xpf a.tar -C out")
        .ok();
    let before = Snapshot::of_names(&ws.path, &["tree"]).without_top("tree/special");
    let after = Snapshot::of_names(&ws.path.join("out"), &["tree"]).without_top("tree/special");
    assert_same(&before, &after, "tar");
}

#[test]
fn vim_edits_with_swap_and_backup_files() {
    same_in_both(
        |dir| std::fs::write(dir.join("text"), "one\ntwo\n").unwrap(),
        "vim -N -u NONE -es -c 'set backup writebackup swapfile backupdir=. directory=.' \
         -c '%s/one/1/' -c w -c '%s/two/2/' -c wq text </dev/null; cat text text~; ls -A",
    );
}

#[test]
fn locks_hold_between_processes() {
    same_in_both(
        |dir| std::fs::write(dir.join("lock"), "").unwrap(),
        "set -e; echo 0 > n
        add() { for i in $(seq 25); do flock lock sh -c 'n=$(cat n); echo $((n + 1)) > n'; done; }
        add & add & add & add & wait; cat n
        flock lock sleep 1 & sleep 0.3; flock -n lock true && echo got || echo busy; wait
        python3 - <<'PY'
import fcntl, os
f = open('lock', 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 10, 5)
pid = os.fork()
if pid == 0:
    g = open('lock', 'r+')
    try: fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0); print('took it', flush=True)
    except OSError: print('held', flush=True)
    fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 20); print('beside', flush=True)
    os._exit(0)
os.waitpid(pid, 0)
PY",
    );
}

#[test]
fn inotify_sees_changes_made_through_the_mount() {
    let station = Station::new();
    let ws = station.workspace("work");
    std::fs::create_dir(ws.path.join("watched")).unwrap();
    let watch =
        inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(
        &watch,
        ws.path.join("watched"),
        inotify::WatchFlags::ALL_EVENTS,
    )
    .unwrap();
    ws.sh("cd watched && echo a > f && mv f g && rm g && mkdir d && rmdir d")
        .ok();
    std::thread::sleep(Duration::from_millis(200));
    let mut buffer = [std::mem::MaybeUninit::uninit(); 8192];
    let mut reader = inotify::Reader::new(&watch, &mut buffer);
    let mut seen = Vec::new();
    while let Ok(event) = reader.next() {
        let name = event.file_name().map(|n| n.to_string_lossy().into_owned());
        seen.push((event.events(), name.unwrap_or_default()));
    }
    let saw = |flag: inotify::ReadFlags, name: &str| {
        let found = seen
            .iter()
            .any(|(events, n)| events.contains(flag) && n == name);
        assert!(found, "{flag:?} {name} is not among {seen:?}");
    };
    saw(inotify::ReadFlags::CREATE, "f");
    saw(inotify::ReadFlags::MODIFY, "f");
    saw(inotify::ReadFlags::MOVED_FROM, "f");
    saw(inotify::ReadFlags::MOVED_TO, "g");
    saw(inotify::ReadFlags::DELETE, "g");
    saw(inotify::ReadFlags::DELETE, "d");
}

#[test]
fn a_bind_mount_of_the_mount_is_covered_as_well() {
    let station = Station::new();
    let ws = station.workspace("work");
    tree::awkward(&ws.path.join("tree"), false);
    let bound = station.dir("bound");
    sh(
        &bound,
        &format!(
            "mount --bind {} {}",
            ws.path.join("tree").display(),
            bound.display()
        ),
    )
    .ok();
    let before = Snapshot::of(&bound);
    let answer = sh(
        &bound,
        "rm -rf links names large && echo over > empty && find . | wc -l",
    );
    let gone = !ws.path.join("tree/names").exists();
    let undone = ws.trash(["undo"]);
    let after = Snapshot::of(&bound);
    detach(&bound);
    answer.ok();
    assert!(gone);
    undone.ok();
    let touched = ["empty"];
    assert_same(
        &before.without(&touched),
        &after.without(&touched),
        "undo of rm through a bind mount",
    );
}
