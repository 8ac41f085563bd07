//! Looking after the disk's room. Without anything staged it sleeps; with something, it looks
//! every minute; while the workspace is being written to, as often as a fast writer could fill
//! the disk in between.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::failure::Failure;
use crate::retention::{Room, make_room, rooms, writer_could_fill_in};
use crate::workspace::Workspace;

/// While nobody writes.
const AT_REST: Duration = Duration::from_secs(60);
/// Never more often than this.
const QUICKEST: Duration = Duration::from_millis(10);
/// Between two attempts that could not give anything up.
const IN_VAIN: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct Bell {
    rung: AtomicBool,
    stop: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

/// Wakes the watch.
#[derive(Clone, Debug)]
pub struct Nudge(Arc<Bell>);

impl Nudge {
    /// The workspace is being written to, or something was staged.
    pub fn nudge(&self) {
        if !self.0.rung.swap(true, Ordering::AcqRel) {
            let _guard = self.0.lock.lock();
            self.0.changed.notify_all();
        }
    }
}

pub(super) struct Watch {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(ws: Arc<Workspace>) -> io::Result<Self> {
        let bell = Arc::new(Bell::default());
        let heard = bell.clone();
        let thread = std::thread::Builder::new()
            .name("room".into())
            .spawn(move || watch(&ws, &heard))?;
        Ok(Self {
            bell,
            thread: Some(thread),
        })
    }

    pub(super) fn nudge(&self) -> Nudge {
        Nudge(self.bell.clone())
    }

    pub(super) fn stop(&mut self) {
        {
            let _guard = self.bell.lock.lock();
            self.bell.stop.store(true, Ordering::Release);
            self.bell.changed.notify_all();
        }
        if self
            .thread
            .take()
            .is_some_and(|thread| thread.join().is_err())
        {
            tracing::error!("the watch over the disk's room had ended early");
        }
    }
}

fn watch(ws: &Workspace, bell: &Bell) {
    let mut free_before: Vec<u64> = Vec::new();
    let (mut fast, mut pause) = (Duration::ZERO, Duration::ZERO);
    loop {
        let rung = bell.wait(fast, pause);
        if bell.stop.load(Ordering::Acquire) {
            return;
        }
        let (found, in_vain) = match look(ws) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "could not look after the disk's room");
                (Vec::new(), true)
            }
        };
        let free: Vec<u64> = found.iter().map(|room| room.free_bytes).collect();
        let moves = rung || free != free_before;
        free_before = free;
        let least = if in_vain { IN_VAIN } else { Duration::ZERO };
        fast = writer_could_fill_in(&found).max(least);
        pause = if found.is_empty() && !in_vain {
            fast = QUICKEST;
            Duration::MAX
        } else if moves {
            fast
        } else {
            pause.saturating_mul(2).clamp(fast, AT_REST.max(fast))
        };
    }
}

/// Gives up what has to go. Answers how the filesystems stand (nothing when nothing is staged),
/// and whether something is short and nothing could be given up.
fn look(ws: &Workspace) -> Result<(Vec<Room>, bool), Failure> {
    if ws.journal.totals()?.entries == 0 {
        return Ok((Vec::new(), false));
    }
    let found = rooms(ws)?;
    if !found.iter().any(Room::is_short) {
        return Ok((found, false));
    }
    let lost = make_room(ws)?;
    Ok((rooms(ws)?, lost.is_empty()))
}

impl Bell {
    /// Waits for `least`, then for a nudge, but no longer than `most`; says whether there was a
    /// nudge. A workspace that is written to nudges for every file: it is heard once.
    fn wait(&self, least: Duration, most: Duration) -> bool {
        let begun = Instant::now();
        let (earliest, latest) = (begun.checked_add(least), begun.checked_add(most));
        let mut guard = self.lock.lock();
        loop {
            if self.stop.load(Ordering::Acquire) {
                return true;
            }
            let now = Instant::now();
            let resting = earliest.is_some_and(|at| now < at);
            if !resting {
                if self.rung.swap(false, Ordering::AcqRel) {
                    return true;
                }
                if latest.is_some_and(|at| now >= at) {
                    return false;
                }
            }
            match if resting { earliest } else { latest } {
                Some(until) => drop(self.changed.wait_until(&mut guard, until)),
                None => self.changed.wait(&mut guard),
            }
        }
    }
}
