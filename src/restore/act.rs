//! Doing what was planned, step by step. Every step is atomic and may be repeated; on an error
//! those already taken are taken back.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use trashfs_mount::{Attr, Timestamp};

use crate::failure::Failure;
use crate::ids::EntryId;
use crate::replica::{self, Copier, Spot};
use crate::restore::intent::{DirAttrs, Step};
use crate::restore::links;
use crate::restore::plan::io;
use crate::restore::report::{LeftAlone, There, Why};
use crate::restore::staged::{Holding, StagedPath, absent};
use crate::restore::tame;
use crate::staging::{Area, CONTAINER_MODE};
use crate::workspace::Workspace;
use crate::{beneath, discard, relocate};

/// Why the work ended early.
#[derive(Debug)]
pub(crate) enum Halt {
    /// An error, worth a message.
    Failed(Failure),
    /// It was told to stop as if the machine had.
    Stopped,
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// How a step is taken back.
enum Back {
    Move {
        from: StagedPath,
        to: PathBuf,
    },
    Exchange {
        from: StagedPath,
        with: PathBuf,
    },
    /// The staged file was brought beside its destination and went no further.
    Brought {
        from: StagedPath,
        into: StagedPath,
    },
    Swap {
        from: StagedPath,
        to: PathBuf,
        into: StagedPath,
    },
    MadeDir(PathBuf),
    /// A verified copy was made; the staged one is still there.
    Copied,
}

/// Takes steps in one workspace.
pub(crate) struct Actor<'a> {
    ws: &'a Workspace,
    base: OwnedFd,
    /// An interrupted restore is being finished: a step may have been taken already.
    recovering: bool,
    /// Asked between any two changes; `true` ends the work as a crash would.
    stop: &'a mut dyn FnMut() -> bool,
    done: Vec<Back>,
    holdings: HashMap<EntryId, Holding>,
    /// Directories whose entries changed.
    pub(crate) touched: BTreeSet<PathBuf>,
    /// Staged files of which a verified copy is in place.
    pub(crate) copied: Vec<StagedPath>,
    /// What recovery could not put back.
    pub(crate) left_alone: Vec<LeftAlone>,
    /// Shortcomings, in words.
    pub(crate) notes: Vec<String>,
    /// After an error: nothing of what was done remains.
    pub(crate) taken_back: bool,
}

impl<'a> Actor<'a> {
    pub(crate) fn new(
        ws: &'a Workspace,
        recovering: bool,
        stop: &'a mut dyn FnMut() -> bool,
    ) -> Result<Self, Failure> {
        let base = ws
            .with_root(|root| beneath::open_dir(root, Path::new("")))
            .map_err(|e| io("the workspace's root", e))?;
        Ok(Self {
            ws,
            base,
            recovering,
            stop,
            done: Vec::new(),
            holdings: HashMap::new(),
            touched: BTreeSet::new(),
            copied: Vec::new(),
            left_alone: Vec::new(),
            notes: Vec::new(),
            taken_back: false,
        })
    }

    /// Takes all steps; on an error takes back those that were taken.
    pub(crate) fn run(&mut self, steps: &[Step]) -> Result<(), Halt> {
        for step in steps {
            match self.step(step) {
                Ok(()) => {}
                Err(Halt::Stopped) => return Err(Halt::Stopped),
                Err(Halt::Failed(failure)) if self.recovering => return Err(failure.into()),
                Err(Halt::Failed(failure)) => return Err(self.take_back(failure).into()),
            }
        }
        Ok(())
    }

