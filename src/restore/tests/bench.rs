//! A workspace in a temporary directory and captures made by hand, as a mount would make them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::Mode;

use crate::beneath;
use crate::clock;
use crate::ids::{EntryId, OperationId, WorkspaceId};
use crate::journal::{Filter, Journal};
use crate::policy::PolicyHandle;
use crate::record::{Attribution, Entry, Keep, OP_FORMAT, OpRecord, Process};
use crate::relocate;
use crate::seal;
use crate::staging::{Area, CONTAINER_MODE, OP_RECORD, Staging};
use crate::workspace::Workspace;

pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) ws: Workspace,
}

/// The kernel's clock for file times is no finer; versions are told apart by it.
const CLOCK_TICK: std::time::Duration = std::time::Duration::from_millis(8);

/// An operation in the making.
pub(crate) struct Op<'a> {
    bench: &'a Bench,
    pub(crate) entry: EntryId,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    pub(crate) fn at(dir: tempfile::TempDir) -> Self {
        let ws = dir.path().join("ws");
        std::fs::create_dir(&ws).unwrap();
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let root = OwnedFd::from(std::fs::File::open(&ws).unwrap());
        let id = WorkspaceId::random();
        let area = Area::open(root, PathBuf::new(), Some(&id)).unwrap();
        let ws = Workspace {
            id,
            path: ws,
            station: "test".into(),
            staging: Arc::new(Staging::new(area)),
            journal: Arc::new(Journal::open(&dir.path().join("state")).unwrap()),
            policy: Arc::new(PolicyHandle::defaults()),
            live: OnceLock::new(),
        };
        Self { dir, ws }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.ws.path.join(path)
    }

    /// Writes a file with the directories above it.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    pub(crate) fn op(&self) -> Op<'_> {
        self.op_of(&OperationId::random(), Keep::Hosted, None)
    }

    pub(crate) fn op_of(
        &self,
        operation: &OperationId,
        keep: Keep,
        session: Option<&str>,
    ) -> Op<'_> {
        let entry = EntryId::random();
        let record = OpRecord {
            format: OP_FORMAT,
            entry: entry.clone(),
            operation: operation.clone(),
            workspace: self.ws.id.clone(),
            keep,
            started: clock::now(),
            process: Process::default(),
            attribution: Attribution {
                session: session.map(str::to_owned),
                ..Attribution::default()
            },
            made_by: None,
        };
        let dir = self.path(&format!(".trashfs/ops/{entry}"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join(OP_RECORD), serde_json::to_vec(&record).unwrap()).unwrap();
        Op { bench: self, entry }
    }

    /// One removal as a whole operation.
    pub(crate) fn removed(&self, path: &str) -> Entry {
        self.op().remove(path).seal()
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        let filter = Filter {
            all: true,
            limit: 100,
            ..Filter::default()
        };
        self.ws.journal.list(&filter).unwrap().entries
    }

    pub(crate) fn entry(&self, id: &EntryId) -> Entry {
        self.ws.journal.entry(id).unwrap().unwrap()
    }

    /// Everything in the workspace but staging: kind, mode, times, content.
    pub(crate) fn snapshot(&self) -> BTreeMap<PathBuf, String> {
        snapshot(&self.ws.path)
    }

    /// Content of every file in the workspace and in staging, so that nothing is lost.
    pub(crate) fn contents(&self) -> Vec<String> {
        let mut all: Vec<String> = files(&self.ws.path)
            .into_iter()
            .filter(|path| !path.ends_with("op.json"))
            .filter_map(|path| std::fs::read_to_string(path).ok())
            .filter(|text| text.starts_with("text "))
            .collect();
        all.sort();
        all
    }
}

pub(crate) fn snapshot(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(dir) = pending.pop() {
        for item in std::fs::read_dir(&dir).unwrap() {
            let path = item.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            if path.ends_with(".trashfs") {
                continue;
            }
            let content = match meta.file_type() {
                t if t.is_dir() => {
                    pending.push(path.clone());
                    String::new()
                }
                t if t.is_symlink() => format!("{:?}", std::fs::read_link(&path).unwrap()),
                t if t.is_file() => std::fs::read_to_string(&path).unwrap(),
                _ => String::new(),
            };
            let line = format!(
                "{:o} {}:{} {}.{:09} {content}",
                meta.permissions().mode(),
                meta.uid(),
                meta.gid(),
                meta.mtime(),
                meta.mtime_nsec(),
            );
            all.insert(path.strip_prefix(root).unwrap().to_owned(), line);
        }
    }
    all
}

fn files(root: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(dir) = pending.pop() {
        for item in std::fs::read_dir(&dir).unwrap() {
            let path = item.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            if meta.is_dir() {
                pending.push(path);
            } else if meta.is_file() {
                all.push(path);
            }
        }
    }
    all
}

impl Op<'_> {
    fn place(&self, tree: &str, path: &str) -> OwnedFd {
        std::thread::sleep(CLOCK_TICK);
        let main = self.bench.ws.staging.main();
        let tree = Path::new(self.entry.as_str()).join(tree);
        let tree = beneath::make_dirs(main.ops.as_fd(), &tree, Mode::RWXU).unwrap();
        let parent = Path::new(path).parent().unwrap();
        beneath::make_dirs(tree.as_fd(), parent, Mode::from_raw_mode(CONTAINER_MODE)).unwrap()
    }

    /// As unlink or, seen from its end, `rm -rf`.
    pub(crate) fn remove(self, path: &str) -> Self {
        self.remove_into("remove-365d-1", path)
    }

    pub(crate) fn remove_into(self, tree: &str, path: &str) -> Self {
        let staged = self.place(tree, path);
        let (dir, name) = self.live(path);
        relocate::move_new(&dir, &name, &staged, &name).unwrap();
        self
    }

    /// As a rename over `path`.
    pub(crate) fn replace(self, path: &str, text: &str) -> Self {
        self.replace_into("replace-7d-1", path, text)
    }

    pub(crate) fn replace_into(self, tree: &str, path: &str, text: &str) -> Self {
        let staged = self.place(tree, path);
        let (dir, name) = self.live(path);
        rustix::fs::linkat(&dir, &name, &staged, &name, rustix::fs::AtFlags::empty()).unwrap();
        std::fs::write(self.bench.path("fresh"), text).unwrap();
        relocate::replace_record(&dir, self.bench.path("fresh").as_path(), Path::new(&name))
            .unwrap();
        self
    }

    fn live(&self, path: &str) -> (OwnedFd, std::ffi::OsString) {
        let main = self.bench.ws.staging.main();
        let (dir, name) = beneath::open_parent(main.root.as_fd(), Path::new(path)).unwrap();
        (dir, name.to_owned())
    }

    pub(crate) fn seal(self) -> Entry {
        seal::seal_now(&self.bench.ws, &self.entry)
            .unwrap()
            .unwrap()
    }
}
