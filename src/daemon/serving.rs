//! A workspace that is mounted: what runs behind it, and how it is taken down.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use parking_lot::Mutex;
use trashfs_mount::mountinfo;
use trashfs_mount::session::{self, Mount, MountOptions, Pending, SessionError};
use trashfs_mount::{Overlay, OverlayOptions, Running, ServeOptions, View, serve};

use crate::capture::Capture;
use crate::clock;
use crate::control::{Host, Pong, Server};
use crate::daemon::Report;
use crate::daemon::attentive::Attentive;
use crate::daemon::prepare::Prepared;
use crate::failure::{Failure, shell_word};
use crate::keeper::Keeper;
use crate::reconcile::reconcile;
use crate::station::MountRecord;
use crate::workspace::{Live, Workspace};

/// Requests in hand may take this long to end when the daemon does.
const LAST_REQUESTS: Duration = Duration::from_secs(10);
/// The kernel's last words after an unmount.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Gone once the daemon ends.
type SharedKeeper = Arc<Mutex<Option<Keeper>>>;

/// Why the daemon comes to its end.
#[derive(Debug)]
pub(super) enum End {
    /// The mount is gone.
    Unmounted(io::Result<()>),
    /// It was taken out of the tree while it was in use: those users are not waited for.
    Detached,
    /// Somebody wants it to end.
    Signal(Signal),
}

/// Mounted and captured from, but not yet open to requests.
pub(super) struct Mounted {
    prepared: Prepared,
    capture: Arc<Capture>,
    keeper: SharedKeeper,
    server: Server,
    running: Running,
    /// Unmounted again, should anything fail until it is served.
    mount: Pending,
}

impl Mounted {
    /// Captures, then mounts, then answers the kernel.
    pub(super) fn new(prepared: Prepared, allow_other: bool) -> Result<Self, Failure> {
        let workspace = &prepared.workspace;
        reconcile(workspace)?;
        let keeper = Keeper::start(workspace.clone())
            .map_err(|e| Failure::io("making the keeper's threads", &e))?;
        let capture = Capture::new(
            workspace.staging.clone(),
            workspace.id.clone(),
            workspace.policy.clone(),
            keeper.events(),
        )
        .map_err(|e| Failure::failed("capture", e.to_string()).state("nothing was mounted"))?;
        let server = Server::bind(&prepared.runtime, &workspace.id, prepared.covered)
            .map_err(|e| socket_failure(&prepared, &e))?;
        let attentive = Attentive::new(capture.clone(), keeper.nudge());
        let overlay = overlay(&prepared, attentive)?;
        let as_root = rustix::process::geteuid().is_root();
        let options = MountOptions {
            allow_other: allow_other || as_root,
            source_name: prepared.place.source.clone().into_os_string(),
        };
        let target = prepared.place.target.as_fd();
        let (device, pending) = session::mount(target, &prepared.place.path, &options)
            .map_err(|e| mount_failure(&prepared, &e))?;
        let options = ServeOptions {
            passthrough: as_root,
            ..ServeOptions::default()
        };
        let running = serve(device, overlay, &options)
            .map_err(|e| Failure::io("answering the kernel", &e).state("nothing was mounted"))?;
        Ok(Self {
            prepared,
            capture,
            keeper: Arc::new(Mutex::new(Some(keeper))),
            server,
            running,
            mount: pending,
        })
    }

    /// Opens the door to requests and enters the mount into the register.
    pub(super) fn serve(mut self, ends: Sender<End>) -> Result<Serving, Failure> {
        let failed = |e: io::Error| Failure::io("making the daemon's threads", &e);
        let pid = rustix::process::getpid()
            .as_raw_nonzero()
            .get()
            .cast_unsigned();
        let record = MountRecord {
            pid,
            mount_id: self.mount.mount().id,
            since: clock::now(),
        };
        let live = LiveMount {
            capture: self.capture.clone(),
            keeper: self.keeper.clone(),
            view: self.running.view(),
        };
        if self.prepared.workspace.live.set(Arc::new(live)).is_err() {
            return Err(Failure::failed(
                "internal",
                "the workspace was mounted before",
            ));
        }
        let desk = Desk {
            workspace: self.prepared.workspace.clone(),
            mount: self.mount.mount().clone(),
            pong: pong(&self.prepared, &record).map_err(failed)?,
            ends: ends.clone(),
        };
        self.prepared.registered.mount = Some(record);
        enter(&self.prepared);
        self.server.serve(Arc::new(desk)).map_err(failed)?;
        let running = self.running;
        std::thread::Builder::new()
            .name("serving".into())
            .spawn(move || ends.send(End::Unmounted(running.join())))
            .map_err(failed)?;
        let mount = self.mount.keep();
        let path = mount.path.display();
        tracing::info!(%path, version = env!("CARGO_PKG_VERSION"), "mounted");
        Ok(Serving {
            prepared: self.prepared,
            capture: self.capture,
            keeper: self.keeper,
            server: self.server,
            mount,
            pid,
        })
    }
}