    pub(crate) fn pause(&mut self) -> Result<(), Halt> {
        if (self.stop)() {
            Err(Halt::Stopped)
        } else {
            Ok(())
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Halt> {
        self.pause()?;
        match step {
            Step::MakeDir { path, like, attrs } => {
                self.make_dir(path.as_path(), like.as_ref(), attrs)
            }
            Step::Move { from, to, tame, .. } => self.put_back(from, to.as_path(), *tame),
            Step::Exchange {
                from, with, ino, ..
            } => self.exchange(from, with.as_path(), *ino),
            Step::Swap {
                from,
                to,
                ino,
                into,
                ..
            } => self.swap(from, to.as_path(), *ino, into),
            Step::Adopt { from, to, attrs } => self.attributes(Some(from), to.as_path(), attrs),
            Step::Times { path, attrs } => self.times(path.as_path(), attrs),
            Step::Drop { from } => self.drop_emptied(from),
        }
    }

    fn put_back(&mut self, from: &StagedPath, to: &Path, tamed: bool) -> Result<(), Halt> {
        let what = to.display().to_string();
        let Some(attr) = from.attr(&self.ws.staging).map_err(|e| io(&what, e))? else {
            return self.already_gone(to);
        };
        let (from_dir, from_name) = from
            .open_parent(&self.ws.staging)
            .map_err(|e| io(&what, e))?;
        let (to_dir, to_name) = self.parent(to)?;
        if tamed {
            let holding = self.holding(&from.entry)?;
            let spot = Spot {
                dir: from_dir.as_fd(),
                name: from_name,
            };
            tame::containers(holding, (from.tree_name()?, from.path.as_path()), spot)
                .map_err(|e| Failure::io(&what, &e))?;
        }
        let holder = Attr::of(&from_dir).map_err(|e| io(&what, e))?;
        match relocate::move_even_readonly((&from_dir, from_name), (&to_dir, to_name), &attr) {
            Ok(()) => {
                self.done.push(Back::Move {
                    from: from.clone(),
                    to: to.to_owned(),
                });
                keep_times(&from_dir, &holder);
                links::announce(
                    self.ws,
                    Spot {
                        dir: to_dir.as_fd(),
                        name: to_name,
                    },
                    &attr,
                    -1,
                );
            }
            Err(Errno::XDEV) => self.copy_across(from, to)?,
            Err(Errno::EXIST) if self.recovering => self.found_there(from, to)?,
            Err(e) => return Err(move_failed(to, e).into()),
        }
        self.changed(to);
        Ok(())
    }

    /// Recovery finds both the staged file and something at its path.
    fn found_there(&mut self, from: &StagedPath, to: &Path) -> Result<(), Halt> {
        let what = to.display().to_string();
        if self.agrees(from, to)? {
            self.copied.push(from.clone());
            return Ok(());
        }
        let (dir, name) = self.parent(to)?;
        let there = absent(Attr::at(&dir, name)).map_err(|e| io(&what, e))?;
        self.left_alone.push(LeftAlone {
            entry: from.entry.clone(),
            path: to.into(),
            in_the_way: None,
            why: Why::Occupied,
            there: there.as_ref().map(There::of),
            next: format!(
                "trash restore {} {} --swap",
                from.entry,
                super::plan::quoted(to)
            ),
        });
        Ok(())
    }

    /// To another filesystem: a verified copy first; the staged one goes when all is done.
    fn copy_across(&mut self, from: &StagedPath, to: &Path) -> Result<(), Halt> {
        let (to_dir, to_name) = self.parent(to)?;
        let (scratch, name) = self.copy_beside(from, to, &to_dir)?;
        self.pause()?;
        if let Err(e) = relocate::move_new(&scratch, name.as_str(), &to_dir, to_name) {
            let cleared = discard::tree(scratch.as_fd(), name.as_ref());
            self.note_if_failed(cleared, "clearing a half-made copy");
            return Err(move_failed(to, e).into());
        }
        self.done.push(Back::Copied);
        self.copied.push(from.clone());
        Ok(())
    }

    /// A verified, synced copy of a staged file on the filesystem of `dir`.
    fn copy_beside(
        &mut self,
        from: &StagedPath,
        to: &Path,
        dir: &OwnedFd,
    ) -> Result<(OwnedFd, String), Halt> {
        let what = to.display().to_string();
        let (scratch, name) = self.scratch_for(to, dir)?;
        let (from_dir, from_name) = from
            .open_parent(&self.ws.staging)
            .map_err(|e| io(&what, e))?;
        let tree = from.tree_name()?;
        let holding = self.holding(&from.entry)?;
        let sane = |path: &Path, attr: &Attr| tame::sane_mode(holding, tree, path, attr);
        let mut copier = Copier::new(scratch.as_fd()).map_err(|e| io(&what, e))?;
        let spot = Spot {
            dir: from_dir.as_fd(),
            name: from_name,
        };
        let made = copier
            .copy(spot, (from.path.as_path(), &sane), Path::new(&name))
            .and_then(|()| {
                Ok(rustix::fs::syncfs(beneath::open_dir_readable(
                    &scratch, c".",
                )?)?)
            });
        let notes = copier.copied.into_notes();
        self.notes.extend(notes);
        if let Err(e) = made {
            let cleared = discard::tree(scratch.as_fd(), name.as_ref());
            self.note_if_failed(cleared, "clearing a half-made copy");
            return Err(Failure::io(&what, &e).into());
        }
        Ok((scratch, name))
    }

    /// Where a copy can be made out of sight: in the staging area of that filesystem, else under
    /// a name of its own beside its destination.
    fn scratch_for(&self, to: &Path, dir: &OwnedFd) -> Result<(OwnedFd, String), Halt> {
        let what = "the staging area";
        let area = self.ws.staging.area_of(to);
        let here = Attr::of(dir).map_err(|e| io(what, e))?;
        let random = EntryId::random();
        if here.mnt_id == area.root_attr.mnt_id && here.dev == area.root_attr.dev {
            return Ok((
                scratch_of(&area).map_err(|e| io(what, e))?,
                random.to_string(),
            ));
        }
        let beside = beneath::open_dir(dir.as_fd(), Path::new("")).map_err(|e| io(what, e))?;
        Ok((beside, format!(".trashfs-restoring-{random}")))
    }

    fn exchange(&mut self, from: &StagedPath, with: &Path, ino: u64) -> Result<(), Halt> {
        let what = with.display().to_string();
        let (dir, name) = self.parent(with)?;
        if absent(Attr::at(&dir, name))
            .map_err(|e| io(&what, e))?
            .is_some_and(|a| a.ino == ino)
        {
            return Ok(());
        }
        let (from_dir, from_name) = from
            .open_parent(&self.ws.staging)
            .map_err(|e| io(&what, e))?;
        match relocate::exchange(&from_dir, from_name, &dir, name) {
            Ok(()) => self.done.push(Back::Exchange {
                from: from.clone(),
                with: with.to_owned(),
            }),
            Err(Errno::XDEV) => self
                .notes
                .push(format!("{what}: an older version was put back")),
            Err(e) => return Err(io(&what, e).into()),
        }
        self.changed(with);
        Ok(())
    }

    fn swap(
        &mut self,
        from: &StagedPath,
        to: &Path,
        ino: u64,
        into: &StagedPath,
    ) -> Result<(), Halt> {
        let what = to.display().to_string();
        let (to_dir, to_name) = self.parent(to)?;
        let there = absent(Attr::at(&to_dir, to_name)).map_err(|e| io(&what, e))?;
        if there.is_some_and(|a| a.ino == ino) || self.swapped_a_copy(from, to, into)? {
            return Ok(());
        }
        if into
            .attr(&self.ws.staging)
            .map_err(|e| io(&what, e))?
            .is_none()
        {
            self.bring_into(from, to, into)?;
        }
        self.pause()?;
        let (into_dir, into_name) = into
            .open_parent(&self.ws.staging)
            .map_err(|e| io(&what, e))?;
        let exchanged = match relocate::exchange(&into_dir, into_name, &to_dir, to_name) {
            Err(Errno::NOENT) => relocate::move_new(&into_dir, into_name, &to_dir, to_name),
            other => other,
        };
        exchanged.map_err(|e| io(&what, e))?;
        self.changed(to);
        if let Some(attr) = into.attr(&self.ws.staging).map_err(|e| io(&what, e))? {
            links::announce(
                self.ws,
                Spot {
                    dir: into_dir.as_fd(),
                    name: into_name,
                },
                &attr,
                1,
            );
        }
        if let Some(last @ Back::Brought { .. }) = self.done.last_mut() {
            *last = Back::Swap {
                from: from.clone(),
                to: to.to_owned(),
                into: into.clone(),
            };
        }
        Ok(())
    }

    /// Whether recovery finds that a copy of the staged file has already taken its path.
    fn swapped_a_copy(
        &mut self,
        from: &StagedPath,
        to: &Path,
        into: &StagedPath,
    ) -> Result<bool, Halt> {
        let staged = from
            .attr(&self.ws.staging)
            .map_err(|e| io("staging", e))?
            .is_some();
        let taken = into
            .attr(&self.ws.staging)
            .map_err(|e| io("staging", e))?
            .is_some();
        let swapped = self.recovering && staged && taken && self.agrees(from, to)?;
        if swapped {
            self.copied.push(from.clone());
        }
        Ok(swapped)
    }

    /// Moves (or copies) the staged file to where it can change places with what is there.
    fn bring_into(&mut self, from: &StagedPath, to: &Path, into: &StagedPath) -> Result<(), Halt> {
        let what = to.display().to_string();
        let dir = make_place(self.ws, into).map_err(|e| io(&what, e))?;
        let name = into.path.as_path().file_name().unwrap_or(OsStr::new(""));
        let (from_dir, from_name) = from
            .open_parent(&self.ws.staging)
            .map_err(|e| io(&what, e))?;
        let Some(attr) = absent(Attr::at(&from_dir, from_name)).map_err(|e| io(&what, e))? else {
            return self.already_gone(to);
        };
        self.pause()?;
        match relocate::move_even_readonly((&from_dir, from_name), (&dir, name), &attr) {
            Ok(()) => {
                self.done.push(Back::Brought {
                    from: from.clone(),
                    into: into.clone(),
                });
                links::announce(
                    self.ws,
                    Spot {
                        dir: dir.as_fd(),
                        name,
                    },
                    &attr,
                    -1,
                );
            }
            Err(Errno::XDEV) => {
                let (scratch, copy) = self.copy_beside(from, to, &dir)?;
                relocate::move_new(&scratch, copy.as_str(), &dir, name)
                    .map_err(|e| io(&what, e))?;
                self.copied.push(from.clone());
                self.done.push(Back::Copied);
            }
            Err(e) => return Err(io(&what, e).into()),
        }
        Ok(())
    }

    fn make_dir(
        &mut self,
        path: &Path,
        like: Option<&StagedPath>,
        attrs: &DirAttrs,
    ) -> Result<(), Halt> {
        let what = path.display().to_string();
        let (dir, name) = self.parent(path)?;
        if absent(Attr::at(&dir, name))
            .map_err(|e| io(&what, e))?
            .is_some_and(|a| a.is_dir())
        {
            return Ok(());
        }
        let area = self.ws.staging.area_of(path);
        let scratch = scratch_of(&area).map_err(|e| io(&what, e))?;
        let fresh = EntryId::random().to_string();
        rustix::fs::mkdirat(&scratch, fresh.as_str(), Mode::RWXU).map_err(|e| io(&what, e))?;
        let spot = Spot {
            dir: scratch.as_fd(),
            name: fresh.as_ref(),
        };
        self.set_attributes(like, spot, path, attrs);
        match relocate::move_new(&scratch, fresh.as_str(), &dir, name) {
            Ok(()) => {}
            Err(Errno::XDEV) => {
                discard::empty_dir(&scratch, fresh.as_str()).map_err(|e| io(&what, e))?;
                rustix::fs::mkdirat(&dir, name, Mode::RWXU).map_err(|e| io(&what, e))?;
                self.set_attributes(
                    like,
                    Spot {
                        dir: dir.as_fd(),
                        name,
                    },
                    path,
                    attrs,
                );
            }
            Err(e) => return Err(io(&what, e).into()),
        }
        self.done.push(Back::MadeDir(path.to_owned()));
        self.changed(path);
        Ok(())
    }

    fn attributes(
        &mut self,
        like: Option<&StagedPath>,
        path: &Path,
        attrs: &DirAttrs,
    ) -> Result<(), Halt> {
        let (dir, name) = self.parent(path)?;
        self.set_attributes(
            like,
            Spot {
                dir: dir.as_fd(),
                name,
            },
            path,
            attrs,
        );
        self.changed(path);
        Ok(())
    }

    fn set_attributes(
        &mut self,
        like: Option<&StagedPath>,
        at: Spot<'_>,
        path: &Path,
        attrs: &DirAttrs,
    ) {
        let owner = replica::set_owner(at, attrs.uid, attrs.gid);
        self.note_if_failed(
            owner,
            &format!("{}: the owner could not be set", path.display()),
        );
        let mode = replica::set_mode(at, attrs.mode);
        self.note_if_failed(
            mode,
            &format!("{}: the mode could not be set", path.display()),
        );
        if let Some(Ok((dir, name))) = like.map(|staged| staged.open_parent(&self.ws.staging)) {
            for (attribute, e) in replica::copy_xattrs(
                Spot {
                    dir: dir.as_fd(),
                    name,
                },
                at,
            ) {
                let what = format!("{}: {attribute} could not be set", path.display());
                self.note_if_failed(Err::<(), _>(e), &what);
            }
        }
        let (atime, mtime) = times_of(attrs);
        let times = replica::set_times(at, atime, mtime);
        self.note_if_failed(
            times,
            &format!("{}: the times could not be set", path.display()),
        );
    }

    fn times(&mut self, path: &Path, attrs: &DirAttrs) -> Result<(), Halt> {
        let (dir, name) = self.parent(path)?;
        let (atime, mtime) = times_of(attrs);
        let set = replica::set_times(
            Spot {
                dir: dir.as_fd(),
                name,
            },
            atime,
            mtime,
        );
        self.note_if_failed(
            set,
            &format!("{}: the times could not be set", path.display()),
        );
        self.changed(path);
        Ok(())
    }

    fn drop_emptied(&mut self, from: &StagedPath) -> Result<(), Halt> {
        let dropped = from
            .open_parent(&self.ws.staging)
            .and_then(|(dir, name)| discard::empty_dir(&dir, name));
        match dropped {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
            Err(e) => Err(io(&from.path.display(), e).into()),
        }
    }

    /// A staged file is not where the plan saw it.
    fn already_gone(&self, to: &Path) -> Result<(), Halt> {
        if self.recovering {
            return Ok(());
        }
        let what = format!("{} is no longer in the staging area", to.display());
        Err(Failure::failed("gone", what).into())
    }

    fn agrees(&self, from: &StagedPath, to: &Path) -> Result<bool, Halt> {
        let what = to.display().to_string();
        let (from_dir, from_name) = from
            .open_parent(&self.ws.staging)
            .map_err(|e| io(&what, e))?;
        let (dir, name) = self.parent(to)?;
        let staged = Spot {
            dir: from_dir.as_fd(),
            name: from_name,
        };
        match replica::same(
            staged,
            Spot {
                dir: dir.as_fd(),
                name,
            },
        ) {
            Ok(same) => Ok(same),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Failure::io(&what, &e).into()),
        }
    }

    fn parent<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), Failure> {
        beneath::open_parent(self.base.as_fd(), path)
            .map_err(|e| io(&path.display().to_string(), e))
    }

