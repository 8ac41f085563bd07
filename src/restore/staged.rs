//! What an entry holds on disk, seen as roots: the topmost directories that were removed, and
//! what was captured out of directories that stayed.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use trashfs_mount::{Attr, Timestamp};

use crate::beneath;
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::record::Bytes;
use crate::seal::order;
use crate::staging::{CONTAINER_MODE, EntryDir, Exceptions, Staging, Tree, TreeName};
use crate::walk::{Flow, When, walk};

/// Where a captured file lies: enough to find it again after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StagedPath {
    /// The entry.
    pub(crate) entry: EntryId,
    /// Prefix of the area.
    #[serde(default)]
    pub(crate) area: Bytes,
    /// Name of the tree.
    pub(crate) tree: String,
    /// Path below the tree: workspace-relative.
    pub(crate) path: Bytes,
}

impl StagedPath {
    /// Something below this directory.
    pub(crate) fn join(&self, rest: &Path) -> Self {
        Self {
            path: self.path.as_path().join(rest).into(),
            ..self.clone()
        }
    }

    /// The tree's name, parsed.
    pub(crate) fn tree_name(&self) -> Result<TreeName, Failure> {
        self.tree
            .parse()
            .map_err(|e: String| Failure::failed("damaged-record", e))
    }

    /// The directory that holds it, and its name there.
    pub(crate) fn open_parent(
        &self,
        staging: &Staging,
    ) -> Result<(OwnedFd, &std::ffi::OsStr), Errno> {
        let tree = self.open_tree(staging)?;
        beneath::open_parent(tree.as_fd(), self.path.as_path())
    }

    /// The tree that it lies in.
    fn open_tree(&self, staging: &Staging) -> Result<OwnedFd, Errno> {
        beneath::open_dir_at(&self.open_entry(staging)?, self.tree.as_ref())
    }

    /// The entry's directory in the area that it lies in.
    pub(crate) fn open_entry(&self, staging: &Staging) -> Result<OwnedFd, Errno> {
        let prefix = self.area.as_path();
        let areas = staging.areas();
        let area = areas
            .iter()
            .find(|a| a.prefix == prefix)
            .ok_or(Errno::NOENT)?;
        beneath::open_dir_at(&area.ops, self.entry.as_str().as_ref())
    }

    /// Its attributes; `None` when it is not there.
    pub(crate) fn attr(&self, staging: &Staging) -> Result<Option<Attr>, Errno> {
        absent(
            self.open_parent(staging)
                .and_then(|(dir, name)| Attr::at(&dir, name)),
        )
    }
}

/// `None` for what is not there.
pub(crate) fn absent<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(e),
    }
}

/// One capture that can be put back as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Where it lies.
    pub(crate) at: StagedPath,
    /// Its attributes there.
    pub(crate) attr: Attr,
    /// Its tree.
    pub(crate) tree: TreeName,
}

impl Candidate {
    /// Workspace-relative path where it was captured.
    pub(crate) fn path(&self) -> &Path {
        self.at.path.as_path()
    }

    /// Which of captures of different operations is newer: captures set the change time. Clocks
    /// are coarse, so that birth and slot decide between neighbours.
    pub(crate) fn age_key(&self) -> (Timestamp, Option<Timestamp>, u32) {
        (self.attr.ctime, self.attr.btime, self.tree.slot)
    }
}

/// Puts captures in the order of their paths, and those of one path in the order in which they
/// were made; `of` finds the capture in each.
pub(crate) fn sort_by_age<T>(all: &mut [T], of: impl Fn(&T) -> &Candidate) {
    all.sort_by(|a, b| of(a).path().cmp(of(b).path()));
    for versions in all.chunk_by_mut(|a, b| of(a).path() == of(b).path()) {
        if versions.len() < 2 {
            continue;
        }
        let place = |c: &Candidate| c.at.clone();
        let made: Vec<_> = versions
            .iter()
            .map(|v| {
                let Candidate { at, attr, .. } = of(v);
                (&at.entry, of(v).tree, attr)
            })
            .collect();
        let when: HashMap<StagedPath, Timestamp> = versions
            .iter()
            .map(|v| place(of(v)))
            .zip(order::when_made(&made))
            .collect();
        versions.sort_by_key(|v| {
            let c = of(v);
            (when.get(&c.at).copied(), c.attr.btime, c.tree.slot)
        });
    }
}

