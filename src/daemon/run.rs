//! Mounts, serves, and takes everything down in order.

use std::sync::mpsc;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Resource, Rlimit};
use serde::{Deserialize, Serialize};

use crate::control::Pong;
use crate::daemon::place::{self, Found, Wanted};
use crate::daemon::prepare::{Prepared, prepare};
use crate::daemon::serving::{End, Mounted};
use crate::failure::Failure;
use crate::ids::WorkspaceId;
use crate::record::Bytes;
use crate::surroundings;

/// How a mount came to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The workspace's id.
    pub workspace: WorkspaceId,
    /// Where it is mounted.
    pub path: Bytes,
    /// Its backing directory.
    pub source: Bytes,
    /// The daemon's process id.
    pub pid: u32,
    /// It was mounted before; nothing was done.
    pub already_mounted: bool,
    /// What happened on the way.
    pub notices: Vec<String>,
}

impl Report {
    fn of_mounted(pong: Pong) -> Self {
        Self {
            workspace: pong.workspace,
            path: pong.path,
            source: pong.source,
            pid: pong.pid,
            already_mounted: true,
            notices: Vec::new(),
        }
    }
}

/// Mounts `wanted` and serves it until it is unmounted or the process is told to end. `ready`
/// is called once the mount can be used.
///
/// # Errors
/// Whatever keeps it from being mounted; that the kernel could not be served.
pub fn run(
    wanted: &Wanted,
    in_background: bool,
    ready: &mut dyn FnMut(Report) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let signals = block_signals()?;
    rustix::process::umask(rustix::fs::Mode::empty());
    raise_descriptor_limit();
    let place = match place::find(wanted)? {
        Found::Mounted(pong) => return ready(Report::of_mounted(pong)),
        Found::Free(place) => place,
    };
    let prepared = prepare(place)?;
    begin_log(&prepared, in_background)?;
    let mounted = Mounted::new(prepared, wanted.allow_other)?;
    let (ends, end) = mpsc::channel();
    watch_signals(signals, in_background, ends.clone())?;
    let serving = mounted.serve(ends)?;
    if let Err(unheard) = ready(serving.report()) {
        tracing::error!("{}", unheard.what);
        serving.abandon();
        return Err(unheard);
    }
    tell_systemd();
    serving.until(&end)
}

/// Before any thread is made, so that all of them leave the signals to the one that waits.
fn block_signals() -> Result<SigSet, Failure> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals
        .thread_block()
        .map_err(|e| Failure::io("blocking signals", &e.into()))?;
    Ok(signals)
}

/// Directories are held open as far as the limit allows; a low one works, too.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

fn begin_log(prepared: &Prepared, in_background: bool) -> Result<(), Failure> {
    if in_background {
        let log = prepared.log.try_clone();
        super::log::to_file(log.map_err(|e| Failure::io("opening the log", &e))?);
    } else {
        super::log::to_stderr();
    }
    Ok(())
}

fn watch_signals(
    signals: SigSet,
    in_background: bool,
    ends: mpsc::Sender<End>,
) -> Result<(), Failure> {
    let wait = move || loop {
        match signals.wait() {
            Ok(Signal::SIGHUP) if in_background => {}
            Ok(signal) => {
                // Nobody listens any more: the end has come already.
                let _ = ends.send(End::Signal(signal));
            }
            Err(error) => tracing::warn!(%error, "waiting for a signal"),
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    match thread.spawn(wait) {
        Ok(_) => Ok(()),
        Err(e) => Err(Failure::io("making the signal thread", &e)),
    }
}

/// A service of `Type=notify` counts as started once the mount can be used (sd_notify(3)).
fn tell_systemd() {
    let Some(address) = surroundings::variable("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = notify(&address) {
        tracing::warn!(%error, "telling systemd that the mount is ready");
    }
}

fn notify(address: &std::ffi::OsStr) -> std::io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address)?;
    Ok(())
}
