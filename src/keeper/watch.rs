//! Looking after the disk's room. Without anything staged it sleeps; with something, it looks
//! every minute; while the workspace is being written to, as often as a fast writer could fill
//! the disk in between.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::failure::Failure;
use crate::retention::{Room, make_room, rooms, writer_could_fill_in};
use crate::staging::Staging;
use crate::workspace::Workspace;

/// While nobody writes.
const AT_REST: Duration = Duration::from_secs(60);
/// Never more often than this.
const QUICKEST: Duration = Duration::from_millis(10);
/// Between two attempts that could not give anything up.
const IN_VAIN: Duration = Duration::from_millis(500);

/// Whoever makes a file on a disk that is short waits this long for room at most.
const BACK_PRESSURE: Duration = Duration::from_secs(2);
/// After a look that could give up nothing although somebody waited.
const HOPELESS: Duration = Duration::from_secs(10);
/// With more to spare than this nobody needs to be asked to wait.
const FAR_BYTES: u64 = 4 << 30;

#[derive(Debug, Default)]
struct Bell {
    rung: AtomicBool,
    stop: AtomicBool,
    /// Somebody is about to write and found the disk short.
    wanted: AtomicBool,
    /// Something was captured since the last look.
    captured: AtomicBool,
    /// Little is free, and something could be given up: writers have a look themselves.
    near: AtomicBool,
    /// What is to be kept free.
    keep_free_bytes: AtomicU64,
    /// Looks that have begun.
    looks: Mutex<u64>,
    changed: Condvar,
}

/// Wakes the watch.
#[derive(Clone)]
pub struct Nudge {
    bell: Arc<Bell>,
    staging: Arc<Staging>,
}

impl Nudge {
    /// The workspace is being written to, or something was staged.
    pub fn nudge(&self) {
        if !self.bell.rung.swap(true, Ordering::AcqRel) {
            let _looks = self.bell.looks.lock();
            self.bell.changed.notify_all();
        }
    }

    /// Something was captured: there is something to give up.
    pub fn captured(&self) {
        if !self.bell.captured.load(Ordering::Relaxed) {
            self.bell.captured.store(true, Ordering::Release);
        }
    }

    /// Something failed because the disk is full.
    pub fn full(&self) {
        let _looks = self.bell.looks.lock();
        self.bell.wanted.store(true, Ordering::Release);
        self.bell.changed.notify_all();
    }

    /// Somebody is about to write: where the disk is short and staging can give something up,
    /// returns once it has, or after a moment. Costs next to nothing elsewhere.
    pub fn wait_for_room(&self) {
        self.nudge();
        if !self.bell.is_worth_waiting() || !self.is_low() {
            return;
        }
        let until = Instant::now() + BACK_PRESSURE;
        let mut looks = self.bell.looks.lock();
        // The one that is under way may have begun before the disk was short; when the second
        // from now begins, the first has done its work.
        let enough = *looks + 2;
        while *looks < enough && self.bell.is_worth_waiting() && self.is_low() {
            self.bell.wanted.store(true, Ordering::Release);
            self.bell.changed.notify_all();
            if self.bell.changed.wait_until(&mut looks, until).timed_out() {
                return;
            }
        }
    }

    fn is_low(&self) -> bool {
        rustix::fs::fstatvfs(&self.staging.main().staging).is_ok_and(|stat| {
            let free = stat.f_bavail * stat.f_frsize;
            free < self.bell.keep_free_bytes.load(Ordering::Acquire)
        })
    }
}

pub(super) struct Watch {
    bell: Arc<Bell>,
    staging: Arc<Staging>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(ws: Arc<Workspace>) -> io::Result<Self> {
        let bell = Arc::new(Bell::default());
        let heard = bell.clone();
        let staging = ws.staging.clone();
        let thread = std::thread::Builder::new()
            .name("room".into())
            .spawn(move || watch(&ws, &heard))?;
        Ok(Self {
            bell,
            staging,
            thread: Some(thread),
        })
    }

    pub(super) fn nudge(&self) -> Nudge {
        Nudge {
            bell: self.bell.clone(),
            staging: self.staging.clone(),
        }
    }