/// Who serves the mount is written down for people and for other commands, which find the
/// daemon without it: on a full disk it is left out.
fn enter(prepared: &Prepared) {
    let record = &prepared.registered;
    for written in [prepared.register.put(record), prepared.runtime.put(record)] {
        if let Err(failure) = written {
            tracing::warn!("{}", failure.what);
        }
    }
}

fn overlay(
    prepared: &Prepared,
    interceptor: Attentive,
) -> Result<Arc<Overlay<Attentive>>, Failure> {
    let failed = |e: io::Error| Failure::io("opening the workspace", &e);
    let root = prepared.place.root.try_clone().map_err(failed)?;
    let overlay =
        Overlay::new(root, Arc::new(interceptor), OverlayOptions::default()).map_err(failed)?;
    Ok(Arc::new(overlay))
}

fn pong(prepared: &Prepared, record: &MountRecord) -> io::Result<Pong> {
    Ok(Pong {
        workspace: prepared.workspace.id.clone(),
        path: prepared.registered.path.clone(),
        source: prepared.registered.source.clone(),
        backing: prepared.place.backing()?,
        pid: record.pid,
        mount_id: record.mount_id,
        since: record.since,
        version: env!("CARGO_PKG_VERSION").into(),
    })
}

fn socket_failure(prepared: &Prepared, error: &io::Error) -> Failure {
    let path = prepared.runtime.socket_path(&prepared.workspace.id);
    Failure::io(
        format!("making the control socket {}", path.display()),
        error,
    )
    .state("nothing was mounted")
}

fn mount_failure(prepared: &Prepared, error: &SessionError) -> Failure {
    let path = prepared.place.path.display();
    let (code, next) = match error {
        SessionError::NoFuse => ("no-fuse", "modprobe fuse".to_owned()),
        SessionError::FuseDenied(_) => ("no-fuse", "ls -l /dev/fuse".to_owned()),
        SessionError::NoFusermount => ("no-fuse", "apt-get install fuse3".to_owned()),
        SessionError::Fusermount(text) if text.contains("user_allow_other") => (
            "no-permission",
            "add the line user_allow_other to /etc/fuse.conf, or leave out --allow-other"
                .to_owned(),
        ),
        SessionError::Fusermount(_) => ("no-permission", "trash doctor".to_owned()),
        _ => ("mount", "trash doctor".to_owned()),
    };
    Failure::failed(code, format!("mounting {path}: {error}"))
        .state("nothing was mounted")
        .next(next)
}

/// A mounted workspace that takes requests.
pub(super) struct Serving {
    prepared: Prepared,
    capture: Arc<Capture>,
    keeper: SharedKeeper,
    server: Server,
    mount: Mount,
    pid: u32,
}

impl Serving {
    /// What there is to say about the start.
    pub(super) fn report(&self) -> Report {
        let mut notices = self.prepared.place.notices.clone();
        if let Some(set_up) = &self.prepared.set_up {
            notices.push(format!(
                "this station was set up with the local profile as {}",
                set_up.station.station
            ));
        }
        Report {
            workspace: self.prepared.workspace.id.clone(),
            path: self.mount.path.as_path().into(),
            source: self.prepared.place.source.as_path().into(),
            pid: self.pid,
            already_mounted: false,
            notices,
        }
    }

    /// Serves until the end comes, and takes everything down.
    pub(super) fn until(self, end: &Receiver<End>) -> Result<(), Failure> {
        let served = match end.recv() {
            Ok(End::Unmounted(served)) => served,
            Ok(End::Signal(signal)) => {
                tracing::info!(%signal, "told to end");
                self.unmount_anyway();
                last_words(end)
            }
            Ok(End::Detached) => last_words(end),
            Err(_) => Err(io::Error::other("the serving thread is gone")),
        };
        if let Err(error) = &served {
            tracing::error!(%error, "the kernel could not be answered any more");
            self.unmount_anyway();
        }
        self.take_down();
        served.map_err(|e| Failure::io("serving the mount", &e).next("trash doctor"))
    }

