//! What would go where, and what is in the way: decided before anything changes.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use trashfs_mount::Attr;

use crate::beneath;
use crate::clock::UnixNanos;
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::record::Bytes;
use crate::restore::capturing::Captures;
use crate::restore::intent::{DirAttrs, Intent, Plan, Step, kind};
use crate::restore::parents;
use crate::restore::report::{LeftAlone, Mode, Placed, There, Why};
use crate::restore::staged::{Candidate, Holding, StagedPath, absent, sort_by_age};
use crate::walk::{Flow, When, names_in, walk};
use crate::workspace::Workspace;

/// Which capture of a path is wanted where there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefer {
    /// The last state: restoring.
    Newest,
    /// The state before the operation: undoing.
    Oldest,
}

/// What is at a path once the steps so far are taken.
enum Seen {
    /// Put there by a step; lies in staging now.
    Staged(StagedPath, Attr),
    /// Made by a step.
    Made,
    /// In the workspace.
    Present(Attr),
}

enum Provided {
    Staged(StagedPath),
    Made,
}

/// Makes a plan, candidate by candidate, shallow paths first.
pub(crate) struct Planner<'a> {
    ws: &'a Workspace,
    base: OwnedFd,
    holdings: &'a [Holding],
    prefer: Prefer,
    mode: Mode,
    captures: Captures,
    provided: BTreeMap<PathBuf, Provided>,
    late: BTreeMap<PathBuf, Step>,
    emptied: Vec<Step>,
    plan: Plan,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(
        ws: &'a Workspace,
        holdings: &'a [Holding],
        (prefer, mode): (Prefer, Mode),
        captures: Captures,
    ) -> Result<Self, Failure> {
        let base = ws
            .with_root(|root| beneath::open_dir(root, Path::new("")))
            .map_err(|e| io("the workspace's root", e))?;
        let mut intent = Intent::new(prefer == Prefer::Oldest);
        intent.entries = holdings.iter().map(|h| h.dir.id.clone()).collect();
        Ok(Self {
            ws,
            base,
            holdings,
            prefer,
            mode,
            captures,
            provided: BTreeMap::new(),
            late: BTreeMap::new(),
            emptied: Vec::new(),
            plan: Plan {
                intent,
                placed: Vec::new(),
                recreated: Vec::new(),
                left_alone: Vec::new(),
            },
        })
    }

    /// The plan: first what is made and moved, then the directories' attributes, deepest first,
    /// then what staged directories were emptied (children were noted before their parents).
    pub(crate) fn finish(mut self) -> Plan {
        self.plan.intent.steps.extend(self.late.into_values().rev());
        self.plan.intent.steps.append(&mut self.emptied);
        self.plan.intent.capturing = self.captures.into_entries();
        self.plan
    }

    /// What is at `path` in the workspace now, whatever the plan does.
    pub(crate) fn present(&self, path: &Path) -> Result<Option<Attr>, Failure> {
        let found = beneath::open_parent(self.base.as_fd(), path)
            .and_then(|(dir, name)| Attr::at(&dir, name));
        absent(found).map_err(|e| io(&path.display().to_string(), e))
    }

    /// Whether nothing in the directory at `path` has changed after `at`. A change time can't be
    /// set back, so later work is never overlooked; what can't be looked at counts as changed.
    pub(crate) fn untouched_since(
        &self,
        path: &Path,
        at: Option<UnixNanos>,
    ) -> Result<bool, Failure> {
        let Some(at) = at else { return Ok(false) };
        let older = |attr: &Attr| {
            i128::from(attr.ctime.secs) * 1_000_000_000 + i128::from(attr.ctime.nanos)
                <= i128::from(at.0)
        };
        let dir = beneath::open_dir(self.base.as_fd(), path)
            .map_err(|e| io(&path.display().to_string(), e))?;
        let mut untouched = Attr::of(&dir).is_ok_and(|attr| older(&attr));
        let looked = walk(dir.as_fd(), &mut |step| {
            untouched = untouched && (step.when == When::Leave || older(step.attr));
            Ok(if untouched {
                Flow::Continue
            } else {
                Flow::Stop
            })
        });
        match looked {
            Ok(()) => Ok(untouched),
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Ok(false),
            Err(e) => Err(Failure::io(path.display().to_string(), &e)),
        }
    }

    /// Whether a step puts something at `path` or at a directory above it.
    pub(crate) fn provides(&self, path: &Path) -> bool {
        path.ancestors().any(|p| self.provided.contains_key(p))
    }

    /// Plans for one capture to go back to `to`.
    pub(crate) fn place(
        &mut self,
        from: &StagedPath,
        attr: &Attr,
        to: &Path,
    ) -> Result<(), Failure> {
        if let Some((obstacle, there)) = self.ensure_parents(to)? {
            let left = self.left_alone(from, to, Why::NoDirectory, Some(&there));
            let in_the_way = Some(Bytes::from(obstacle));
            self.plan.left_alone.push(LeftAlone { in_the_way, ..left });
            return Ok(());
        }
        match self.seen(to)? {
            None => self.move_to(from, attr, to),
            Some(Seen::Staged(at, there)) => self.combine(from, attr, to, &at, &there)?,
            Some(Seen::Made) if attr.is_dir() => self.fill(from, attr, to, true)?,
            Some(Seen::Made) => self.other_version(from, to),
            Some(Seen::Present(there)) => self.occupied(from, attr, to, &there)?,
        }
        Ok(())
    }

    /// Plans for one capture to take the place of what is at `to`, which is captured.
    pub(crate) fn swap(&mut self, from: &StagedPath, attr: &Attr, to: &Path, there: &Attr) {
        let into = self.captures.place_for(self.ws, to, there);
        let swapped_into = Some(into.entry.clone());
        self.plan.intent.steps.push(Step::Swap {
            from: from.clone(),
            to: to.into(),
            ino: attr.ino,
            kind: kind(attr),
            into,
        });
        self.provided
            .insert(to.to_owned(), Provided::Staged(from.clone()));
        self.placed(from, attr, to, swapped_into);
    }

    /// Notes that a capture stays where it is.
    pub(crate) fn leave(&mut self, from: &StagedPath, to: &Path, why: Why, there: Option<&Attr>) {
        let left = self.left_alone(from, to, why, there);
        self.plan.left_alone.push(left);
    }

    fn other_version(&mut self, from: &StagedPath, to: &Path) {
        self.leave(from, to, Why::OtherVersion, None);
    }

    fn move_to(&mut self, from: &StagedPath, attr: &Attr, to: &Path) {
        let whole = self.holding(&from.entry).is_none_or(|h| h.whole_roots);
        self.plan.intent.steps.push(Step::Move {
            from: from.clone(),
            to: to.into(),
            ino: attr.ino,
            kind: kind(attr),
            tame: attr.is_dir() && !whole,
        });
        self.provided
            .insert(to.to_owned(), Provided::Staged(from.clone()));
        self.placed(from, attr, to, None);
    }

    fn placed(&mut self, from: &StagedPath, attr: &Attr, to: &Path, swapped_into: Option<EntryId>) {
        self.plan.placed.push(Placed {
            path: from.path.clone(),
            to: to.into(),
            kind: kind(attr),
            swapped_into,
        });
        self.keep_times_of_parent(to);
    }

    /// A directory that the plan brings keeps its times although something is put into it.
    fn keep_times_of_parent(&mut self, to: &Path) {
        let Some(parent) = to.parent().filter(|p| !p.as_os_str().is_empty()) else {
            return;
        };
        if let Ok(Some(Seen::Staged(at, attr))) = self.seen(parent)
            && !self.is_container(&at, &attr)
        {
            self.late
                .entry(parent.to_owned())
                .or_insert_with(|| Step::Times {
                    path: parent.into(),
                    attrs: DirAttrs::of(&attr),
                });
        }
    }

    /// Something else that the plan puts back is at `to`.
    fn combine(
        &mut self,
        from: &StagedPath,
        attr: &Attr,
        to: &Path,
        at: &StagedPath,
        there: &Attr,
    ) -> Result<(), Failure> {
        let replaces_container = self.is_container(at, there);
        if attr.is_dir() && there.is_dir() && (replaces_container || self.is_container(from, attr))
        {
            return self.fill(from, attr, to, replaces_container);
        }
        let from_is_older = attr.ctime < there.ctime;
        if from_is_older == (self.prefer == Prefer::Oldest) {
            self.plan.intent.steps.push(Step::Exchange {
                from: from.clone(),
                with: to.into(),
                ino: attr.ino,
                kind: kind(attr),
            });
            self.provided
                .insert(to.to_owned(), Provided::Staged(from.clone()));
            self.placed(from, attr, to, None);
        }
        // The one that gives way lies, or comes to lie, where the other one was.
        self.other_version(from, to);
        Ok(())
    }

    /// Puts the content of a staged directory into one that is or will be there; with `adopt`
    /// that one gets its attributes, too.
    fn fill(
        &mut self,
        from: &StagedPath,
        attr: &Attr,
        to: &Path,
        adopt: bool,
    ) -> Result<(), Failure> {
        let content = self.content(from)?;
        let before = self.plan.left_alone.len();
        for (name, child) in content {
            self.place(&from.join(Path::new(&name)), &child, &to.join(&name))?;
        }
        if adopt && !self.is_container(from, attr) {
            let step = Step::Adopt {
                from: from.clone(),
                to: to.into(),
                attrs: DirAttrs::of(attr),
            };
            self.late.insert(to.to_owned(), step);
        }
        if self.plan.left_alone.len() == before {
            self.emptied.push(Step::Drop { from: from.clone() });
        }
        if adopt {
            self.placed(from, attr, to, None);
        }
        Ok(())
    }

    fn content(&self, from: &StagedPath) -> Result<Vec<(std::ffi::OsString, Attr)>, Failure> {
        let what = from.path.display().into_owned();
        let (parent, name) = from
            .open_parent(&self.ws.staging)
            .map_err(|e| io(&what, e))?;
        let dir = beneath::open_dir_at(&parent, name).map_err(|e| io(&what, e))?;
        let mut content = Vec::new();
        for (name, _) in names_in(dir.as_fd()).map_err(|e| Failure::io(&what, &e))? {
            let attr = Attr::at(&dir, name.as_os_str()).map_err(|e| io(&what, e))?;
            content.push((name, attr));
        }
        content.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(content)
    }

    fn occupied(
        &mut self,
        from: &StagedPath,
        attr: &Attr,
        to: &Path,
        there: &Attr,
    ) -> Result<(), Failure> {
        match self.mode {
            Mode::Merge if attr.is_dir() && there.is_dir() => self.fill(from, attr, to, false)?,
            Mode::Swap => self.swap(from, attr, to, there),
            _ => self.leave(from, to, Why::Occupied, Some(there)),
        }
        Ok(())
    }

    /// Plans for the directories above `to`; gives what is in the way where one is no directory.
    fn ensure_parents(&mut self, to: &Path) -> Result<Option<(PathBuf, Attr)>, Failure> {
        let mut missing = Vec::new();
        let mut above = None;
        for dir in to.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()) {
            match self.seen(dir)? {
                None => missing.push(dir.to_owned()),
                Some(Seen::Present(attr) | Seen::Staged(_, attr)) if !attr.is_dir() => {
                    return Ok(Some((dir.to_owned(), attr)));
                }
                Some(Seen::Present(attr) | Seen::Staged(_, attr)) => {
                    above = Some(attr);
                    break;
                }
                Some(Seen::Made) => break,
            }
        }
        for dir in missing.into_iter().rev() {
            self.make_dir(dir, above.as_ref())?;
        }
        Ok(None)
    }

    fn make_dir(&mut self, dir: PathBuf, above: Option<&Attr>) -> Result<(), Failure> {
        let found = parents::removed_directory(self.ws, self.holdings, &dir)?;
        let (like, attrs) = match found {
            Some((at, attr)) => (Some(at), DirAttrs::of(&attr)),
            None => (None, self.default_attrs(above)?),
        };
        if like.is_some() {
            self.late.insert(
                dir.clone(),
                Step::Times {
                    path: dir.as_path().into(),
                    attrs,
                },
            );
        }
        let path = Bytes::from(dir.as_path());
        self.plan.intent.steps.push(Step::MakeDir {
            path: path.clone(),
            like,
            attrs,
        });
        self.plan.recreated.push(path);
        self.provided.insert(dir, Provided::Made);
        Ok(())
    }

    /// For a directory of which nothing is known: like the nearest one above, without more than
    /// what others usually may.
    fn default_attrs(&self, above: Option<&Attr>) -> Result<DirAttrs, Failure> {
        let attr = match above {
            Some(attr) => *attr,
            None => Attr::of(&self.base).map_err(|e| io("the workspace's root", e))?,
        };
        let mut attrs = DirAttrs::of(&attr);
        attrs.mode = (attrs.mode & 0o2755) | 0o700;
        Ok(attrs)
    }

    fn seen(&self, path: &Path) -> Result<Option<Seen>, Failure> {
        for prefix in path.ancestors() {
            match self.provided.get(prefix) {
                Some(Provided::Made) if prefix == path => return Ok(Some(Seen::Made)),
                Some(Provided::Made) => return Ok(None),
                Some(Provided::Staged(at)) => {
                    let rest = path.strip_prefix(prefix).unwrap_or(Path::new(""));
                    let at = if rest.as_os_str().is_empty() {
                        at.clone()
                    } else {
                        at.join(rest)
                    };
                    let attr = at
                        .attr(&self.ws.staging)
                        .map_err(|e| io(&path.display().to_string(), e))?;
                    return Ok(attr.map(|attr| Seen::Staged(at, attr)));
                }
                None => {}
            }
        }
        Ok(self.present(path)?.map(Seen::Present))
    }

    fn holding(&self, id: &EntryId) -> Option<&'a Holding> {
        self.holdings.iter().find(|h| h.dir.id == *id)
    }

    fn is_container(&self, at: &StagedPath, attr: &Attr) -> bool {
        let Ok(tree) = at.tree.parse() else {
            return false;
        };
        self.holding(&at.entry)
            .is_some_and(|h| !h.whole_roots && h.is_container(tree, at.path.as_path(), attr))
    }

    fn left_alone(
        &self,
        from: &StagedPath,
        to: &Path,
        why: Why,
        there: Option<&Attr>,
    ) -> LeftAlone {
        LeftAlone {
            entry: from.entry.clone(),
            path: to.into(),
            in_the_way: None,
            why,
            there: there.map(There::of),
            next: next_command(&from.entry, to, why),
        }
    }
}

