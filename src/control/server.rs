//! The daemon's side of the socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode};

use crate::control::protocol::{Answer, Pong, Request, WireAnswer};
use crate::control::{execute, wire};
use crate::failure::{Failure, plain};
use crate::station::RuntimeDir;
use crate::workspace::Workspace;

/// Requests served at once.
const SERVED_AT_ONCE: usize = 32;
/// A client that has connected must have asked within this time.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// An answer must be taken at some pace.
const TAKE_TIMEOUT: Duration = Duration::from_secs(60);

/// What only the daemon can answer.
pub trait Host: Send + Sync + 'static {
    /// Its workspace.
    fn workspace(&self) -> &Workspace;
    /// Who it is.
    fn pong(&self) -> Pong;
    /// Whether a descriptor that a client sent leads into the daemon's own mount.
    fn owns(&self, fd: BorrowedFd<'_>) -> bool;
    /// Unmounts.
    ///
    /// # Errors
    /// `busy`, unless `lazily`.
    fn unmount(&self, lazily: bool) -> Result<(), Failure>;
}

/// The socket being served. Ends when it is stopped.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<Arc<UnixListener>>,
    threads: Vec<JoinHandle<()>>,
    in_hand: Arc<AtomicUsize>,
}

struct Desk<H> {
    host: Arc<H>,
    /// Held while a request changes something.
    changing: Mutex<()>,
    in_hand: Arc<AtomicUsize>,
}

impl Server {
    /// Binds the workspace's socket. `covered` says that the directory of the sockets lies in
    /// the workspace, where a mounted one can't be connected to: then it has a name besides.
    ///
    /// # Errors
    /// Those of bind(2).
    pub(crate) fn bind(
        runtime: &RuntimeDir,
        id: &crate::ids::WorkspaceId,
        covered: bool,
    ) -> io::Result<Self> {
        runtime.clear(id)?;
        let mut listeners = vec![UnixListener::bind(runtime.socket_path_by_fd(id))?];
        let name = format!("{id}.sock");
        // Until here the directory's mode protects it.
        rustix::fs::chmodat(
            runtime.fd(),
            name.as_str(),
            Mode::RUSR | Mode::WUSR,
            AtFlags::empty(),
        )?;
        if covered {
            listeners.push(UnixListener::bind_addr(&wire::abstract_address(id)?)?);
        }
        Ok(Self {
            listeners: listeners.into_iter().map(Arc::new).collect(),
            threads: Vec::new(),
            in_hand: Arc::default(),
        })
    }

    /// Begins to answer.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn serve<H: Host>(&mut self, host: Arc<H>) -> io::Result<()> {
        let desk = Arc::new(Desk {
            host,
            changing: Mutex::new(()),
            in_hand: self.in_hand.clone(),
        });
        for listener in &self.listeners {
            let (listener, desk) = (listener.clone(), desk.clone());
            let thread = std::thread::Builder::new()
                .name("control".into())
                .spawn(move || accept_all(&listener, &desk))?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Takes no more requests, and waits for those in hand, at most `patience`.
    pub fn stop(self, patience: Duration) {
        for listener in &self.listeners {
            if let Err(error) = rustix::net::shutdown(listener, rustix::net::Shutdown::Both) {
                tracing::warn!(%error, "the control socket could not be shut");
            }
        }
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("the control thread panicked");
            }
        }
        let pause = Duration::from_millis(10);
        let mut waited = Duration::ZERO;
        while self.in_hand.load(Ordering::Acquire) > 0 && waited < patience {
            std::thread::sleep(pause);
            waited += pause;
        }
    }
}

fn accept_all<H: Host>(listener: &UnixListener, desk: &Arc<Desk<H>>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => receive_client(stream, desk),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!(%error, "a request was not accepted");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn receive_client<H: Host>(stream: UnixStream, desk: &Arc<Desk<H>>) {
    if desk.in_hand.fetch_add(1, Ordering::AcqRel) >= SERVED_AT_ONCE {
        tracing::warn!("too many requests at once; one was turned away");
        desk.in_hand.fetch_sub(1, Ordering::AcqRel);
        return;
    }
    let own = desk.clone();
    let thread = std::thread::Builder::new()
        .name("request".into())
        .spawn(move || {
            if let Err(error) = own.answer(&stream) {
                tracing::warn!(error = %plain(&error), "a request came to nothing");
            }
            own.in_hand.fetch_sub(1, Ordering::AcqRel);
        });
    if let Err(error) = thread {
        tracing::warn!(%error, "no thread for a request");
        desk.in_hand.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The daemon would wait for itself.
fn in_own_mount() -> Failure {
    Failure::refused(
        "inside-workspace",
        "the directory lies in the mounted workspace under another name",
    )
    .state("nothing was changed")
    .next("name it by its path in the workspace")
}

impl<H: Host> Desk<H> {
    fn answer(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(ASK_TIMEOUT))?;
        stream.set_write_timeout(Some(TAKE_TIMEOUT))?;
        if !wire::peer_is_trusted(stream)? {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (body, fds) = match wire::receive(stream, wire::REQUEST_MAX_BYTES) {
            Ok(message) => message,
            // Somebody who only looked whether there is an answer.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e),
        };
        let answer = match serde_json::from_slice(&body) {
            Ok(request) => self.perform(request, fds),
            Err(e) => Err(Failure::failed("protocol", format!("unknown request: {e}"))
                .state("the daemon may be of another version than the command")
                .next("trash unmount DIR && trash mount DIR")),
        };
        let (result, fds): (WireAnswer, _) = match answer {
            Ok(answer) => (Ok(answer.value), answer.fds),
            Err(failure) => (Err(failure), Vec::new()),
        };
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        wire::send(stream, &serde_json::to_vec(&result)?, &borrowed)
    }

    fn perform(&self, request: Request, fds: Vec<OwnedFd>) -> Result<Answer, Failure> {
        match request {
            Request::Ping => Answer::of(self.host.pong()),
            Request::Unmount { lazily } => {
                self.host.unmount(lazily)?;
                Ok(Answer::default())
            }
            request => {
                if fds.iter().any(|fd| self.host.owns(fd.as_fd())) {
                    return Err(in_own_mount());
                }
                let _alone = request.changes().then(|| self.changing.lock());
                let work = || execute(self.host.workspace(), request, fds);
                std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
                    Err(
                        Failure::failed("internal", "the daemon failed at this request")
                            .state("its log says where; the workspace stays mounted")
                            .next("trash doctor"),
                    )
                })
            }
        }
    }
}