    fn holding(&mut self, id: &EntryId) -> Result<&Holding, Failure> {
        if !self.holdings.contains_key(id) {
            let holding = Holding::open(&self.ws.staging, id)?;
            self.holdings.insert(id.clone(), holding);
        }
        Ok(&self.holdings[id])
    }

    fn changed(&mut self, path: &Path) {
        let dir = path.parent().unwrap_or(Path::new(""));
        if let Some(name) = path.file_name() {
            self.ws.name_changed(dir, name);
        }
        self.touched.insert(dir.to_owned());
    }

    fn note_if_failed<T, E: Into<std::io::Error>>(&mut self, result: Result<T, E>, what: &str) {
        if let Err(e) = result {
            self.notes
                .push(format!("{what}: {}", crate::failure::plain(&e.into())));
        }
    }

    /// Takes back the steps that were taken, newest first, and says in what state things are.
    fn take_back(&mut self, failure: Failure) -> Failure {
        let mut stuck = None;
        while let Some(back) = self.done.pop() {
            if let Err(e) = self.back(&back) {
                stuck = Some(e);
                break;
            }
        }
        match stuck {
            None => {
                self.taken_back = true;
                failure.state("nothing was changed")
            }
            Some(e) => {
                tracing::error!(error = %e, "a failed restore could not be taken back");
                failure
                    .state("it was interrupted; nothing is lost, and it can be finished")
                    .next("trash recover ID")
            }
        }
    }