    pub(super) fn stop(&mut self) {
        {
            let _looks = self.bell.looks.lock();
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
    let mut hopeless_until: Option<Instant> = None;
    let (mut fast, mut pause) = (Duration::ZERO, Duration::ZERO);
    loop {
        let rung = bell.wait(fast, pause);
        if bell.stop.load(Ordering::Acquire) {
            bell.publish(&[], true);
            return;
        }
        if bell.captured.swap(false, Ordering::AcqRel) {
            hopeless_until = None;
        }
        let wanted = bell.wanted.swap(false, Ordering::AcqRel);
        let seen = look(ws, wanted).unwrap_or_else(|error| {
            tracing::warn!(%error, "could not look after the disk's room");
            Seen {
                in_vain: true,
                ..Seen::default()
            }
        });
        if wanted {
            hopeless_until = seen.in_vain.then(|| Instant::now() + HOPELESS);
        }
        let hopeless = hopeless_until.is_some_and(|until| Instant::now() < until);
        bell.publish(&seen.rooms, hopeless);
        let free: Vec<u64> = seen.rooms.iter().map(|room| room.free_bytes).collect();
        let moves = rung || free != free_before;
        free_before = free;
        let least = if seen.in_vain { IN_VAIN } else { QUICKEST };
        fast = writer_could_fill_in(&seen.rooms).max(least);
        pause = match (seen.staged, moves) {
            (false, _) => Duration::MAX,
            (true, true) => fast,
            (true, false) => pause.saturating_mul(2).clamp(fast, AT_REST.max(fast)),
        };
    }
}

/// What a look found.
#[derive(Default)]
struct Seen {
    rooms: Vec<Room>,
    /// There is something that could be given up.
    staged: bool,
    /// Something is short, and nothing was given up.
    in_vain: bool,
}

/// Gives up what has to go.
fn look(ws: &Workspace, wanted: bool) -> Result<Seen, Failure> {
    let staged = ws.journal.totals()?.entries > 0 || is_anything_staged(ws);
    let before = rooms(ws)?;
    if !before.iter().any(Room::is_short) {
        return Ok(Seen {
            rooms: before,
            staged,
            in_vain: false,
        });
    }
    let lost = if staged {
        make_room(ws, wanted)?
    } else {
        Vec::new()
    };
    Ok(Seen {
        rooms: rooms(ws)?,
        staged,
        in_vain: lost.is_empty(),
    })
}

/// The journal hears of the newest entries a little later.
fn is_anything_staged(ws: &Workspace) -> bool {
    ws.staging.entries().is_ok_and(|ids| !ids.is_empty())
}

impl Bell {
    /// Tells writers how things stand.
    fn publish(&self, rooms: &[Room], hopeless: bool) {
        let main = rooms.first();
        let keep_free = main.map_or(0, |room| room.keep_free_bytes);
        let near = main
            .is_some_and(|room| room.free_bytes.saturating_sub(room.keep_free_bytes) < FAR_BYTES);
        self.keep_free_bytes.store(keep_free, Ordering::Release);
        self.near.store(near && !hopeless, Ordering::Release);
        let _looks = self.looks.lock();
        self.changed.notify_all();
    }

    /// Whether a look could make room for a writer.
    fn is_worth_waiting(&self) -> bool {
        !self.stop.load(Ordering::Acquire)
            && (self.near.load(Ordering::Acquire) || self.captured.load(Ordering::Acquire))
    }

    /// Waits for `least`, then for a nudge, but no longer than `most`; says whether there was a
    /// nudge. One that somebody waits for is heard at once; a workspace that is written to
    /// nudges for every file, and is heard once.
    fn wait(&self, least: Duration, most: Duration) -> bool {
        let rung = self.wait_quietly(least, most);
        *self.looks.lock() += 1;
        self.changed.notify_all();
        rung
    }

    fn wait_quietly(&self, least: Duration, most: Duration) -> bool {
        let begun = Instant::now();
        let (earliest, latest) = (begun.checked_add(least), begun.checked_add(most));
        let mut looks = self.looks.lock();
        loop {
            if self.stop.load(Ordering::Acquire) || self.wanted.load(Ordering::Acquire) {
                self.rung.store(false, Ordering::Release);
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
                Some(until) => drop(self.changed.wait_until(&mut looks, until)),
                None => self.changed.wait(&mut looks),
            }
        }
    }
}
