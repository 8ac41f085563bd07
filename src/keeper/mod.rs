//! The keeper: a thread behind the captures that seals what they closed, tells the journal, and
//! ends what has expired. It never holds a capture up.
//!
//! The disk is synced at most every few seconds, whatever the load, and before the journal names
//! what was sealed: after a power cut it never claims what staging has not. When somebody asks
//! for the journal ([`Keeper::sync`]) it is written at once and the disk follows.

mod hasher;
mod pace;
mod watch;

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::beneath;
use crate::capture::CaptureEvent;
use crate::clock;
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::journal::{Batch, State};
use crate::record::{Bytes, Entry};
use crate::retention::{expire, purge, versions};
use crate::seal::{self, Counts, Present, Sealed, Shape};
use crate::workspace::Workspace;

use pace::Pace;
pub use watch::Nudge;
use watch::Watch;

/// How long sealed entries wait for others before they are synced and written together.
const GATHER: Duration = Duration::from_secs(4);
/// So many waiting changes are enough.
const WAITING_MAX: usize = 4_096;
/// After a journal that could not be written.
const RETRY: Duration = Duration::from_secs(10);
/// Looks at expiry at the least this often, since the clock may jump.
const EXPIRY_LOOK_MAX: Duration = Duration::from_secs(3_600);

/// The threads that keep order behind the captures.
pub struct Keeper {
    events: Sender<CaptureEvent>,
    thread: Option<JoinHandle<()>>,
    watch: Watch,
    hasher: hasher::Hasher,
    pace: Arc<Pace>,
}

impl Keeper {
    /// Starts it. [`crate::reconcile::reconcile`] is to be done by then.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(ws: Arc<Workspace>) -> io::Result<Self> {
        let (events, receiver) = channel();
        let pace = Arc::new(Pace::default());
        let watch = Watch::start(ws.clone())?;
        let hasher = hasher::Hasher::start(ws.clone(), pace.clone())?;
        let mut work = Work {
            ws,
            waiting: Vec::new(),
            waiting_since: None,
            nudge: watch.nudge(),
            hasher: hasher.waker(),
            pace: pace.clone(),
            look_at_expiry: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("keeper".into())
            .spawn(move || work.run(&receiver))?;
        Ok(Self {
            events,
            thread: Some(thread),
            watch,
            hasher,
            pace,
        })
    }

    /// Where captures tell what they did.
    pub fn events(&self) -> Sender<CaptureEvent> {
        self.events.clone()
    }

    /// For whoever sees that the workspace is being written to, or that the disk is full: the
    /// disk's room is looked after more closely for a while. Costs next to nothing.
    pub fn nudge(&self) -> Nudge {
        self.watch.nudge()
    }

    /// Returns when everything that was sent before is in the journal.
    pub fn sync(&self) {
        let (done, wait) = channel();
        if self.events.send(CaptureEvent::Sync(done)).is_ok() {
            // An error means that the thread has ended, and it wrote everything before.
            let _ = wait.recv();
        }
    }

