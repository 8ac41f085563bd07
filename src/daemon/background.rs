//! Into the background: the command starts itself anew as the daemon, and returns once that
//! one's mount answers or its failure is known.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use trashfs_mount::mountinfo::{Health, health};

use crate::daemon::{Report, Wanted};
use crate::failure::{Failure, shell_word};

/// The kernel asks the new daemon a question or two: this is plenty.
const FIRST_ANSWER: Duration = Duration::from_secs(20);

/// What ps(1) shows.
const PROGRAM: &str = "trash";

/// Starts a daemon in the background for `wanted`; `arguments` let this program come to
/// [`detached`] with the same `wanted`.
///
/// # Errors
/// The daemon's own while it starts, or that it ended without a word.
pub fn start(arguments: &[std::ffi::OsString]) -> Result<Report, Failure> {
    let failed =
        |e: std::io::Error| Failure::io("starting the daemon", &e).state("nothing was mounted");
    let mut child = Command::new("/proc/self/exe")
        .arg0(PROGRAM)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let report = first_words(&mut child)?;
    match health(report.path.as_path(), FIRST_ANSWER) {
        Health::Answers => Ok(report),
        other => {
            let path = report.path.display();
            Err(Failure::failed(
                "no-answer",
                format!("the new mount on {path} does not answer: {other:?}"),
            )
            .state(format!("its daemon is process {}", report.pid))
            .next(format!("trash unmount --lazy {}", shell_word(&path))))
        }
    }
}

fn first_words(child: &mut Child) -> Result<Report, Failure> {
    let mut line = String::new();
    let read = match child.stdout.take() {
        Some(stdout) => BufReader::<ChildStdout>::new(stdout).read_line(&mut line),
        None => Ok(0),
    };
    let words: Option<Result<Report, Failure>> = match read {
        Ok(_) => serde_json::from_str(&line).ok(),
        Err(_) => None,
    };
    words.unwrap_or_else(|| {
        let how = match child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        Err(Failure::failed(
            "daemon-died",
            format!("the daemon ended while it started: {how}"),
        )
        .state("the workspace is not mounted; nothing was lost")
        .next("trash doctor"))
    })
}

/// In the new process: leaves the terminal, runs the daemon, and says on standard output how
/// the start went.
///
/// # Errors
/// None while it starts, since those were said; later the daemon's own.
pub fn detached(wanted: &Wanted) -> Result<(), Failure> {
    close_inherited();
    leave_terminal()?;
    show_name();
    let mut waited_for = true;
    let ended = super::run(wanted, true, &mut |report| {
        waited_for = false;
        say(&Ok(report))?;
        forget_standard_streams()
    });
    match ended {
        Ok(()) => Ok(()),
        Err(failure) if waited_for => say(&Err(failure)),
        Err(failure) => Err(failure),
    }
}

/// Whoever waits for a descriptor of the command's to be closed must not wait for the daemon.
fn close_inherited() {
    let Ok(listing) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let number = |name: std::ffi::OsString| name.to_str()?.parse::<i32>().ok();
    let open: Vec<i32> = listing
        .filter_map(|entry| number(entry.ok()?.file_name()))
        .filter(|fd| *fd > 2)
        .collect();
    // Nothing in this process has opened one yet. That of the listing itself is gone by now.
    for fd in open {
        let _ = nix::unistd::close(fd);
    }
}

fn leave_terminal() -> Result<(), Failure> {
    // Fails only for the leader of a group: then somebody else has detached it.
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "already a session of its own");
    }
    std::env::set_current_dir(PathBuf::from("/"))
        .map_err(|e| Failure::io("changing to the root directory", &e))
}

/// The kernel names a process after the file that it was started from: `exe`.
fn show_name() {
    if let Err(error) = rustix::thread::set_name(c"trash") {
        tracing::debug!(%error, "the process keeps its name");
    }
}

fn say(words: &Result<Report, Failure>) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::io("telling the command how the start went", &e);
    let mut out = std::io::stdout().lock();
    let text = serde_json::to_string(words).map_err(|e| failed(e.into()))?;
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(failed)
}

fn forget_standard_streams() -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::io("opening /dev/null", &e);
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(failed)?;
    nix::unistd::dup2_stdout(&null).map_err(|e| failed(e.into()))?;
    nix::unistd::dup2_stderr(&null).map_err(|e| failed(e.into()))
}
