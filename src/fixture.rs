//! For unit tests: a workspace over a scratch directory, and captures as the mount would make them.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::Mode;

use crate::beneath;
use crate::clock::UnixNanos;
use crate::ids::{EntryId, OperationId, WorkspaceId};
use crate::journal::Journal;
use crate::policy::PolicyHandle;
use crate::record::{Attribution, Cause, Keep, OP_FORMAT, OpRecord, Process};
use crate::relocate;
use crate::staging::{Area, CONTAINER_MODE, OP_RECORD, Staging, TreeName};
use crate::workspace::Workspace;

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A workspace with its journal in another directory.
pub(crate) struct Fixture {
    /// Holds both; removed with this.
    pub(crate) scratch: tempfile::TempDir,
    pub(crate) ws: Arc<Workspace>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join("w")).unwrap();
        std::fs::create_dir(scratch.path().join("state")).unwrap();
        let ws = open(scratch.path(), &scratch.path().join("w"));
        Self { scratch, ws }
    }

    /// Over a directory that is there already, e.g. a filesystem of its own.
    pub(crate) fn over(root: &Path) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join("state")).unwrap();
        let ws = open(scratch.path(), root);
        Self { scratch, ws }
    }

    /// Under other rules than the built-in ones.
    pub(crate) fn with_policy(self, policy: PolicyHandle) -> Self {
        let mut ws = Arc::into_inner(self.ws).expect("nobody else has the workspace");
        ws.policy = Arc::new(policy);
        Self {
            scratch: self.scratch,
            ws: Arc::new(ws),
        }
    }

    /// As after a restart of the daemon.
    pub(crate) fn reopened(self) -> Self {
        let root = self.ws.path.clone();
        let Self { scratch, ws } = self;
        drop(Arc::into_inner(ws).expect("nobody else has the workspace"));
        let ws = open(scratch.path(), &root);
        Self { scratch, ws }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.ws.path.join(path)
    }

    pub(crate) fn write(&self, path: &str, content: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    /// The staged directory of an entry.
    pub(crate) fn staged(&self, id: &EntryId) -> PathBuf {
        self.path(".trashfs/ops").join(id.as_str())
    }

    /// Opens an entry as if its operation had begun at `started`.
    pub(crate) fn begin(&self, keep: Keep, started: UnixNanos) -> OpRecord {
        let op = OpRecord {
            format: OP_FORMAT,
            entry: EntryId::random(),
            operation: OperationId::random(),
            workspace: self.ws.id.clone(),
            keep,
            started,
            process: Process {
                pid: 4711,
                argv: vec!["rm".into(), "-rf".into(), "it's".into()],
                ..Process::default()
            },
            attribution: Attribution {
                agent: Some("claude".into()),
                ..Attribution::default()
            },
            made_by: None,
        };
        let main = self.ws.staging.main();
        rustix::fs::mkdirat(&main.ops, op.entry.as_str(), Mode::RWXU).unwrap();
        let text = serde_json::to_vec(&op).unwrap();
        std::fs::write(self.staged(&op.entry).join(OP_RECORD), text).unwrap();
        op
    }

    fn tree(&self, id: &EntryId, name: TreeName) -> OwnedFd {
        let main = self.ws.staging.main();
        let place = Path::new(id.as_str()).join(name.to_string());
        beneath::make_dirs(main.ops.as_fd(), &place, Mode::RWXU).unwrap()
    }

    /// Moves `path` of the workspace into the entry, as a capture does.
    pub(crate) fn capture(&self, id: &EntryId, path: &str, cause: Cause, retain: Duration) {
        self.capture_slot(id, path, cause, retain, 1);
    }

    pub(crate) fn capture_slot(
        &self,
        id: &EntryId,
        path: &str,
        cause: Cause,
        retain: Duration,
        slot: u32,
    ) {
        let name = TreeName {
            cause,
            retain,
            slot,
        };
        let tree = self.tree(id, name);
        let path = Path::new(path);
        let above = path.parent().unwrap();
        let mode = Mode::from_raw_mode(CONTAINER_MODE);
        let dir = beneath::make_dirs(tree.as_fd(), above, mode).unwrap();
        self.ws
            .with_root(|root| {
                let (from, name) = beneath::open_parent(root, path)?;
                relocate::move_new(&from, name, &dir, name)
            })
            .unwrap();
    }

    /// Captures the removal of a fresh file and seals it.
    pub(crate) fn removed(&self, path: &str, content: &str, keep: Keep, at: UnixNanos) -> EntryId {
        self.write(path, content);
        let op = self.begin(keep, at);
        let retain = if keep == Keep::Hosted {
            DAY * 365
        } else {
            DAY * 7
        };
        self.capture(&op.entry, path, Cause::Remove, retain);
        crate::seal::seal_now(&self.ws, &op.entry).unwrap().unwrap();
        op.entry
    }
}

fn open(scratch: &Path, root: &Path) -> Arc<Workspace> {
    let fd = OwnedFd::from(std::fs::File::open(root).unwrap());
    let area = Area::open(fd, PathBuf::new(), Some(&WorkspaceId::random())).unwrap();
    Arc::new(Workspace {
        id: area.workspace.clone(),
        path: root.to_owned(),
        station: "station".into(),
        staging: Arc::new(Staging::new(area)),
        journal: Arc::new(Journal::open(&scratch.join("state")).unwrap()),
        policy: Arc::new(PolicyHandle::defaults()),
        live: OnceLock::new(),
    })
}
