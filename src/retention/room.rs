//! Room on the disk: what staging may take, and what goes first when it is short.
//!
//! In this order, oldest first, never what is held:
//! 1. what is kept locally only, while staging is over its budget or too little is free;
//! 2. what is kept like removals and older than a day, likewise;
//! 3. what is younger, only when too little is free: while staging is over its budget, until
//!    writers have room again; and at the last, whatever it is, when the filesystem is all but
//!    full. What was removed a moment ago only goes when somebody wants to write there and then.
//!
//! Every entry that goes is announced.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{self, UnixNanos};
use crate::failure::Failure;
use crate::journal::{Event, Loss, LossReason};
use crate::record::{Bytes, Entry, Keep};
use crate::retention::purge;
use crate::seal;
use crate::staging::Area;
use crate::workspace::Workspace;

const DAY: Duration = Duration::from_secs(86_400);
/// Candidates read in one go.
const ROWS: u32 = 64;
/// Free room up to which even a day's removals go while staging is over its budget, so that a
/// small filesystem can be filled again: beyond it the part to be kept free is enough.
const ROOM_FOR_WRITERS_BYTES: u64 = 1 << 30;
/// A filesystem is all but full when less than one in so many is free: but not less than the
/// first, lest a small one is full before it is noticed, and not more than the second.
const ALL_BUT_FULL: u64 = 50;
const ALL_BUT_FULL_BYTES: (u64, u64) = (32 << 20, 1 << 30);
/// Whoever removed something by mistake gets this long to take it back, unless a writer needs
/// its room.
const GRACE: Duration = Duration::from_secs(60);
/// Bytes that a fast writer fills in a second.
const WRITER_BYTES_PER_S: u64 = 4 << 30;

/// How one filesystem of the workspace stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// Where in the workspace it is mounted; empty for the workspace's own.
    pub prefix: Bytes,
    /// Its size.
    pub total_bytes: u64,
    /// What is free for ordinary users.
    pub free_bytes: u64,
    /// What staging holds there; for other filesystems than the workspace's own it is not known.
    pub staged_bytes: Option<u64>,
    /// What staging may hold.
    pub budget_bytes: u64,
    /// What is to be kept free.
    pub keep_free_bytes: u64,
}

impl Room {
    fn over_budget(&self) -> bool {
        self.staged_bytes
            .is_some_and(|staged| staged > self.budget_bytes)
    }

    fn is_low(&self) -> bool {
        self.free_bytes < self.keep_free_bytes
    }

    fn is_all_but_full(&self) -> bool {
        let (least, most) = ALL_BUT_FULL_BYTES;
        let part = (self.total_bytes / ALL_BUT_FULL).min(most);
        self.free_bytes < part.max(least.min(self.keep_free_bytes))
    }

    /// Whether something has to go.
    pub fn is_short(&self) -> bool {
        self.over_budget() || self.is_low()
    }

    fn has_room_for_writers(&self) -> bool {
        self.free_bytes >= self.keep_free_bytes.max(ROOM_FOR_WRITERS_BYTES)
    }
}

/// How the filesystems of the workspace stand, its own first.
///
/// # Errors
/// When statvfs(2) fails or the journal can't be read.
pub fn rooms(ws: &Workspace) -> Result<Vec<Room>, Failure> {
    Ok(volumes(ws)?.into_iter().map(|v| v.room).collect())
}

/// How long until a fast writer could have used up half of what is free beyond what is to be
/// kept free: when to look again while somebody writes.
pub fn writer_could_fill_in(rooms: &[Room]) -> Duration {
    let spare = |room: &Room| room.free_bytes.saturating_sub(room.keep_free_bytes) / 2;
    let least = rooms.iter().map(spare).min().unwrap_or(u64::MAX);
    let millis = least / (WRITER_BYTES_PER_S / 1000);
    Duration::from_millis(millis.clamp(10, 60_000))
}

/// A filesystem with the areas on it.
struct Volume {
    room: Room,
    areas: Vec<Arc<Area>>,
}

