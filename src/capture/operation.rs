//! Open operations: one for each command that destroys something, with at most one entry for
//! each way of keeping.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use trashfs_mount::{NodeId, Timestamp};

use super::attribution;
use super::process::{self, Group, Process};
use super::slots::Slots;
use crate::clock::{self, UnixNanos};
use crate::ids::{EntryId, OperationId, WorkspaceId};
use crate::record::{self, Attribution, Keep, OP_FORMAT, OpRecord};
use crate::staging::TreeName;

/// An operation in which nothing happened for so long is over.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// Directories whose times an operation remembers.
const TIMES_MAX: usize = 1 << 18;

/// Times of a directory before an operation first took something out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirTimes {
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    /// Tells the directory from a later one of the same number.
    pub(super) btime: Option<Timestamp>,
}

/// One command's captures.
pub(super) struct Operation {
    group: Group,
    leader_start: Option<u64>,
    id: OperationId,
    workspace: WorkspaceId,
    started: UnixNanos,
    who: (record::Process, Attribution),
    uses: Uses,
    /// Its entries have been told of.
    finished: AtomicBool,
    last_used_ms: AtomicU64,
    hosted: OnceLock<Arc<OpenEntry>>,
    local: OnceLock<Arc<OpenEntry>>,
    times: Mutex<HashMap<NodeId, DirTimes>>,
    /// Which slots captures of the same path have taken.
    pub(super) slots: Slots,
}

impl Operation {
    fn new(process: &Process, workspace: WorkspaceId) -> Self {
        Self {
            group: process.group,
            leader_start: process.leader_start,
            id: OperationId::random(),
            workspace,
            started: clock::now(),
            who: attribution::read(process),
            uses: Uses::default(),
            finished: AtomicBool::new(false),
            last_used_ms: AtomicU64::new(0),
            hosted: OnceLock::new(),
            local: OnceLock::new(),
            times: Mutex::default(),
            slots: Slots::default(),
        }
    }

    /// Whether `process`, which has the same group number, belongs to the same command. The
    /// leader may have ended meanwhile; the number can't be given anew while the group lives.
    fn is_of(&self, process: &Process) -> bool {
        process.leader_start.is_none() || process.leader_start == self.leader_start
    }

    /// Whose it is.
    pub(super) fn group(&self) -> Group {
        self.group
    }

    /// Its entry kept in the way `keep`.
    pub(super) fn entry(&self, keep: Keep) -> &Arc<OpenEntry> {
        let cell = match keep {
            Keep::Hosted => &self.hosted,
            Keep::Local => &self.local,
        };
        cell.get_or_init(|| Arc::new(OpenEntry::new(self.record(keep))))
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<OpenEntry>> {
        self.hosted.get().into_iter().chain(self.local.get())
    }

    fn record(&self, keep: Keep) -> OpRecord {
        OpRecord {
            format: OP_FORMAT,
            entry: EntryId::random(),
            operation: self.id.clone(),
            workspace: self.workspace.clone(),
            keep,
            started: self.started,
            process: self.who.0.clone(),
            attribution: self.who.1.clone(),
            made_by: None,
        }
    }

    /// Remembers the times of a directory, unless it did already.
    pub(super) fn remember_times(&self, dir: NodeId, times: DirTimes) {
        let mut all = self.times.lock();
        match all.get(&dir) {
            Some(known) if known.btime == times.btime => {}
            None if all.len() >= TIMES_MAX => {}
            _ => {
                all.insert(dir, times);
            }
        }
    }

    /// Takes out what was remembered of a directory that is about to go.
    pub(super) fn take_times(&self, dir: NodeId, btime: Option<Timestamp>) -> Option<DirTimes> {
        self.times
            .lock()
            .remove(&dir)
            .filter(|times| times.btime == btime)
    }
}

/// One entry to which captures are still added.
pub(super) struct OpenEntry {
    /// Tells it from others of this run, cheaply.
    pub(super) number: u64,
    /// As written to `op.json`.
    pub(super) record: OpRecord,
    /// Whether the keeper knows of it.
    pub(super) announced: OnceLock<()>,
    members: AtomicU64,
    bytes: AtomicU64,
    writers: Mutex<Writers>,
    /// Removed directories whose mode is that of a container.
    pub(super) exceptions: Mutex<HashSet<(TreeName, PathBuf)>>,
    /// Held while its directory is made.
    pub(super) making: Mutex<()>,
}

static ENTRIES: AtomicU64 = AtomicU64::new(1);

#[derive(Default)]
struct Writers {
    nodes: HashSet<NodeId>,
    /// The operation is over: the last writer closes the entry.
    over: bool,
}

impl OpenEntry {
    fn new(record: OpRecord) -> Self {
        Self {
            number: ENTRIES.fetch_add(1, Ordering::Relaxed),
            exceptions: Mutex::default(),
            making: Mutex::default(),
            record,
            announced: OnceLock::new(),
            members: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            writers: Mutex::default(),
        }
    }

