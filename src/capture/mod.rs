//! Keeping what a system call would destroy.
//!
//! A capture goes through these rooms: `process` (who calls), `dirs` (where), the policy (how to
//! keep), `operation` (into which entry), `placing` and `trees` (to which place in staging), and
//! one of `files`, `directories` (the act itself), some of which wait in `settle` for the outcome
//! of the system call. `closer` tells the keeper behind.

mod attributes;
mod attribution;
mod closer;
mod complaints;
mod copy;
mod directories;
mod dirs;
mod files;
mod janitor;
mod links;
mod nested;
mod operation;
mod origins;
mod placing;
mod process;
mod recent;
mod reserve;
mod settle;
mod slots;
#[cfg(test)]
mod tests;
mod trees;
mod unsettled;

pub(crate) use self::nested::area_for;

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use trashfs_mount::{
    Attr, Caller, Change, Interceptor, Interests, NodeId, Place, Ticket, Verdict, Victim,
};

pub use self::unsettled::take_back_unsettled;

use self::closer::Closer;
use self::complaints::Complaints;
use self::dirs::Dirs;
use self::janitor::Bell;
use self::links::StagedLinks;
use self::nested::Nested;
use self::operation::{InUse, Operations};
use self::origins::Origins;
use self::process::{Group, Process, Processes};
pub(crate) use self::reserve::make_way;
use self::settle::Tickets;
use self::trees::Trees;
use crate::ids::{EntryId, WorkspaceId};
use crate::policy::{Decision, PolicyHandle, Subject};
use crate::record::{Cause, OpRecord};
use crate::staging::{STAGING_NAME, Staging};
use crate::{beneath, clock};

/// What a capture tells the keeper behind it, in order, through a channel that never blocks.
#[derive(Debug)]
pub enum CaptureEvent {
    /// An entry's directory was made.
    Opened(Box<OpRecord>),
    /// Nothing more will be added to it and nothing in it is open for writing.
    Closed {
        /// Which.
        entry: EntryId,
        /// Members captured, removed directories included.
        members: u64,
        /// Length of captured regular files in bytes, as at their capture.
        bytes: u64,
    },
    /// Nothing more will be added to it, but a file in it is still open for writing.
    Waiting {
        /// Which.
        entry: EntryId,
        /// As when it is closed.
        members: u64,
        /// As when it is closed.
        bytes: u64,
    },
    /// Something was deleted outright, as a policy rule said.
    DeletedOutright {
        /// Workspace-relative path.
        path: PathBuf,
        /// The rule.
        rule: String,
    },
    /// To be answered once everything sent before is in the journal.
    Sync(Sender<()>),
    /// To be answered once every entry closed before has been looked at: what its operation
    /// left is noted then.
    Seen(Sender<()>),
    /// Nothing more will come: write what there is and end.
    Stop,
}

/// How often open operations are looked at.
const TICK: Duration = Duration::from_millis(200);
/// How often a full disk is looked at for room to hold back again.
const FULL_TICK: Duration = Duration::from_secs(1);
/// How long a writer waits until what it is about to change has been noted.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// How long `close_all` waits for captures under way.
const PATIENCE: Duration = Duration::from_secs(5);
/// The share of the process's descriptors that staged directories may take.
const DESCRIPTORS_PART: u64 = 8;
const DESCRIPTORS_MAX: u64 = 2048;

/// Keeps what the mount would destroy.
pub struct Capture {
    staging: Arc<Staging>,
    policy: Arc<PolicyHandle>,
    processes: Processes,
    dirs: Dirs,
    origins: Origins,
    operations: Arc<Operations>,
    trees: Arc<Trees>,
    links: Arc<StagedLinks>,
    closer: Arc<Closer>,
    tickets: Tickets,
    complaints: Complaints,
    bell: Arc<Bell>,
}

/// Why capturing can't begin.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}")]
pub struct CaptureError {
    /// While doing what.
    pub what: &'static str,
    /// The system's answer.
    pub error: std::io::Error,
}

fn while_doing(what: &'static str) -> impl FnOnce(std::io::Error) -> CaptureError {
    move |error| CaptureError { what, error }
}