    fn back(&mut self, back: &Back) -> Result<(), Errno> {
        let staging = &self.ws.staging;
        let place = |path: &Path| {
            beneath::open_parent(self.base.as_fd(), path).map(|(dir, name)| (dir, name.to_owned()))
        };
        let path = match back {
            Back::Brought { from, into } => {
                let ((into_dir, into_name), (from_dir, from_name)) =
                    (into.open_parent(staging)?, from.open_parent(staging)?);
                return relocate::move_new(&into_dir, into_name, &from_dir, from_name);
            }
            Back::Move { from, to } => {
                let ((dir, name), (from_dir, from_name)) = (place(to)?, from.open_parent(staging)?);
                relocate::move_new(&dir, name.as_os_str(), &from_dir, from_name)?;
                to
            }
            Back::Exchange { from, with } => {
                let ((dir, name), (from_dir, from_name)) =
                    (place(with)?, from.open_parent(staging)?);
                relocate::exchange(&dir, name.as_os_str(), &from_dir, from_name)?;
                with
            }
            Back::Swap { from, to, into } => {
                let ((dir, name), (into_dir, into_name)) = (place(to)?, into.open_parent(staging)?);
                relocate::exchange(&dir, name.as_os_str(), &into_dir, into_name)?;
                let (from_dir, from_name) = from.open_parent(staging)?;
                relocate::move_new(&into_dir, into_name, &from_dir, from_name)?;
                to
            }
            Back::MadeDir(path) => {
                let (dir, name) = place(path)?;
                discard::empty_dir(&dir, name.as_os_str())?;
                path
            }
            Back::Copied => return Err(Errno::XDEV),
        };
        self.changed(&path.clone());
        Ok(())
    }
}

