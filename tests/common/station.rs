//! A station with directories of its own, and workspaces mounted on it that go away on drop.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use serde_json::Value;

/// How long a daemon may take to mount or to go.
const PATIENCE: Duration = Duration::from_secs(30);

/// Configuration, state and sockets in a temporary directory.
pub struct Station {
    scratch: tempfile::TempDir,
    home: PathBuf,
}

/// How a command ended.
#[derive(Debug)]
pub struct Answer {
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Answer {
    /// Of a finished process.
    pub fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Demands success.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "out: {}\nerr: {}", self.out, self.err);
        self
    }

    /// Demands this exit code.
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Self {
        assert_eq!(self.code, code, "out: {}\nerr: {}", self.out, self.err);
        self
    }

    /// Demands a text on standard error.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(
            self.err.contains(text),
            "no {text:?} in\nout: {}\nerr: {}",
            self.out,
            self.err
        );
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|e| panic!("{e} in\nout: {}\nerr: {}", self.out, self.err))
    }
}

impl Station {
    /// In a fresh temporary directory.
    pub fn new() -> Arc<Self> {
        Self::below(Path::new("/tmp"))
    }

    /// In a fresh directory below `dir`, e.g. on another filesystem.
    pub fn below(dir: &Path) -> Arc<Self> {
        let scratch = tempfile::Builder::new()
            .prefix("trashfs-test-")
            .tempdir_in(dir)
            .unwrap();
        let home = scratch.path().join("home");
        std::fs::create_dir(&home).unwrap();
        Arc::new(Self { scratch, home })
    }

    /// A place for files outside any workspace.
    pub fn dir(&self, name: &str) -> PathBuf {
        let dir = self.scratch.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// The home directory that commands see.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Where the station's journals lie.
    pub fn state(&self) -> PathBuf {
        self.home.join(".local/state/trashfs")
    }

    /// Gives a command this station's surroundings.
    pub fn surround<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for name in [
            "TRASH_SESSION",
            "TRASH_AGENT",
            "CLAUDECODE",
            "XDG_CONFIG_HOME",
            "XDG_STATE_HOME",
        ] {
            command.env_remove(name);
        }
        command
            .env("HOME", &self.home)
            .env("XDG_RUNTIME_DIR", self.dir("run"))
            .env("TZ", "UTC")
            .env("NO_COLOR", "1")
    }

    /// The product's program where other users may run it: builds lie in people's homes.
    pub fn program_for_all(&self) -> PathBuf {
        let program = self.dir("bin").join("trash");
        if !program.exists() {
            std::fs::copy(self::program(), &program).unwrap();
            for dir in [self.scratch.path(), &self.dir("bin")] {
                std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
            }
        }
        program
    }

    /// The product's command with this station's surroundings.
    pub fn command(&self) -> Command {
        let mut command = Command::new(program());
        self.surround(&mut command);
        command.current_dir(self.scratch.path());
        command
    }

    /// Runs `trash` with these arguments, in no workspace.
    pub fn trash<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Answer {
        run(self.command().args(args))
    }

    /// Makes the directory `name` and mounts it.
    pub fn workspace(self: &Arc<Self>, name: &str) -> Workspace {
        let dir = self.dir(name);
        self.mount(&dir)
    }

    /// Mounts a directory over itself.
    #[track_caller]
    pub fn mount(self: &Arc<Self>, dir: &Path) -> Workspace {
        self.mount_with(dir, |_| {})
    }

    /// Mounts a directory over itself, with a change to the daemon's command.
    #[track_caller]
    pub fn mount_with(
        self: &Arc<Self>,
        dir: &Path,
        change: impl FnOnce(&mut Command),
    ) -> Workspace {
        self.try_mount(dir, change)
            .unwrap_or_else(|answer| panic!("the daemon ended: {answer:?}"))
    }

    /// Mounts, or tells how the daemon ended.
    pub fn try_mount(
        self: &Arc<Self>,
        dir: &Path,
        change: impl FnOnce(&mut Command),
    ) -> Result<Workspace, Answer> {
        let mut command = self.command();
        command.args(["mount", "-f"]).arg(dir);
        change(&mut command);
        let again = command.get_args().skip(3).map(ToOwned::to_owned).collect();
        let mut workspace = self.start(dir, command)?;
        workspace.again = again;
        Ok(workspace)
    }

