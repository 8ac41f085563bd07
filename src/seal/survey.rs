//! Walking what an entry holds: its roots, and how much there is of it.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use trashfs_mount::{Attr, FileKind};

use crate::ids::EntryId;
use crate::record::{Bytes, Cause, Keep, Kind, Left, Root};
use crate::seal::{SUMMARY_FORMAT, Summary, causes_of, order};
use crate::staging::{CONTAINER_MODE, EntryDir, Tree, TreeName};
use crate::walk::{Flow, Step, When, walk};
use crate::{beneath, clock};

/// How much an entry holds, where whoever captured it has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Members of all kinds, removed directories included.
    pub members: u64,
    /// Length of all regular files in bytes.
    pub bytes: u64,
}

/// What is known of the files that stand at the captured paths now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Present {
    /// The operation has just ended: they are what it left, and undo may go by them.
    Compared,
    /// Time has passed: that they are there is known, whose they are is not.
    Unknown,
}

/// A root as the walk meets it.
struct Found {
    root: Root,
    attr: Attr,
    tree: TreeName,
}

/// Looks paths up in the workspace; neighbours share their directory's descriptor.
struct Beside<'a> {
    root: BorrowedFd<'a>,
    last: Option<(PathBuf, Option<OwnedFd>)>,
}

impl Beside<'_> {
    fn attr(&mut self, path: &Path) -> Option<Attr> {
        let (parent, name) = (path.parent()?, path.file_name()?);
        if self.last.as_ref().is_none_or(|(known, _)| known != parent) {
            let opened = beneath::open_dir(self.root, parent).ok();
            self.last = Some((parent.to_owned(), opened));
        }
        let dir = self.last.as_ref().and_then(|(_, fd)| fd.as_ref())?;
        Attr::at(dir, name).ok()
    }
}

/// Whether a staged directory only holds a place (`exceptions`: paths of those that only look so).
pub(crate) fn is_container(step: &Step<'_>, exceptions: &HashSet<PathBuf>) -> bool {
    step.attr.is_dir()
        && step.attr.permissions() == CONTAINER_MODE
        && !exceptions.contains(step.path)
}

/// What `dir` holds. Below a root nothing is read unless `counts` are missing.
///
/// # Errors
/// Those of reading staging.
pub fn survey(
    workspace: BorrowedFd<'_>,
    dir: &EntryDir,
    counts: Option<Counts>,
    present: Present,
) -> io::Result<Summary> {
    let surveyed_at = clock::now();
    let exceptions = dir.exceptions()?;
    let keep = dir.op_record()?.map_or(Keep::Hosted, |op| op.keep);
    let mut beside = Beside {
        root: workspace,
        last: None,
    };
    let mut found = Vec::new();
    let mut counted = Counts::default();
    for tree in dir.trees()? {
        let mut tally = counts.is_none().then_some(&mut counted);
        let mut meet = |step: &Step<'_>| {
            found.push(met(step, tree.name, keep, (&mut beside, present)));
        };
        walk_tree(&tree, &exceptions.of(tree.name), &mut tally, &mut meet)?;
    }
    let counts = counts.unwrap_or(counted);
    let mut summary = summarise(dir, found, counts);
    summary.compared_at = (present == Present::Compared).then_some(surveyed_at);
    Ok(summary)
}