    /// Whether the removed directory at `path` is noted as no container.
    pub(super) fn is_exception(&self, tree: TreeName, path: &Path) -> bool {
        let exceptions = self.exceptions.lock();
        !exceptions.is_empty() && exceptions.contains(&(tree, path.to_owned()))
    }

    pub(super) fn id(&self) -> &EntryId {
        &self.record.entry
    }

    pub(super) fn count(&self, bytes: u64) {
        self.members.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A member was given up in favour of a later version.
    pub(super) fn discount(&self, bytes: u64) {
        self.members.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Members and bytes until now.
    pub(super) fn counts(&self) -> (u64, u64) {
        (
            self.members.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        )
    }

    /// A captured file is still open for writing.
    pub(super) fn add_writer(&self, node: NodeId) {
        self.writers.lock().nodes.insert(node);
    }

    /// It no longer is; true when that was the last thing to wait for.
    pub(super) fn remove_writer(&self, node: NodeId) -> bool {
        let mut writers = self.writers.lock();
        writers.nodes.remove(&node) && writers.over && writers.nodes.is_empty()
    }

    /// The operation is over; true when there is nothing else to wait for.
    fn end(&self) -> bool {
        let mut writers = self.writers.lock();
        writers.over = true;
        writers.nodes.is_empty()
    }
}

/// Counts the captures under way, and lets the last one out close the door.
#[derive(Default)]
struct Uses(AtomicU64);

const CLOSED: u64 = 1 << 63;

impl Uses {
    /// False once it is closed.
    fn enter(&self) -> bool {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |uses| {
                (uses & CLOSED == 0).then_some(uses + 1)
            })
            .is_ok()
    }

    /// True when it was closed meanwhile and this was the last use.
    fn leave(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) == CLOSED | 1
    }

    /// True when it was open and nobody was inside.
    fn close(&self) -> bool {
        self.0.fetch_or(CLOSED, Ordering::AcqRel) == 0
    }

    fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

/// What becomes of entries whose operation is over.
pub(super) trait Closing: Send + Sync {
    /// Nothing more is added to `entry` and nothing in it is open for writing.
    fn closed(&self, entry: &OpenEntry);
    /// Nothing more is added to `entry`; `closed` follows when its writers have gone, unless
    /// it is called now (`whole`).
    fn over(&self, entry: &OpenEntry, whole: bool);
}

/// All open operations.
pub(super) struct Operations {
    open: RwLock<HashMap<Group, Arc<Operation>>>,
    workspace: WorkspaceId,
    born: Instant,
    closing: Arc<dyn Closing>,
}

/// An operation that stays open while this exists.
pub(super) struct InUse {
    operation: Arc<Operation>,
    all: Arc<Operations>,
}

impl std::ops::Deref for InUse {
    type Target = Operation;
    fn deref(&self) -> &Operation {
        &self.operation
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.operation
            .last_used_ms
            .store(self.all.now_ms(), Ordering::Relaxed);
        if self.operation.uses.leave() {
            self.all.finish(&self.operation);
        }
    }
}

impl Operations {
    pub(super) fn new(workspace: WorkspaceId, closing: Arc<dyn Closing>) -> Arc<Self> {
        Arc::new(Self {
            open: RwLock::default(),
            workspace,
            born: Instant::now(),
            closing,
        })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the operation of `process` is open.
    pub(super) fn has(&self, process: &Process) -> bool {
        let open = self.open.read();
        open.get(&process.group).is_some_and(|o| o.is_of(process))
    }

    /// The operation of `process`, opened if need be; says whether it was.
    pub(super) fn of(self: &Arc<Self>, process: &Process) -> (InUse, bool) {
        if let Some(operation) = self.open.read().get(&process.group)
            && operation.is_of(process)
            && operation.uses.enter()
        {
            return (self.in_use(operation.clone()), false);
        }
        // Read before the lock is taken: it takes a dozen system calls.
        let fresh = Arc::new(Operation::new(process, self.workspace.clone()));
        let mut open = self.open.write();
        if let Some(known) = open.get(&process.group)
            && known.is_of(process)
            && known.uses.enter()
        {
            return (self.in_use(known.clone()), false);
        }
        fresh.uses.enter();
        fresh.last_used_ms.store(self.now_ms(), Ordering::Relaxed);
        let stale = open.insert(process.group, fresh.clone());
        drop(open);
        if let Some(stale) = stale {
            self.close(&stale);
        }
        (self.in_use(fresh), true)
    }

    fn in_use(self: &Arc<Self>, operation: Arc<Operation>) -> InUse {
        InUse {
            operation,
            all: self.clone(),
        }
    }

    /// Whether `group` has an operation open.
    pub(super) fn is_open(&self, group: Group) -> bool {
        self.open.read().contains_key(&group)
    }

    /// Closes the operation of `group`; false when it has none open.
    pub(super) fn close_group(&self, group: Group) -> bool {
        if !self.is_open(group) {
            return false;
        }
        let operation = self.open.write().remove(&group);
        if let Some(operation) = &operation {
            self.close(operation);
        }
        operation.is_some()
    }

    fn close(&self, operation: &Operation) {
        if operation.uses.close() {
            self.finish(operation);
        }
    }

    /// Nobody is inside and nobody will be.
    fn finish(&self, operation: &Operation) {
        for entry in operation.entries() {
            let whole = entry.end();
            self.closing.over(entry, whole);
            if whole {
                self.closing.closed(entry);
            }
        }
        operation.finished.store(true, Ordering::Release);
    }

    /// Closes all operations; those with a capture under way when that is over, which is
    /// waited for up to `patience`.
    pub(super) fn close_all(&self, patience: Duration) {
        let all: Vec<_> = self.open.write().drain().map(|(_, op)| op).collect();
        for operation in &all {
            self.close(operation);
        }
        let until = Instant::now() + patience;
        for operation in &all {
            while !operation.finished.load(Ordering::Acquire) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Closes the operations whose command has ended or that were idle for long; false when
    /// none is left.
    pub(super) fn close_ended(&self) -> bool {
        let candidates: Vec<_> = self.open.read().values().cloned().collect();
        let now_ms = self.now_ms();
        for operation in candidates {
            let idle_ms = now_ms.saturating_sub(operation.last_used_ms.load(Ordering::Relaxed));
            let idle = u128::from(idle_ms) >= IDLE_MAX.as_millis();
            if operation.uses.is_idle() && (idle || process::is_gone(operation.group)) {
                let mut open = self.open.write();
                if open
                    .get(&operation.group)
                    .is_some_and(|known| Arc::ptr_eq(known, &operation))
                {
                    open.remove(&operation.group);
                }
                drop(open);
                self.close(&operation);
            }
        }
        !self.open.read().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<(EntryId, bool)>>);

    impl Closing for Recorder {
        fn closed(&self, entry: &OpenEntry) {
            self.0.lock().push((entry.id().clone(), true));
        }
        fn over(&self, entry: &OpenEntry, whole: bool) {
            if !whole {
                self.0.lock().push((entry.id().clone(), false));
            }
        }
    }

    fn process(pgid: u32, leader_start: Option<u64>) -> Process {
        Process {
            group: Group {
                pgid,
                sid: 1,
                unseen_uid: 0,
            },
            leader_start,
            pid: 0,
            uid: 0,
            gid: 0,
            comm: "rm".into(),
            asked_to_remove: false,
        }
    }

    #[test]
    fn one_group_is_one_operation_also_after_its_leader_ended() {
        let recorder = Arc::new(Recorder::default());
        let all = Operations::new(WorkspaceId::random(), recorder.clone());
        let (first, opened) = all.of(&process(4_000_000, Some(5)));
        assert!(opened);
        let id = first.entry(Keep::Hosted).id().clone();
        let (second, opened) = all.of(&process(4_000_000, None));
        assert!(!opened);
        assert_eq!(second.entry(Keep::Hosted).id(), &id);
        assert_ne!(second.entry(Keep::Local).id(), &id);
        drop((first, second));
        let (other, opened) = all.of(&process(4_000_000, Some(6)));
        assert!(opened, "the number was given to another command");
        assert!(recorder.0.lock().contains(&(id, true)));
        drop(other);
        assert!(!all.close_ended(), "the group does not exist");
    }

    #[test]
    fn an_operation_in_use_is_closed_by_the_last_to_leave_it() {
        let recorder = Arc::new(Recorder::default());
        let all = Operations::new(WorkspaceId::random(), recorder.clone());
        let (used, _) = all.of(&process(4_000_001, None));
        let entry = used.entry(Keep::Local).clone();
        all.close_all(Duration::ZERO);
        assert!(recorder.0.lock().is_empty());
        let (next, opened) = all.of(&process(4_000_001, None));
        assert!(opened);
        drop(used);
        assert_eq!(*recorder.0.lock(), [(entry.id().clone(), true)]);
        drop(next);
    }

    #[test]
    fn an_entry_waits_for_its_writers() {
        let recorder = Arc::new(Recorder::default());
        let all = Operations::new(WorkspaceId::random(), recorder.clone());
        let (used, _) = all.of(&process(4_000_002, None));
        let entry = used.entry(Keep::Local).clone();
        entry.add_writer(7);
        drop(used);
        all.close_all(Duration::ZERO);
        assert_eq!(*recorder.0.lock(), [(entry.id().clone(), false)]);
        assert!(!entry.remove_writer(8));
        assert!(entry.remove_writer(7));
    }
}
