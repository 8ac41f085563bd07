//! The product as people without privileges have it: mounted through fusermount3, in a mount
//! namespace where they may open /dev/fuse. Becoming an ordinary user needs root.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends; it clears its own scratch"
)]

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use common::{Answer, Station, is_root, run, sh, skip};
use serde_json::Value;

/// `nobody`, who needs a name for fusermount3.
const USER: u32 = 65_534;
/// Somebody else.
const OTHER: u32 = 65_533;

/// A station of an ordinary user, with the workspace `w`.
struct Ordinary {
    station: Arc<Station>,
    base: PathBuf,
}

impl Ordinary {
    fn new() -> Option<Self> {
        if !is_root() {
            skip("another user", "becoming it needs root");
            return None;
        }
        let station = Station::new();
        station.program_for_all();
        for dir in ["w", "run"] {
            station.dir(dir);
        }
        let base = station.home().parent().unwrap().to_owned();
        sh(
            &base,
            &format!("chmod 700 run; chown -R {USER}:{USER} home run w"),
        )
        .ok();
        Some(Self { station, base })
    }

    /// Prepares as root, in the directory of the station.
    fn as_root(&self, script: &str) -> Answer {
        sh(&self.base, script).ok()
    }

    /// Runs a script in the workspace as the user who owns it, with `trash` on its path; `other`
    /// in it runs what follows as somebody else. Mounts do not outlive it.
    fn run(&self, script: &str) -> Answer {
        let node = self.base.join("fuse");
        let setup = format!(
            "set -e; [ -e {node} ] || mknod -m 666 {node} c 10 229
             mount --bind {node} /dev/fuse
             echo user_allow_other > fuse.conf; chmod 644 fuse.conf
             [ -z \"$ALLOW_OTHER\" ] || mount --bind fuse.conf /etc/fuse.conf
             setpriv --reuid={USER} --regid={USER} --clear-groups \
                 bash -c 'umask 022; cd w; eval \"$SCRIPT\"'",
            node = node.display(),
        );
        let mut command = Command::new("unshare");
        self.station.surround(&mut command);
        let path = std::env::var("PATH").unwrap();
        command
            .args(["-m", "bash", "-c", &setup])
            .env("SCRIPT", script)
            .env("PATH", format!("{}/bin:{path}", self.base.display()))
            .current_dir(&self.base);
        if script.contains("--allow-other") {
            command.env("ALLOW_OTHER", "1");
        }
        run(&mut command)
    }
}

/// How a tree is compared: everything that a user can see of it.
const FUNCTIONS: &str = r#"
set -e
look() { find "$1" -printf '%P %y %m %u %g %s %T@ %l\n' 2>/dev/null | sort; }
in_place() { trash mount "$PWD" >&2; cd "$PWD"; }
away() { cd /; trash unmount "$OLDPWD" >&2; cd "$OLDPWD"; }
"#;

#[test]
fn what_its_owner_may_not_read_is_kept_and_comes_back() {
    let Some(user) = Ordinary::new() else { return };
    let script = format!(
        r#"{FUNCTIONS}
        mkdir copies; in_place
        mkdir t; for m in 0000 0200 0400 0444 4755 2755; do
            echo "mode $m" > t/$m; setfattr -n user.of -v $m t/$m; chmod $m t/$m
        done
        for m in 0000 0300 0555 2775 1777 1700; do
            mkdir t/d$m; setfattr -n user.of -v $m t/d$m; chmod $m t/d$m
        done
        look t > before
        rm -rf t; [ ! -e t ]; trash undo >&2; look t > after; diff before after >&2
        rm -rf t; id=$(trash list --json | grep -o '"id":"[a-z0-9]*"' | head -n 1 | cut -d'"' -f4)
        trash restore $id --to copies --json > copied; cat copied >&2
        look copies/t > after; diff before after >&2; grep -q '"notes":\[\]' copied
        getfattr --absolute-names -d copies/t/0444 | grep -q 'user.of="0444"'
        trash undo >&2; look t > after; diff before after >&2
        chmod 600 t/0200; cat t/0200
        trash put t >&2; trash empty --yes >&2; [ -z "$(trash list --json | grep '"id"')" ]
        away; [ -z "$(ls -A .trashfs/ops)" ]"#
    );
    assert_eq!(user.run(&script).ok().out, "mode 0200\n");
}

#[test]
fn a_file_that_its_owner_may_only_write_is_kept_before_it_is_cut_off() {
    let Some(user) = Ordinary::new() else { return };
    let script = format!(
        r#"{FUNCTIONS} in_place
        echo old > f; chmod 200 f; echo new > f
        [ "$(stat -c %a f)" = 200 ]
        trash undo --cause truncate >&2; [ "$(stat -c %a f)" = 200 ]
        chmod 600 f; cat f; away"#
    );
    assert_eq!(user.run(&script).ok().out, "old\n");
}

#[test]
fn a_replaced_directory_that_may_not_be_written_goes_back() {
    let Some(user) = Ordinary::new() else { return };
    let script = format!(
        r#"{FUNCTIONS} in_place
        mkdir new old; echo x > new/x; chmod 555 new old
        mv -T new old; ls old; trash undo --cause replace >&2
        ls -A old; stat -c %a old; away"#
    );
    assert_eq!(user.run(&script).ok().out, "x\n555\n");
}

#[test]
fn what_belongs_to_others_is_kept_where_it_may_be_removed() {
    let Some(user) = Ordinary::new() else { return };
    user.as_root(
        "cd w; echo over > over; echo gone > gone; chmod 600 gone; mkdir empty full; touch full/f
         echo all > all; chmod 666 all; echo blind > blind; chmod 622 blind",
    );
    let script = format!(
        r#"{FUNCTIONS} in_place
        echo new > n; mv n over
        trash undo --cause replace >&2; stat -c '%n %U' over; cat over
        echo cut > all; rm gone; rmdir empty; ! rm -rf full; ! (echo cut > blind)
        trash undo --cause truncate >&2; cat all
        trash undo >&2 || true; stat -c '%n %U %s' full/f gone blind; away"#
    );
    assert_eq!(
        user.run(&script).ok().out,
        "over root\nover\nall\nfull/f root 0\ngone root 5\nblind root 6\n"
    );
}

#[test]
fn the_home_directory_is_a_workspace() {
    let Some(user) = Ordinary::new() else { return };
    let script = format!(
        r#"{FUNCTIONS} cd "$HOME"; mkdir -p p/q; echo x > p/q/f; trash setup --local >&2
        in_place; look p > "$XDG_RUNTIME_DIR/before"
        rm -rf "$HOME"/* "$HOME"/.config "$HOME"/.local; [ -z "$(ls -A)" ]
        trash undo >&2; look p | diff "$XDG_RUNTIME_DIR/before" - >&2
        pid=$(trash mount "$HOME" --json | grep -o '"pid":[0-9]*' | cut -d: -f2)
        rm -r p; cd /; kill -9 $pid
        while ls "$HOME" >/dev/null 2>&1; do sleep 0.02; done
        trash mount "$HOME" >&2; cd "$HOME"; trash undo >&2
        look p | diff "$XDG_RUNTIME_DIR/before" - >&2; away
        cd "$HOME"; cat p/q/f; grep -c trashfs /proc/self/mountinfo || true"#
    );
    let answer = user.run(&script).ok();
    assert!(answer.out.starts_with("x\n"), "{answer:?}");
}

#[test]
fn what_the_station_writes_is_for_its_owner_only() {
    let Some(user) = Ordinary::new() else { return };
    let script = format!(
        r#"{FUNCTIONS} in_place; echo x > f; rm f; trash list >&2
        find "$HOME" "$XDG_RUNTIME_DIR" -mindepth 1 -path '*trashfs*' -perm /077 -print
        away; find .trashfs -maxdepth 2 -perm /077 -print"#
    );
    assert_eq!(user.run(&script).ok().out, "");
}

#[test]
fn a_runtime_directory_of_somebody_else_is_not_trusted() {
    let Some(user) = Ordinary::new() else { return };
    user.as_root(&format!(
        "mkdir theirs; chown {OTHER} theirs; chmod 777 theirs; ln -s theirs link; \
         mkdir -m 777 open; chown {USER} open"
    ));
    let attempt = |dir: &str| {
        let trap = match dir {
            "link" => "ln -s \"$PWD/theirs\" rt/trashfs",
            "open" => "mkdir -m 777 rt/trashfs; chown 65534 rt/trashfs",
            _ => "mkdir -m 777 rt/trashfs; chown 65533 rt/trashfs",
        };
        user.as_root(&format!("rm -rf rt; mkdir -m 755 rt; {trap}"));
        let script = "export XDG_RUNTIME_DIR=$PWD/../rt; trash mount --json \"$PWD\"";
        let answer = user.run(script);
        assert_ne!(answer.code, 0, "{dir}: {answer:?}");
        let told: Value = serde_json::from_str(&answer.err).unwrap();
        told["error"]["code"].as_str().unwrap().to_owned()
    };
    assert_eq!(attempt("theirs"), "unsafe-directory");
    assert_eq!(attempt("open"), "unsafe-directory");
    assert_ne!(attempt("link"), "");
}

#[test]
fn others_are_let_in_where_the_system_allows_it() {
    let Some(user) = Ordinary::new() else { return };
    let script = format!(
        r#"{FUNCTIONS} chmod 777 .; 
        pid=$(trash mount --allow-other "$PWD" --json | grep -o '"pid":[0-9]*' | cut -d: -f2)
        cd "$PWD"; echo x > f; echo $pid > "$XDG_RUNTIME_DIR/pid"
        mv "$XDG_RUNTIME_DIR/pid" "$XDG_RUNTIME_DIR/ready"
        while [ ! -e "$XDG_RUNTIME_DIR/done" ]; do sleep 0.02; done
        cat g; trash undo >&2; cat f; away"#
    );
    let base = user.base.clone();
    let other = std::thread::spawn(move || {
        let script = format!(
            r#"until [ -e run/ready ]; do sleep 0.02; done
            nsenter -t $(cat run/ready) -m setpriv --reuid={OTHER} --regid={OTHER} --clear-groups bash -c '
                cd '$PWD'/w; echo theirs > g; rm f; ls .trashfs 2>/dev/null
                ls ../run 2>/dev/null; fusermount3 -u -z "$PWD" 2>/dev/null && echo unmounted'
            touch run/done; chown {USER} run/done"#
        );
        sh(&base, &script)
    });
    let answer = user.run(&script);
    let told = other.join().unwrap();
    assert_eq!(told.out, "", "{told:?}");
    assert_eq!(answer.ok().out, "theirs\nx\n");
}

/// The integration tests that need no root, run by an ordinary user.
#[test]
fn heavy_the_usual_tests_hold_for_an_ordinary_user() {
    let Some(user) = Ordinary::new() else { return };
    for (suite, skipped) in [
        ("semantics", &["every_promise_has_its_tests"][..]),
        ("verbs", &[]),
    ] {
        let built = built(suite);
        std::fs::copy(built, user.base.join("bin").join(suite)).unwrap();
        let skips: String = skipped.iter().map(|s| format!(" --skip {s}")).collect();
        let answer = user.run(&format!(
            "export TRASHFS_TEST_PROGRAM=$(command -v trash); cd ..; exec {suite}{skips} 2>&1"
        ));
        assert_eq!(
            answer.code, 0,
            "{suite} as an ordinary user:\n{}",
            answer.out
        );
    }
}

/// Where cargo has put the executable of an integration test.
fn built(suite: &str) -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let answer = run(Command::new(cargo)
        .args(["test", "--offline", "--no-run", "--message-format=json"])
        .args(["--test", suite])
        .current_dir(env!("CARGO_MANIFEST_DIR")))
    .ok();
    let mut lines = answer.out.lines().rev();
    lines
        .find_map(|line| {
            let message: Value = serde_json::from_str(line).ok()?;
            let ours = message["target"]["name"] == suite;
            Some(message["executable"].as_str().filter(|_| ours)?.into())
        })
        .unwrap_or_else(|| panic!("cargo names no executable for {suite}"))
}