fn walk_tree(
    tree: &Tree,
    exceptions: &HashSet<PathBuf>,
    tally: &mut Option<&mut Counts>,
    meet: &mut dyn FnMut(&Step<'_>),
) -> io::Result<()> {
    // Depth of the root that the walk is inside of.
    let mut inside: Option<usize> = None;
    walk(tree.fd.as_fd(), &mut |step| {
        let depth = step.path.components().count();
        if step.when == When::Leave {
            if inside == Some(depth) {
                inside = None;
            }
            return Ok(Flow::Continue);
        }
        if is_container(step, exceptions) {
            return Ok(Flow::Continue);
        }
        if let Some(counts) = tally {
            counts.members += 1;
            if step.attr.kind() == FileKind::Regular {
                counts.bytes += step.attr.size_bytes;
            }
        }
        if inside.is_none() {
            meet(step);
            if step.when == When::Enter {
                if tally.is_none() {
                    return Ok(Flow::Skip);
                }
                inside = Some(depth);
            }
        }
        let flow = into(step);
        if flow == Flow::Skip && inside == Some(depth) {
            inside = None;
        }
        Ok(flow)
    })
}

/// Into a directory, unless it forbids even its owner to look inside: it then counts as one member.
pub(crate) fn into(step: &Step<'_>) -> Flow {
    let may = step.when != When::Enter
        || step.attr.mode & 0o500 == 0o500
        || beneath::open_dir_readable(step.dir, step.name).is_ok();
    if may { Flow::Continue } else { Flow::Skip }
}

/// What was removed and is there again counts as overwritten. A directory that is worth keeping
/// does not: a new one of its name has nothing of what was in it.
fn met(
    step: &Step<'_>,
    tree: TreeName,
    keep: Keep,
    (beside, present): (&mut Beside<'_>, Present),
) -> Found {
    let now = beside.attr(step.path);
    let worth = step.attr.is_dir() && keep == Keep::Hosted;
    let cause = match (tree.cause, now) {
        (Cause::Remove, Some(_)) if !worth => Cause::Replace,
        (cause, _) => cause,
    };
    let left = now.filter(|_| cause != Cause::Remove && present == Present::Compared);
    Found {
        root: Root {
            path: Bytes::from(step.path),
            kind: Kind::from(step.attr.kind()),
            cause,
            version: 1,
            left: left.as_ref().map(Left::of),
        },
        attr: *step.attr,
        tree,
    }
}

/// What the files of an entry occupy on the filesystem `dev` that nothing else does.
///
/// # Errors
/// Those of reading staging.
pub fn occupied(dev: u64, dir: &EntryDir) -> io::Result<u64> {
    let mut bytes = 0;
    for tree in dir.trees()? {
        walk(tree.fd.as_fd(), &mut |step| {
            if step.when != When::Leave && step.attr.dev == dev {
                let shared = step.attr.nlink > 1 && !step.attr.is_dir();
                bytes += if shared { 0 } else { step.attr.blocks * 512 };
            }
            Ok(into(step))
        })?;
    }
    Ok(bytes)
}

fn summarise(dir: &EntryDir, mut found: Vec<Found>, counts: Counts) -> Summary {
    found.sort_by(|a, b| a.root.path.cmp(&b.root.path));
    for versions in found.chunk_by_mut(|a, b| a.root.path == b.root.path) {
        if versions.len() > 1 {
            number(&dir.id, versions);
        }
    }
    let (trees, roots): (Vec<String>, Vec<Root>) = found
        .into_iter()
        .map(|f| (f.tree.to_string(), f.root))
        .unzip();
    Summary {
        format: SUMMARY_FORMAT,
        entry: dir.id.clone(),
        kind: common_kind(&roots),
        path: common_path(&roots),
        causes: causes_of(&roots),
        roots,
        trees,
        members: counts.members,
        bytes: counts.bytes,
        compared_at: None,
    }
}

/// Numbers the captures of one path from the oldest.
fn number(entry: &EntryId, versions: &mut [Found]) {
    let made: Vec<_> = versions.iter().map(|f| (entry, f.tree, &f.attr)).collect();
    let when = order::when_made(&made);
    let mut turns: Vec<usize> = (0..versions.len()).collect();
    turns.sort_by_key(|at| (when[*at], versions[*at].tree.slot));
    for (version, at) in (1..).zip(turns) {
        versions[at].root.version = version;
    }
    versions.sort_by_key(|f| f.root.version);
}

fn common_kind(roots: &[Root]) -> Kind {
    let mut kinds = roots.iter().map(|r| r.kind);
    match kinds.next() {
        Some(first) if kinds.all(|kind| kind == first) => first,
        _ => Kind::Mixed,
    }
}

fn common_path(roots: &[Root]) -> Bytes {
    let Some(first) = roots.first() else {
        return Bytes::default();
    };
    if roots.iter().all(|r| r.path == first.path) {
        return first.path.clone();
    }
    let mut common = first.path.as_path().parent().unwrap_or(Path::new(""));
    for root in roots {
        while !root.path.as_path().starts_with(common) {
            common = common.parent().unwrap_or(Path::new(""));
        }
    }
    Bytes::from(common)
}