    /// Starts a daemon by this command and waits until `dir` is mounted.
    pub fn start(self: &Arc<Self>, dir: &Path, command: Command) -> Result<Workspace, Answer> {
        let mut command = dies_with_us(command);
        let below = device(dir);
        let log = self.dir("logs").join(format!("{}.err", uid()));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .process_group(0);
        let mut daemon = command.spawn().unwrap();
        let since = Instant::now();
        loop {
            // Its own word, once commands are answered as well.
            let ready =
                || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("(daemon "));
            if device(dir) != below && device(dir).is_some() && ready() {
                return Ok(Workspace {
                    station: self.clone(),
                    path: dir.to_owned(),
                    daemon: Some(daemon),
                    log,
                    again: Vec::new(),
                });
            }
            if let Some(status) = daemon.try_wait().unwrap() {
                return Err(Answer {
                    code: status.code().unwrap_or(-1),
                    out: String::new(),
                    err: std::fs::read_to_string(&log).unwrap_or_default(),
                });
            }
            if since.elapsed() > PATIENCE {
                let _ = daemon.kill();
                panic!(
                    "{} is not mounted after {PATIENCE:?}: {}",
                    dir.display(),
                    std::fs::read_to_string(&log).unwrap_or_default()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A test that is stopped for taking too long takes its daemon with it.
fn dies_with_us(command: Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--pdeathsig", "KILL"]);
    wrapped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        wrapped.current_dir(dir);
    }
    wrapped
}

fn device(dir: &Path) -> Option<u64> {
    std::fs::metadata(dir).ok().map(|m| m.dev())
}

fn uid() -> u128 {
    let epoch = std::time::SystemTime::UNIX_EPOCH;
    std::time::SystemTime::now()
        .duration_since(epoch)
        .unwrap()
        .as_nanos()
}

/// A mounted workspace; unmounted and its daemon ended on drop.
pub struct Workspace {
    station: Arc<Station>,
    /// Where it is mounted.
    pub path: PathBuf,
    daemon: Option<Child>,
    log: PathBuf,
    /// Further arguments of its mount, to mount it again.
    again: Vec<OsString>,
}

impl Workspace {
    /// Its station.
    pub fn station(&self) -> &Arc<Station> {
        &self.station
    }

    /// The daemon's process id (of its tracer, where it is traced).
    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().map_or(0, Child::id)
    }

    /// Runs `trash` in the workspace.
    pub fn trash<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Answer {
        run(self.station.command().current_dir(&self.path).args(args))
    }

    /// Runs a shell command in the workspace, in a process group of its own, so that it is an
    /// operation of its own.
    pub fn sh(&self, script: &str) -> Answer {
        run(self
            .station
            .surround(&mut Command::new("bash"))
            .args(["-c", script])
            .current_dir(&self.path))
    }

    /// What `trash list` shows with these further arguments.
    #[track_caller]
    pub fn list(&self, more: &[&str]) -> Vec<Value> {
        let mut args = vec!["list", "--json", "--limit", "100"];
        args.extend(more);
        let answer = self.trash(args).ok().json();
        answer["entries"].as_array().unwrap().clone()
    }

    /// The id of the newest entry that `trash list` shows with these further arguments.
    #[track_caller]
    pub fn newest(&self, more: &[&str]) -> String {
        let entries = self.list(more);
        assert!(!entries.is_empty(), "list {more:?} shows nothing");
        entries[0]["id"].as_str().unwrap().to_owned()
    }

    /// Unmounts in order and waits for the daemon.
    #[track_caller]
    pub fn unmount(mut self) -> Arc<Station> {
        let dir = self.path.clone();
        self.station
            .trash([OsStr::new("unmount"), dir.as_os_str()])
            .ok();
        let mut daemon = self.daemon.take().unwrap();
        assert!(ends(&mut daemon), "the daemon goes on after unmounting");
        self.station.clone()
    }

    /// Unmounts and mounts again.
    #[track_caller]
    pub fn remount(self) -> Self {
        let (path, command) = (self.path.clone(), self.again.clone());
        let station = self.unmount();
        station.mount_with(&path, |fresh| {
            fresh.args(command);
        })
    }

    /// Kills the daemon and takes the dead mount away.
    pub fn kill(mut self) -> (Arc<Station>, PathBuf) {
        if let Some(mut daemon) = self.daemon.take() {
            kill_group(daemon.id());
            let _ = daemon.wait();
        }
        detach(&self.path);
        (self.station.clone(), self.path.clone())
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else {
            return;
        };
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("the daemon ({:?}) logged:\n{log}", daemon.try_wait());
        }
        detach(&self.path);
        if !ends(&mut daemon) {
            kill_group(daemon.id());
            let _ = daemon.wait();
        }
    }
}

fn kill_group(pid: u32) {
    if let Some(group) = rustix::process::Pid::from_raw(pid.cast_signed()) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// Takes a mount away, whoever still uses it.
pub fn detach(path: &Path) {
    if umount2(path, MntFlags::MNT_DETACH).is_err() && !super::is_root() {
        run(Command::new("fusermount3").args(["-u", "-z"]).arg(path));
    }
}

/// The product's program: the one just built, or a copy of it where it can be reached.
pub fn program() -> PathBuf {
    std::env::var_os("TRASHFS_TEST_PROGRAM")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_trash")), PathBuf::from)
}

fn ends(daemon: &mut Child) -> bool {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        if daemon.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Runs a command in a process group of its own to its end.
pub fn run(command: &mut Command) -> Answer {
    command.stdin(Stdio::null()).process_group(0);
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    Answer::of(&output)
}

/// Runs a shell command outside any workspace.
pub fn sh(dir: &Path, script: &str) -> Answer {
    run(Command::new("bash").args(["-c", script]).current_dir(dir))
}