/// The directory for half-made copies in an area.
pub(crate) fn scratch_of(area: &Area) -> Result<OwnedFd, Errno> {
    beneath::open_dir_at(&area.staging, OsStr::new("scratch"))
}

/// Makes the directories above a place in staging; gives the one that is to hold it.
pub(crate) fn make_place(ws: &Workspace, into: &StagedPath) -> Result<OwnedFd, Errno> {
    let prefix = into.area.as_path();
    let areas = ws.staging.areas();
    let area = areas
        .iter()
        .find(|a| a.prefix == prefix)
        .ok_or(Errno::NOENT)?;
    let tree = Path::new(into.entry.as_str()).join(&into.tree);
    let tree = beneath::make_dirs(area.ops.as_fd(), &tree, Mode::RWXU)?;
    let parent = into.path.as_path().parent().unwrap_or(Path::new(""));
    beneath::make_dirs(tree.as_fd(), parent, Mode::from_raw_mode(CONTAINER_MODE))
}

/// A staged directory that a member is taken out of keeps its times.
fn keep_times(dir: &OwnedFd, was: &Attr) {
    if was.permissions() == CONTAINER_MODE {
        return;
    }
    let set = replica::set_times(
        Spot {
            dir: dir.as_fd(),
            name: OsStr::new("."),
        },
        was.atime,
        was.mtime,
    );
    if let Err(e) = set {
        tracing::warn!(error = %e, "the times of a staged directory could not be kept");
    }
}

fn times_of(attrs: &DirAttrs) -> (Timestamp, Timestamp) {
    let stamp = |(secs, nanos): (i64, u32)| Timestamp { secs, nanos };
    (stamp(attrs.atime), stamp(attrs.mtime))
}

fn move_failed(to: &Path, e: Errno) -> Failure {
    if e == Errno::EXIST {
        let what = format!("{} has just been taken by something else", to.display());
        return Failure::refused("occupied", what);
    }
    io(&to.display().to_string(), e)
}