/// An entry opened for restoring.
#[derive(Debug)]
pub(crate) struct Holding {
    /// Its directories.
    pub(crate) dir: EntryDir,
    /// Its trees.
    pub(crate) trees: Vec<Tree>,
    /// A verb of the product moved its roots as a whole, so nothing in them is a container.
    pub(crate) whole_roots: bool,
    exceptions: Exceptions,
}

impl Holding {
    /// Opens the entry `id`.
    pub(crate) fn open(staging: &Staging, id: &EntryId) -> Result<Self, Failure> {
        let what = || format!("entry {id}");
        let dir = staging
            .entry(id)
            .map_err(|e| Failure::io(what(), &e))?
            .ok_or_else(|| not_resident(id))?;
        Self::of(dir).map_err(|e| Failure::io(what(), &e))
    }

    fn of(dir: EntryDir) -> io::Result<Self> {
        let trees = dir.trees()?;
        let whole_roots = dir.op_record()?.is_some_and(|op| op.made_by.is_some());
        let exceptions = dir.exceptions()?;
        Ok(Self {
            dir,
            trees,
            whole_roots,
            exceptions,
        })
    }

    /// Whether a directory in a tree only holds the place of one that was not removed.
    pub(crate) fn is_container(&self, tree: TreeName, path: &Path, attr: &Attr) -> bool {
        attr.is_dir()
            && attr.permissions() == CONTAINER_MODE
            && !self.exceptions.contains(tree, path)
    }

    /// All roots.
    pub(crate) fn roots(&self) -> io::Result<Vec<Candidate>> {
        let mut roots = Vec::new();
        for tree in &self.trees {
            walk(tree.fd.as_fd(), &mut |step| {
                if step.when == When::Leave || self.is_container(tree.name, step.path, step.attr) {
                    return Ok(Flow::Continue);
                }
                roots.push(self.candidate(tree, step.path, step.attr));
                Ok(Flow::Skip)
            })?;
        }
        Ok(roots)
    }

    /// Whether there is nothing but containers.
    pub(crate) fn is_empty(&self) -> Result<bool, Failure> {
        let roots = self
            .roots()
            .map_err(|e| Failure::io(format!("entry {}", self.dir.id), &e))?;
        Ok(roots.is_empty())
    }

    /// Captures at exactly `path`, in whichever tree.
    pub(crate) fn exactly_at(&self, path: &Path) -> io::Result<Vec<Candidate>> {
        let mut found = Vec::new();
        for tree in &self.trees {
            let place = absent(beneath::open_parent(tree.fd.as_fd(), path))?;
            let Some((dir, name)) = place else { continue };
            let Some(attr) = absent(Attr::at(&dir, name))? else {
                continue;
            };
            if !self.is_container(tree.name, path, &attr) {
                found.push(self.candidate(tree, path, &attr));
            }
        }
        Ok(found)
    }

    /// Captures at exactly `path`, else, where a directory that stayed is meant, those below it.
    pub(crate) fn at(&self, path: &Path) -> io::Result<Vec<Candidate>> {
        let mut found = self.exactly_at(path)?;
        if found.is_empty() {
            found = self.roots()?;
            found.retain(|c| c.path().starts_with(path));
        }
        Ok(found)
    }

    fn candidate(&self, tree: &Tree, path: &Path, attr: &Attr) -> Candidate {
        Candidate {
            at: StagedPath {
                entry: self.dir.id.clone(),
                area: tree.area.prefix.clone().into(),
                tree: tree.name.to_string(),
                path: path.into(),
            },
            attr: *attr,
            tree: tree.name,
        }
    }
}

fn not_resident(id: &EntryId) -> Failure {
    Failure::failed(
        "not-resident",
        format!("entry {id} has no files in the staging area"),
    )
    .state("the journal knows it, but nothing of it is here")
    .next(format!("trash info {id}"))
}
