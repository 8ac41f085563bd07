//! Doing what was planned, step by step. Every step is atomic and may be repeated; on an error
//! those already taken are taken back.

mod across;
mod back;
mod dirs;
mod swap;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use trashfs_mount::Attr;

use crate::failure::Failure;
use crate::ids::EntryId;
use crate::replica::{self, Spot};
use crate::restore::intent::Step;
use crate::restore::links;
use crate::restore::plan::io;
use crate::restore::report::{LeftAlone, There, Why};
use crate::restore::staged::{Holding, StagedPath, absent};
use crate::restore::tame;
use crate::workspace::Workspace;
use crate::{beneath, discard, relocate};

use self::back::Back;
use self::dirs::keep_times;

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
        match relocate::move_even_readonly((&from_dir, from_name), (&to_dir, to_name)) {
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
            Err(Errno::XDEV) if self.recovering && self.taken(to)? => self.found_there(from, to)?,
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
        match relocate::exchange_even_readonly((&from_dir, from_name), (&dir, name)) {
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

    /// Whether something is at a path of the workspace.
    fn taken(&self, path: &Path) -> Result<bool, Failure> {
        let (dir, name) = self.parent(path)?;
        let there = absent(Attr::at(&dir, name)).map_err(|e| io(&path.display().to_string(), e))?;
        Ok(there.is_some())
    }
}

fn move_failed(to: &Path, e: Errno) -> Failure {
    if e == Errno::EXIST {
        let what = format!("{} has just been taken by something else", to.display());
        return Failure::refused("occupied", what);
    }
    io(&to.display().to_string(), e)
}