    /// Whoever wanted the mount is gone: it is taken down again.
    pub(super) fn abandon(self) {
        self.unmount_anyway();
        self.take_down();
    }

    fn unmount_anyway(&self) {
        let politely = self.mount.unmount(false);
        let unmounted = match politely {
            Err(SessionError::Busy) => {
                tracing::warn!("the mount is in use: it is detached, and its users lose it");
                self.mount.unmount(true)
            }
            other => other,
        };
        match unmounted {
            Ok(()) | Err(SessionError::AnotherMount) => {}
            Err(error) => tracing::error!(%error, "unmounting"),
        }
    }

    fn take_down(mut self) {
        self.server.stop(LAST_REQUESTS);
        self.capture.close_all();
        // The lock is free again before it stops: its own threads may be asking for it.
        let keeper = self.keeper.lock().take();
        if let Some(keeper) = keeper {
            keeper.stop();
        }
        if let Err(error) = self.prepared.runtime.clear(&self.prepared.workspace.id) {
            tracing::warn!(%error, "clearing the runtime directory");
        }
        self.prepared.registered.mount = None;
        if let Err(failure) = self.prepared.register.put(&self.prepared.registered) {
            tracing::warn!("{}", failure.what);
        }
        tracing::info!("ended");
    }
}

/// The kernel's end, if it comes soon: it does not while a detached mount is in use.
fn last_words(end: &Receiver<End>) -> io::Result<()> {
    let until = Instant::now() + LAST_WORDS;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        match end.recv_timeout(left) {
            Ok(End::Unmounted(served)) => return served,
            // Told again.
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Ok(())
}

/// The daemon at its control socket.
struct Desk {
    workspace: Arc<Workspace>,
    mount: Mount,
    pong: Pong,
    ends: Sender<End>,
}

impl Host for Desk {
    fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    fn pong(&self) -> Pong {
        self.pong.clone()
    }

    fn owns(&self, fd: BorrowedFd<'_>) -> bool {
        mountinfo::is_on(fd, self.mount.id).unwrap_or_else(|error| {
            tracing::warn!(%error, "where a descriptor leads is not known");
            true
        })
    }

    fn unmount(&self, lazily: bool) -> Result<(), Failure> {
        let result = self.mount.unmount(lazily);
        // Somebody has detached it by hand, and its last users are still there.
        let detached = matches!(result, Err(SessionError::AnotherMount))
            && self.mount.exists().is_ok_and(|exists| !exists);
        if !detached {
            unmount_failure(&self.mount, result)?;
        }
        if lazily || detached {
            // Nobody listens any more: the end has come already.
            let _ = self.ends.send(End::Detached);
        }
        Ok(())
    }
}

/// Says why a mount could not be taken away.
pub(crate) fn unmount_failure(
    mount: &Mount,
    result: Result<(), SessionError>,
) -> Result<(), Failure> {
    let path = mount.path.display();
    result.map_err(|error| match error {
        SessionError::Busy => Failure::refused("busy", format!("{path} is in use"))
            .state("it stays mounted")
            .next(format!("trash unmount --lazy {}", shell_word(&path))),
        error => Failure::failed("unmount", format!("unmounting {path}: {error}"))
            .state("it stays as it is")
            .next("trash doctor"),
    })
}

struct LiveMount {
    capture: Arc<Capture>,
    keeper: SharedKeeper,
    view: View,
}

impl LiveMount {
    fn sync(&self) {
        if let Some(keeper) = &*self.keeper.lock() {
            keeper.sync();
        }
    }
}

impl Live for LiveMount {
    fn close_operations(&self) {
        self.capture.close_all();
        self.sync();
    }

    fn close_ended_operations(&self) {
        self.capture.tick();
        self.sync();
    }

    fn name_changed(&self, dir: &std::path::Path, name: &std::ffi::OsStr) {
        self.view.name_changed(dir, name);
    }

    fn has_staged_links(&self) -> bool {
        self.capture.has_staged_links()
    }

    fn staged_links_changed(&self, dev: u64, ino: u64, by: i32) {
        self.capture.staged_links_changed(dev, ino, by);
    }
}
