use std::ffi::OsString;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{PidfdFlags, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::{Context, Report, text};
use crate::control::{self, Request};
use crate::failure::{Failure, plain};
use crate::ids::OperationId;
use crate::journal::{Filter, Page};
use crate::surroundings;

const SESSION: &str = "TRASH_SESSION";

/// Run a command so that all it removes can be taken back together
///
/// Sets TRASH_SESSION for the command, unless it is set already, and says at the end how to take
/// back what the command removed. Ends with the command's own exit code.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trash run -- make clean")]
pub struct Args {
    /// Name of the session (default: that of TRASH_SESSION, else a new one)
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Runs the command to its end.
///
/// # Errors
/// `cannot-run` when it can't be started.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let session = session(args.session);
    let (program, arguments) = args.command.split_first().ok_or_else(|| {
        Failure::failed("usage", "no command was given").next("trash run -- COMMAND")
    })?;
    let signals = Signals::catch().map_err(|e| Failure::io("catching signals", &e))?;
    let child = Command::new(program)
        .args(arguments)
        .env(SESSION, &session)
        .spawn()
        .map_err(|e| {
            let what = format!("{} can't be run: {}", program.display(), plain(&e));
            Failure::failed("cannot-run", what).state("nothing was run")
        })?;
    let status = wait(child, signals).map_err(|e| Failure::io("waiting for the command", &e))?;
    context.output.note(&farewell(context, &session));
    Ok(Report::silent().of_command(code(status)))
}

fn session(named: Option<String>) -> String {
    let inherited =
        || surroundings::variable(SESSION).map(|value| value.to_string_lossy().into_owned());
    named
        .or_else(inherited)
        .unwrap_or_else(|| OperationId::random().to_string())
}

/// The signals that would end this process and leave the command behind. Handlers, since a
/// command inherits what is blocked or ignored, but not what is handled.
struct Signals {
    terminate: UnixStream,
    hang_up: UnixStream,
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        // The terminal sends these to the command as well: it decides.
        for signal in [SIGINT, SIGQUIT] {
            signal_hook::flag::register(signal, Arc::default())?;
        }
        Ok(Self {
            terminate: caught(SIGTERM)?,
            hang_up: caught(SIGHUP)?,
        })
    }
}

/// Becomes readable when the signal comes.
fn caught(signal: i32) -> std::io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal, write)?;
    Ok(read)
}

/// Waits for the command's end, and passes on what came for it.
fn wait(mut child: Child, mut signals: Signals) -> std::io::Result<ExitStatus> {
    let pid = rustix::process::Pid::from_child(&child);
    let ended = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let mut fds = [
            PollFd::new(&ended, PollFlags::IN),
            PollFd::new(&signals.terminate, PollFlags::IN),
            PollFd::new(&signals.hang_up, PollFlags::IN),
        ];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut fds, None))?;
        pass_on(&mut signals.terminate, Signal::TERM, &ended)?;
        pass_on(&mut signals.hang_up, Signal::HUP, &ended)?;
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
    }
}

fn pass_on(caught: &mut UnixStream, signal: Signal, to: &OwnedFd) -> std::io::Result<()> {
    match caught.read(&mut [0; 16]) {
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
        other => other?,
    };
    match rustix::process::pidfd_send_signal(to, signal) {
        // It has just ended: the next look tells.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// As a shell has it: 128 and the signal's number for a command that a signal ended.
fn code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}

fn farewell(context: &Context, session: &str) -> String {
    let undo = format!(
        "trash undo --session {}",
        crate::failure::shell_word(session)
    );
    let filter = Filter {
        session: Some(session.to_owned()),
        all: true,
        limit: 100,
        ..Filter::default()
    };
    let kept = context
        .located()
        .and_then(|located| control::call_for::<Page>(&located, Request::List(filter)));
    match kept {
        Ok(page) if page.entries.is_empty() => {
            "trash: the command removed and overwrote nothing here".to_owned()
        }
        Ok(page) => {
            let members = page.entries.iter().map(|entry| entry.members).sum();
            let more = if page.next_cursor.is_some() {
                "more than "
            } else {
                ""
            };
            let what = text::count(members, "thing", "things");
            format!(
                "trash: kept {more}{what} that the command removed or overwrote; to take it back: {undo}"
            )
        }
        Err(failure) => format!(
            "trash: what the command removed can't be listed ({}); to take it back: {undo}",
            failure.what
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(script: &str) -> u8 {
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        code(wait(child, Signals::catch().unwrap()).unwrap())
    }

    #[test]
    fn the_commands_exit_code_is_passed_on() {
        assert_eq!(ran("exit 0"), 0);
        assert_eq!(ran("exit 7"), 7);
        assert_eq!(ran("kill -KILL $$"), 137);
    }
}