    /// Writes what there is and ends the threads.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.pace.stop();
        self.hasher.stop();
        self.watch.stop();
        let Some(thread) = self.thread.take() else {
            return;
        };
        if self.events.send(CaptureEvent::Stop).is_err() || thread.join().is_err() {
            tracing::error!("the keeper had ended early; reconciliation makes it good");
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the journal is to be told.
enum Change {
    Opened(Box<Entry>),
    /// Over, but not sealed: a file in it is still open for writing.
    Waiting(Box<Entry>),
    Sealed(Box<Shape>),
    Emptied(EntryId),
    Deleted {
        path: Bytes,
        rule: String,
    },
}

struct Work {
    ws: Arc<Workspace>,
    waiting: Vec<Change>,
    waiting_since: Option<Instant>,
    nudge: Nudge,
    hasher: hasher::Waker,
    pace: Arc<Pace>,
    look_at_expiry: Instant,
}

impl Work {
    fn run(&mut self, events: &Receiver<CaptureEvent>) {
        loop {
            let now = Instant::now();
            let next = self.waiting_since.map_or(self.look_at_expiry, |since| {
                self.look_at_expiry.min(since + GATHER)
            });
            match events.recv_timeout(next.saturating_duration_since(now)) {
                Ok(CaptureEvent::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let due = self
                .waiting_since
                .is_some_and(|since| since.elapsed() >= GATHER);
            if due || self.waiting.len() >= WAITING_MAX {
                self.write(true);
            }
            if Instant::now() >= self.look_at_expiry {
                self.expire();
            }
        }
        self.write(true);
    }

    fn take(&mut self, event: CaptureEvent) {
        self.pace.busy();
        match event {
            CaptureEvent::Opened(op) => {
                let entry = seal::open_entry(&self.ws, &op);
                self.wait(Change::Opened(Box::new(entry)));
            }
            CaptureEvent::Closed {
                entry,
                members,
                bytes,
            } => {
                let counts = Counts { members, bytes };
                match self.seal(&entry, counts) {
                    Ok(change) => self.wait(change),
                    Err(error) => {
                        tracing::error!(%entry, %error, "could not be sealed; it will be at the next start");
                    }
                }
                self.nudge.nudge();
            }
            CaptureEvent::Waiting {
                entry,
                members,
                bytes,
            } => match self.describe(&entry, Counts { members, bytes }) {
                Ok(Some(change)) => self.wait(change),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%entry, %error, "what it holds is told when it is sealed")
                }
            },
            CaptureEvent::DeletedOutright { path, rule } => {
                tracing::info!(path = %path.display(), %rule, "deleted outright, as the policy says");
                self.wait(Change::Deleted {
                    path: path.into(),
                    rule,
                });
            }
            CaptureEvent::Sync(done) => {
                self.write(false);
                // Whoever asked may have given up waiting.
                let _ = done.send(());
            }
            CaptureEvent::Seen(done) => {
                // Whoever asked may have given up waiting.
                let _ = done.send(());
            }
            CaptureEvent::Stop => {}
        }
    }

    fn wait(&mut self, change: Change) {
        self.waiting.push(change);
        self.waiting_since.get_or_insert_with(Instant::now);
    }

    /// An entry that waits for a writer can be found by what it holds, and undone, all the same.
    fn describe(&self, id: &EntryId, counts: Counts) -> io::Result<Option<Change>> {
        let Some(dir) = self.ws.staging.entry(id)? else {
            return Ok(None);
        };
        let sealed = seal::seal(&self.ws, &dir, Some(counts), Present::Compared)?;
        let Sealed::Whole(shape) = sealed else {
            return Ok(None);
        };
        let mut entry = shape.entry;
        entry.state = State::Open;
        Ok(Some(Change::Waiting(Box::new(entry))))
    }

    fn seal(&self, id: &EntryId, counts: Counts) -> io::Result<Change> {
        let Some(dir) = self.ws.staging.entry(id)? else {
            return Ok(Change::Emptied(id.clone()));
        };
        Ok(match seal::seal_over(&self.ws, &dir, counts)? {
            Sealed::Whole(shape) => Change::Sealed(shape),
            Sealed::Empty => {
                if dir.foreign()?.is_empty() {
                    purge::clear(&self.ws, id)?;
                }
                Change::Emptied(id.clone())
            }
        })
    }

    /// Tells the journal what waits; `disk_first`: after syncing what it speaks of.
    fn write(&mut self, disk_first: bool) {
        if self.waiting.is_empty() {
            return;
        }
        let sealed = self.waiting.iter().any(|c| matches!(c, Change::Sealed(_)));
        if disk_first && sealed {
            sync_areas(&self.ws);
        }
        let written = self.ws.journal.batch(|rows| {
            self.waiting
                .iter()
                .try_for_each(|change| tell(rows, change))
        });
        if let Err(error) = written {
            tracing::error!(%error, "the journal lags behind; staging has everything");
            // Nothing is lost by waiting: try again later.
            self.waiting_since = Some(Instant::now() + RETRY);
            return;
        }
        self.waiting_since = None;
        let changes = std::mem::take(&mut self.waiting);
        self.after(&changes);
    }

    /// What follows from entries that are in the journal now.
    fn after(&mut self, changes: &[Change]) {
        let sealed = || {
            changes.iter().filter_map(|change| match change {
                Change::Sealed(shape) => Some(shape),
                _ => None,
            })
        };
        if let Some(first) = sealed().map(|shape| shape.next_expiry).min() {
            let due = Instant::now() + first.since(clock::now());
            self.look_at_expiry = self.look_at_expiry.min(due);
        }
        let mut paths: Vec<Bytes> = sealed()
            .flat_map(|s| s.overwritten.iter().cloned())
            .collect();
        paths.sort();
        paths.dedup();
        if let Err(error) = versions::enforce(&self.ws, &paths) {
            tracing::warn!(%error, "older versions could not be ended now");
        }
        self.hasher.wake();
    }

    fn expire(&mut self) {
        let now = clock::now();
        let next = expire(&self.ws, now)
            .inspect_err(|error| tracing::warn!(%error, "could not expire entries now"))
            .and_then(|_| self.ws.journal.next_expiry());
        let wait = match next {
            Ok(Some(at)) => at
                .since(clock::now())
                .clamp(Duration::from_secs(1), EXPIRY_LOOK_MAX),
            // Nothing is kept, or all of it is held.
            Ok(None) | Err(_) => EXPIRY_LOOK_MAX,
        };
        self.look_at_expiry = Instant::now() + wait;
    }
}

fn tell(rows: &Batch<'_>, change: &Change) -> Result<(), Failure> {
    match change {
        Change::Opened(entry) => match rows.entry(&entry.id)? {
            // It was sealed in the meantime by a verb that asked.
            Some(_) => Ok(()),
            None => rows.put(entry),
        },
        Change::Waiting(entry) => match rows.entry(&entry.id)? {
            Some(known) if known.state != State::Open => Ok(()),
            _ => rows.put(entry),
        },
        Change::Sealed(shape) => match rows.entry(&shape.entry.id)? {
            Some(known) if known.state != State::Open => Ok(()),
            _ => seal::record(rows, shape),
        },
        Change::Emptied(id) => match rows.entry(id)? {
            Some(known) if known.state == State::Open => rows.forget(id),
            _ => Ok(()),
        },
        Change::Deleted { path, rule } => rows.deleted_outright(path, rule),
    }
}

/// Has the filesystems of all areas write what they hold.
fn sync_areas(ws: &Workspace) {
    for area in ws.staging.areas() {
        let synced = beneath::open_dir_readable(area.staging.as_fd(), c".")
            .and_then(|dir| rustix::fs::syncfs(&dir));
        if let Err(error) = synced {
            tracing::error!(%error, "the disk refused to sync; a power cut may undo what was sealed");
        }
    }
}

#[cfg(test)]
mod tests;