fn volumes(ws: &Workspace) -> Result<Vec<Volume>, Failure> {
    let main = ws.staging.main().root_attr.dev;
    let mut by_dev: BTreeMap<(bool, u64), Vec<Arc<Area>>> = BTreeMap::new();
    for area in ws.staging.areas() {
        let dev = area.root_attr.dev;
        by_dev.entry((dev != main, dev)).or_default().push(area);
    }
    by_dev
        .into_iter()
        .map(|((other, _), areas)| {
            let room = room(ws, &areas[0], other)?;
            Ok(Volume { room, areas })
        })
        .collect()
}

fn room(ws: &Workspace, area: &Area, other: bool) -> Result<Room, Failure> {
    let stat = rustix::fs::fstatvfs(&area.staging)
        .map_err(|e| Failure::io("reading how much is free", &e.into()))?;
    let budget = ws.policy.budget();
    let total_bytes = stat.f_blocks * stat.f_frsize;
    let staged_bytes = if other {
        None
    } else {
        let used_bytes = stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize;
        Some(ws.journal.totals()?.disk_bytes.min(used_bytes))
    };
    Ok(Room {
        prefix: area.prefix.as_path().into(),
        total_bytes,
        free_bytes: stat.f_bavail * stat.f_frsize,
        staged_bytes,
        budget_bytes: budget.staging.of(total_bytes),
        keep_free_bytes: budget.free.of(total_bytes),
    })
}

/// Gives up what has to go, if anything, and says what went. `wanted`: somebody is about to
/// write and finds the disk short.
///
/// # Errors
/// When staging or the journal can't be read or written; what went until then is announced.
pub fn make_room(ws: &Workspace, wanted: bool) -> Result<Vec<Loss>, Failure> {
    let mut lost = Vec::new();
    for volume in volumes(ws)? {
        if volume.room.is_short() {
            Eviction::new(ws, volume)?.run(wanted, &mut lost)?;
        }
    }
    Ok(lost)
}

struct Eviction<'a> {
    ws: &'a Workspace,
    volume: Volume,
    now: UnixNanos,
    /// What ended entries gave back: some filesystems show it only later.
    freed_bytes: u64,
    free_at_first_bytes: u64,
}

impl<'a> Eviction<'a> {
    fn new(ws: &'a Workspace, volume: Volume) -> Result<Self, Failure> {
        measure(ws)?;
        let mut made = Self {
            ws,
            now: clock::now(),
            freed_bytes: 0,
            free_at_first_bytes: volume.room.free_bytes,
            volume,
        };
        made.look()?;
        Ok(made)
    }

    fn look(&mut self) -> Result<(), Failure> {
        let other = self.volume.room.staged_bytes.is_none();
        let mut room = room(self.ws, &self.volume.areas[0], other)?;
        let expected = self.free_at_first_bytes.saturating_add(self.freed_bytes);
        room.free_bytes = room.free_bytes.max(expected.min(room.total_bytes));
        self.volume.room = room;
        Ok(())
    }

    fn run(mut self, wanted: bool, lost: &mut Vec<Loss>) -> Result<(), Failure> {
        self.give_up_while(Keep::Local, lost, &|room, _| {
            room.is_short().then(|| why(room))
        })?;
        self.give_up_while(Keep::Hosted, lost, &|room, age| {
            (room.is_short() && age >= DAY).then(|| why(room))
        })?;
        if !self.volume.room.is_low() {
            return Ok(());
        }
        let full = self.volume.room.is_all_but_full();
        if full && wanted {
            // What fills the disk may be a single command that goes on and on.
            self.ws.close_operations();
            measure(self.ws)?;
            self.look()?;
        }
        let young = |room: &Room, age: Duration| {
            let for_writers = room.over_budget() && !room.has_room_for_writers();
            let needed = room.is_all_but_full() || for_writers;
            let may = age >= GRACE || (full && wanted);
            (needed && may).then_some(LossReason::DiskFull)
        };
        self.give_up_while(Keep::Local, lost, &young)?;
        self.give_up_while(Keep::Hosted, lost, &young)
    }