/// What to type to have a path that was left alone.
fn next_command(entry: &EntryId, path: &Path, why: Why) -> String {
    let path = quoted(path);
    match why {
        Why::Occupied | Why::ChangedSince => format!("trash restore {entry} {path} --swap"),
        Why::GoneSince => format!("trash restore {entry} {path}"),
        Why::NoDirectory | Why::OtherVersion => format!("trash restore {entry} {path} --to DIR"),
    }
}

/// A path as a shell takes it.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+=@,".contains(c);
    if !text.is_empty() && text.chars().all(plain) && !text.starts_with('-') {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// One candidate for each path, shallow paths first, and those that give way to it.
pub(crate) fn choose(mut all: Vec<Candidate>, prefer: Prefer) -> (Vec<Candidate>, Vec<Candidate>) {
    sort_by_age(&mut all, |c| c);
    if prefer == Prefer::Newest {
        all.reverse();
    }
    let (mut chosen, mut others): (Vec<Candidate>, Vec<Candidate>) = (Vec::new(), Vec::new());
    for candidate in all {
        match chosen.last() {
            Some(last) if last.path() == candidate.path() => others.push(candidate),
            _ => chosen.push(candidate),
        }
    }
    chosen.sort_by_cached_key(|c| (c.path().components().count(), c.path().to_owned()));
    (chosen, others)
}

/// A system error on a named thing.
pub(crate) fn io(what: &str, error: Errno) -> Failure {
    Failure::io(what, &error.into())
}