impl Capture {
    /// Begins to capture into `staging`. Starts a thread that closes operations when their
    /// commands have ended; it ends when the last reference is dropped.
    ///
    /// # Errors
    /// When the staging area can't be read or no thread can be started.
    pub fn new(
        staging: Arc<Staging>,
        workspace: WorkspaceId,
        policy: Arc<PolicyHandle>,
        events: Sender<CaptureEvent>,
    ) -> Result<Arc<Self>, CaptureError> {
        let links = Arc::new(StagedLinks::default());
        let earlier = staging
            .entries()
            .map_err(while_doing("listing the staging area"))?;
        links::scan_in_background(links.clone(), staging.clone(), earlier)
            .map_err(while_doing("starting a thread"))?;
        let trees = Arc::new(Trees::new(descriptors_max()));
        let closer = Arc::new(Closer::new(staging.clone(), trees.clone(), events));
        let bell = Arc::new(Bell::default());
        let capture = Arc::new(Self {
            policy,
            processes: Processes::new(),
            dirs: Dirs::new(Nested::new(staging.clone(), workspace.clone())),
            origins: Origins::new(),
            operations: Operations::new(workspace, closer.clone()),
            staging,
            trees,
            links,
            closer,
            tickets: Tickets::default(),
            complaints: Complaints::default(),
            bell: bell.clone(),
        });
        if !capture.replenish() {
            capture.bell.ring();
        }
        janitor::start(&capture, bell).map_err(while_doing("starting a thread"))?;
        Ok(capture)
    }

    /// Closes every open operation now: their `Closed` events are sent when this returns, except
    /// for entries in which a file is still open for writing.
    pub fn close_all(&self) {
        self.operations.close_all(PATIENCE);
    }

    /// Closes operations whose command has ended or that were idle for five seconds, sees to the
    /// room that removals need on a full disk, and says when to call again; `None` when nothing
    /// is left to do.
    pub fn tick(&self) -> Option<Duration> {
        if self.operations.close_ended() {
            return Some(TICK);
        }
        (!self.replenish()).then_some(FULL_TICK)
    }

    /// Links of inode (`dev`, `ino`) in staging changed by `by` behind this module's back.
    pub fn staged_links_changed(&self, dev: u64, ino: u64, by: i32) {
        self.links.change((dev, ino), by);
    }

    /// Whether any file may have links in staging.
    pub fn has_staged_links(&self) -> bool {
        self.links.any()
    }

    /// Makes the reserve of each area; false while there is no room for one.
    fn replenish(&self) -> bool {
        let mut all = true;
        for area in self.staging.areas() {
            all &= reserve::replenish(&area);
        }
        all
    }

    /// Somebody else is about to write to what an operation of `group` left: that operation is
    /// over, and what it left is noted first. So undo can tell later work from it.
    fn look_before_it_changes(&self, group: Group) {
        if self.operations.close_group(group) {
            let (seen, wait) = std::sync::mpsc::channel();
            self.closer.send(CaptureEvent::Seen(seen));
            // Whatever the outcome, the writer goes on: undo then captures what it takes back.
            let _ = wait.recv_timeout(LOOK_MAX);
        }
    }

    fn operation(&self, process: &Process) -> InUse {
        let (operation, opened) = self.operations.of(process);
        if opened {
            self.bell.ring();
        }
        operation
    }

    fn decide(
        &self,
        process: &Process,
        place: &dirs::Place,
        name: &OsStr,
        cause: Cause,
        attr: &Attr,
    ) -> Decision {
        // A command goes by the policy as it is when it begins.
        if !self.operations.has(process) {
            self.policy.reload();
        }
        let began = attr.btime.unwrap_or(attr.mtime);
        let age_s = (clock::now().0 / 1_000_000_000).saturating_sub(began.secs);
        let age_s = u64::try_from(age_s).unwrap_or(0);
        let young = age_s <= origins::SCRATCH_MAX.as_secs();
        let file = (attr.dev, attr.ino);
        self.policy.decide(&Subject {
            path: &place.path.join(name),
            cause,
            comm: &process.comm,
            size_bytes: attr.size_bytes,
            age_s,
            scratch: young && self.origins.is_scratch(file, process),
            asked_to_remove: process.asked_to_remove,
            cache: place.cache,
        })
    }

    /// A rule says that this is to be deleted outright.
    fn let_go(&self, path: PathBuf, rule: String) -> Verdict {
        self.closer
            .send(CaptureEvent::DeletedOutright { path, rule });
        Verdict::Proceed
    }