    /// Ends entries, oldest first, while `reason` finds one for the room and the entry's age.
    fn give_up_while(
        &mut self,
        keep: Keep,
        lost: &mut Vec<Loss>,
        reason: &dyn Fn(&Room, Duration) -> Option<LossReason>,
    ) -> Result<(), Failure> {
        let mut after = UnixNanos(i64::MIN);
        loop {
            let candidates = self.ws.journal.evictable(keep, after, ROWS)?;
            let Some(last) = candidates.last() else {
                return Ok(());
            };
            after = UnixNanos(last.removed_at.0.saturating_add(1));
            for entry in candidates {
                let age = self.now.since(entry.removed_at);
                let Some(reason) = reason(&self.volume.room, age) else {
                    return Ok(());
                };
                if self.helps(&entry)? {
                    lost.extend(self.give_up(&entry, reason)?);
                    self.look()?;
                }
            }
        }
    }

    /// Whether ending the entry gives anything back on this filesystem.
    fn helps(&self, entry: &Entry) -> Result<bool, Failure> {
        let told = |e: io::Error| Failure::io("reading staging", &e);
        let Some(dir) = self.ws.staging.entry(&entry.id).map_err(told)? else {
            return Ok(false);
        };
        let here = |area: &Arc<Area>| self.volume.areas.iter().any(|a| a.prefix == area.prefix);
        let on_it = dir.parts().iter().any(|(area, _)| here(area));
        let main = self.volume.room.staged_bytes.is_some();
        Ok(on_it && (!main || self.ws.journal.disk_bytes(&entry.id)? != Some(0)))
    }

    fn give_up(&mut self, entry: &Entry, reason: LossReason) -> Result<Option<Loss>, Failure> {
        let told = |e: io::Error| Failure::io(format!("discarding {}", entry.id), &e);
        let Some(_pin) = self.ws.staging.pin(&entry.id) else {
            return Ok(None);
        };
        let loss = Loss {
            at: self.now,
            entry: entry.id.clone(),
            path: entry.path.clone(),
            removed_at: entry.removed_at,
            retain_until: entry.retain_until,
            members: entry.members,
            bytes: entry.bytes,
            reason,
        };
        let outgoing = purge::take_out(&self.ws.staging, &entry.id).map_err(told)?;
        tracing::warn!(
            entry = %entry.id, path = %entry.path.display(), bytes = entry.bytes, ?reason,
            "given up before its time: the disk is short"
        );
        if let Err(full) = announce(self.ws, &loss) {
            // The journal may lie on the very disk that is full: first make room, then try again.
            tracing::warn!(error = %full, "the loss will be announced once there is room");
            self.freed_bytes += purge::discard(self.ws, outgoing).map_err(told)?;
            announce(self.ws, &loss)?;
        } else {
            self.freed_bytes += purge::discard(self.ws, outgoing).map_err(told)?;
        }
        Ok(Some(loss))
    }
}

fn why(room: &Room) -> LossReason {
    if room.is_low() {
        LossReason::LowDisk
    } else {
        LossReason::Budget
    }
}

fn announce(ws: &Workspace, loss: &Loss) -> Result<(), Failure> {
    ws.journal.batch(|rows| {
        rows.apply(&loss.entry, Event::Expire, |e| e.resident = false)?;
        rows.loss(loss)
    })
}

/// Measures what entries really occupy: a sparse file is shorter on the disk than it looks, and
/// one that is linked elsewhere gives nothing back.
fn measure(ws: &Workspace) -> Result<(), Failure> {
    let told = |e: io::Error| Failure::io("measuring staging", &e);
    loop {
        let unmeasured = ws.journal.unmeasured(ROWS)?;
        if unmeasured.is_empty() {
            return Ok(());
        }
        let mut measured = Vec::new();
        for entry in unmeasured {
            let bytes = match ws.staging.entry(&entry.id).map_err(told)? {
                Some(dir) => seal::occupied(ws.staging.main().root_attr.dev, &dir).map_err(told)?,
                None => 0,
            };
            measured.push((entry.id, bytes));
        }
        ws.journal.batch(|rows| {
            measured
                .iter()
                .try_for_each(|(id, bytes)| rows.set_disk_bytes(id, *bytes))
        })?;
    }
}
