//! Hashing at rest: each sealed entry gets its manifest, at idle priority, when the workspace is
//! quiet.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::clock;
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::keeper::pace::Pace;
use crate::record::Entry;
use crate::seal::manifest;
use crate::workspace::Workspace;

/// What is kept no longer than this is not worth reading.
const NOT_WORTH_IT: Duration = Duration::from_secs(3_600);
const ROWS: u32 = 64;
/// When to look again at an entry that could not be hashed.
const LATER: Duration = Duration::from_secs(600);

/// Entries that could not be hashed, and when.
type GivenUp = HashMap<EntryId, Instant>;

/// Tells the hasher that there may be something to do.
#[derive(Clone, Debug)]
pub(super) struct Waker(Sender<()>);

impl Waker {
    pub(super) fn wake(&self) {
        // It has ended only when the keeper ends, too.
        let _ = self.0.send(());
    }
}

pub(super) struct Hasher {
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Hasher {
    pub(super) fn start(ws: Arc<Workspace>, pace: Arc<Pace>) -> io::Result<Self> {
        let (wake, woken) = channel();
        let thread = std::thread::Builder::new()
            .name("hasher".into())
            .spawn(move || run(&ws, &pace, &woken))?;
        let made = Self {
            wake: Some(wake),
            thread: Some(thread),
        };
        made.waker().wake();
        Ok(made)
    }

    pub(super) fn waker(&self) -> Waker {
        match &self.wake {
            Some(wake) => Waker(wake.clone()),
            None => Waker(channel().0),
        }
    }

    pub(super) fn stop(&mut self) {
        if let Some(wake) = self.wake.take() {
            Waker(wake).wake();
        }
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the hasher had ended early");
        }
    }
}

fn run(ws: &Workspace, pace: &Pace, woken: &Receiver<()>) {
    be_idle();
    let mut given_up = GivenUp::new();
    while woken.recv().is_ok() {
        while woken.try_recv().is_ok() {}
        given_up.retain(|_, since| since.elapsed() < LATER);
        match hash_all(ws, pace, &mut given_up) {
            Ok(()) => {}
            Err(_) if pace.is_stopped() => return,
            Err(error) => tracing::warn!(%error, "hashing goes on later"),
        }
        if pace.is_stopped() {
            return;
        }
    }
}

/// Lets everybody else go first, as far as the system allows.
fn be_idle() {
    if let Err(error) = rustix::process::setpriority_process(None, 19) {
        tracing::debug!(%error, "the hasher keeps its processor priority");
    }
    if let Err(error) = trashfs_mount::idle_io_priority() {
        tracing::debug!(%error, "the hasher keeps its I/O priority");
    }
}

fn hash_all(ws: &Workspace, pace: &Pace, given_up: &mut GivenUp) -> Result<(), Failure> {
    loop {
        pace.wait_for_quiet()
            .map_err(|e| Failure::io("hashing", &e))?;
        let beyond = clock::now().plus(NOT_WORTH_IT);
        let rows = ROWS + u32::try_from(given_up.len()).unwrap_or(0);
        let mut todo = ws.journal.unhashed(beyond, rows)?;
        todo.retain(|entry| !given_up.contains_key(&entry.id));
        if todo.is_empty() {
            return Ok(());
        }
        let mut hashed = Vec::new();
        for entry in todo {
            match hash_one(ws, pace, &entry) {
                Ok(true) => hashed.push(entry),
                Err(_) if pace.is_stopped() => break,
                other => {
                    if let Err(error) = other {
                        tracing::warn!(entry = %entry.id, %error, "could not be hashed now");
                    }
                    given_up.insert(entry.id, Instant::now());
                }
            }
        }
        record(ws, &hashed)?;
    }
}

/// `false` when the entry went meanwhile.
fn hash_one(ws: &Workspace, pace: &Pace, entry: &Entry) -> io::Result<bool> {
    let Some(dir) = ws.staging.entry(&entry.id)? else {
        return Ok(false);
    };
    manifest::write(&dir, &mut || pace.wait_for_quiet())?;
    Ok(true)
}

/// Notes which entries have their manifests, once these are on the disk.
fn record(ws: &Workspace, hashed: &[Entry]) -> Result<(), Failure> {
    if hashed.is_empty() {
        return Ok(());
    }
    super::sync_areas(ws);
    ws.journal.batch(|rows| {
        for entry in hashed {
            let Some(mut now) = rows.entry(&entry.id)? else {
                continue;
            };
            if now.state == entry.state && now.roots == entry.roots {
                now.hashed = true;
                rows.put(&now)?;
            }
        }
        Ok(())
    })
}