    /// A name that an editor moves away to write the file anew is remembered.
    fn moves(&self, caller: Caller, source: &Victim<'_>) -> Result<(), Errno> {
        if source.attr.is_dir() {
            return Ok(());
        }
        let group = self.processes.of(caller).group;
        let path = self.dirs.place(source.dir)?.path.join(source.name);
        let file = (source.attr.dev, source.attr.ino);
        self.origins.moved(file, group, path);
        Ok(())
    }

    fn judge(&self, caller: Caller, change: &Change<'_>) -> Result<Verdict, Errno> {
        match change {
            Change::Unlink(victim) => self.unlink(caller, victim),
            Change::Rmdir(victim) => self.remove_dir(caller, victim, Cause::Remove),
            Change::Replace { target, .. } if target.attr.is_dir() => {
                self.remove_dir(caller, target, Cause::Replace)
            }
            Change::Replace { source, target } => self.replace_file(caller, source, target),
            Change::Truncate { file, .. } => self.truncate(caller, file),
            Change::Rename { source, .. } => {
                // Only a hint: the rename itself destroys nothing.
                if let Err(error) = self.moves(caller, source) {
                    tracing::debug!(%error, "a former name is not remembered");
                }
                Ok(Verdict::Proceed)
            }
            _ => Ok(Verdict::Proceed),
        }
    }
}

fn descriptors_max() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile)
        .current
        .unwrap_or(u64::MAX);
    usize::try_from((limit / DESCRIPTORS_PART).min(DESCRIPTORS_MAX)).unwrap_or(usize::MAX)
}

/// What `change` would destroy.
fn victim_of<'a>(change: &'a Change<'a>) -> Option<&'a Victim<'a>> {
    match change {
        Change::Unlink(victim) | Change::Rmdir(victim) => Some(victim),
        Change::Replace { target, .. } => Some(target),
        Change::Truncate { file, .. } => Some(file),
        _ => None,
    }
}

impl Interceptor for Capture {
    fn interests(&self) -> Interests {
        Interests::UNLINK
            .union(Interests::RMDIR)
            .union(Interests::REPLACE)
            .union(Interests::TRUNCATE)
            .union(Interests::RENAME)
            .union(Interests::CREATE)
    }

    fn before(&self, caller: Caller, change: &Change<'_>) -> Verdict {
        self.judge(caller, change).unwrap_or_else(|errno| {
            if let Some(victim) = victim_of(change) {
                self.complaints.refused(victim, errno);
            }
            Verdict::Refuse(errno)
        })
    }

    fn settled(&self, ticket: Ticket, outcome: Result<(), Errno>) {
        self.settle(ticket, outcome.is_ok());
    }

    fn created(&self, caller: Caller, attr: &Attr) {
        let process = self.processes.of(caller);
        // A file made anew under the name of one that was just removed is what the operation
        // left there. Numbers of other filesystems' nodes are not known here.
        if self.operations.is_open(process.group) && attr.dev == self.staging.main().root_attr.dev {
            self.origins.overwritten_by(attr.ino, process.group);
        }
        self.origins.born((attr.dev, attr.ino), process);
    }

    fn opening_to_write(&self, caller: Caller, node: NodeId) {
        if let Some(group) = self.origins.overwrote(node)
            && group != self.processes.of(caller).group
        {
            self.look_before_it_changes(group);
        }
    }

    fn writers_gone(&self, node: NodeId) {
        self.closer.writers_gone(node);
    }

    fn hides(&self, dir: &Attr, name: &OsStr) -> bool {
        name == STAGING_NAME && self.staging.is_root(dir)
    }

    fn hidden_links(&self, attr: &Attr) -> u32 {
        if attr.is_dir() {
            // A filesystem that does not count subdirectories says 1.
            return u32::from(attr.nlink > 2 && self.staging.is_root(attr));
        }
        match attr.nlink {
            // Asked of a file without a name in the workspace: its only link is staged.
            0 | 1 => attr.nlink,
            _ => self.links.of((attr.dev, attr.ino)).min(attr.nlink),
        }
    }

    fn open_place(&self, place: &Place) -> Result<OwnedFd, Errno> {
        let main = self.staging.main();
        let (dir, name) = beneath::open_parent(main.root.as_fd(), &place.path)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&dir, name, flags, Mode::empty())
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.bell.end();
        self.operations.close_all(Duration::ZERO);
    }
}

/// The record of a process and on whose behalf it works, as for a capture that it makes.
pub(crate) fn who(pid: u32) -> (crate::record::Process, crate::record::Attribution) {
    let caller = Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        tid: pid,
    };
    attribution::read(&Processes::new().of(caller))
}
