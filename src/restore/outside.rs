//! Copies elsewhere: the entry stays. They are built under a name of their own in the
//! destination, verified, and only then given their names, by one rename each that never
//! replaces anything.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use trashfs_mount::Attr;

use crate::failure::Failure;
use crate::ids::EntryId;
use crate::record::Bytes;
use crate::replica::{self, Copier, Spot};
use crate::restore::intent::kind;
use crate::restore::plan::{io, quoted};
use crate::restore::report::{Placed, Restored, Target, There, Verified};
use crate::restore::select;
use crate::restore::staged::{Candidate, Holding, absent};
use crate::restore::tame;
use crate::staging::Tree;
use crate::walk::names_in;
use crate::workspace::Workspace;
use crate::{beneath, discard, relocate};

/// Copies are built in a directory of this name and the entry's id.
const BUILDING: &str = ".trashfs-restoring-";
/// Says that everything in it is verified and only needs its names.
const COMPLETE: &str = "complete";
/// What is to get its name in the destination.
const ITEMS: &str = "items";

/// A destination, opened.
struct Destination<'a> {
    ws: &'a Workspace,
    dir: OwnedFd,
    display: PathBuf,
    /// Workspace-relative path, where it lies inside.
    inside: Option<PathBuf>,
}

impl<'a> Destination<'a> {
    fn open(ws: &'a Workspace, target: &Target) -> Result<Self, Failure> {
        let (dir, display, inside) = match target {
            Target::Inside(path) => {
                let path = select::inside(path)?;
                let display = ws.path.join(&path);
                let dir = ws
                    .with_root(|root| beneath::open_dir(root, &path))
                    .map_err(|e| no_directory(&display, e))?;
                (dir, display, Some(path))
            }
            Target::Outside { dir, display } => {
                let dir = beneath::open_dir(dir.as_fd(), Path::new(""))
                    .map_err(|e| no_directory(display, e))?;
                (dir, display.clone(), None)
            }
        };
        Ok(Self {
            ws,
            dir,
            display,
            inside,
        })
    }

    fn name_changed(&self, name: &OsStr) {
        if let Some(path) = &self.inside {
            self.ws.name_changed(path, name);
        }
    }
}

fn no_directory(display: &Path, e: Errno) -> Failure {
    let failure = io(&display.display().to_string(), e).state("nothing was changed");
    match e {
        Errno::NOENT => Failure {
            code: "no-such-directory".into(),
            ..failure
        }
        .next(format!("mkdir -p {}", quoted(display))),
        Errno::NOTDIR | Errno::LOOP => Failure {
            code: "not-a-directory".into(),
            what: format!("{} is not a directory", display.display()),
            ..failure
        },
        _ => failure,
    }
}

/// Copies `chosen` to the target.
pub(crate) fn copy_out(
    ws: &Workspace,
    holding: &Holding,
    chosen: &[Candidate],
    (target, dry_run): (&Target, bool),
) -> Result<Restored, Failure> {
    let destination = Destination::open(ws, target)?;
    let placed = placements(chosen);
    let names = top_names(&placed);
    refuse_taken(&destination, &names, &holding.dir.id)?;
    let mut restored = Restored {
        entries: vec![holding.dir.id.clone()],
        restored: placed,
        recreated: Vec::new(),
        left_alone: Vec::new(),
        captured: Vec::new(),
        remaining: 0,
        verified: Verified::Hashes,
        notes: Vec::new(),
        dry_run,
    };
    if dry_run {
        return Ok(restored);
    }
    let building = Building::begin(&destination, &holding.dir.id)?;
    match building.fill(holding, chosen, &restored.restored) {
        Ok(notes) => restored.notes = notes,
        Err(e) => {
            let failure = Failure::io(format!("copying to {}", destination.display.display()), &e);
            building.abandon()?;
            return Err(failure.state("nothing was left there; the entry is unchanged"));
        }
    }
    building.hand_over()?;
    restored.remaining = ws.journal.entry(&holding.dir.id)?.map_or(0, |e| e.members);
    Ok(restored)
}

/// Finishes copies that were verified before they were interrupted; clears half-made ones.
pub(crate) fn finish(
    ws: &Workspace,
    id: &EntryId,
    target: &Target,
) -> Result<Option<Restored>, Failure> {
    let destination = Destination::open(ws, target)?;
    let name = building_name(id);
    let Some(building) = Building::found(&destination, &name)? else {
        return Ok(None);
    };
    if absent(Attr::at(&building.dir, COMPLETE))
        .map_err(|e| io(COMPLETE, e))?
        .is_none()
    {
        building.abandon()?;
        return Ok(None);
    }
    let items = beneath::open_dir_at(&building.dir, OsStr::new(ITEMS)).map_err(|e| io(ITEMS, e))?;
    let mut restored = Vec::new();
    for (name, _) in names_in(items.as_fd()).map_err(|e| Failure::io(ITEMS, &e))? {
        let attr = Attr::at(&items, name.as_os_str()).map_err(|e| io(ITEMS, e))?;
        let path = Bytes::from(name.as_os_str());
        restored.push(Placed {
            path: path.clone(),
            to: path,
            kind: kind(&attr),
            swapped_into: None,
        });
    }
    building.hand_over()?;
    Ok(Some(Restored {
        entries: vec![id.clone()],
        restored,
        recreated: Vec::new(),
        left_alone: Vec::new(),
        captured: Vec::new(),
        remaining: ws.journal.entry(id)?.map_or(0, |e| e.members),
        verified: Verified::Hashes,
        notes: Vec::new(),
        dry_run: false,
    }))
}

/// Where each goes: relative to the directory that all have in common.
fn placements(chosen: &[Candidate]) -> Vec<Placed> {
    let parent = |c: &Candidate| c.path().parent().unwrap_or(Path::new("")).to_owned();
    let mut common = chosen.first().map(parent).unwrap_or_default();
    for candidate in chosen {
        while !parent(candidate).starts_with(&common) && common.pop() {}
    }
    chosen
        .iter()
        .map(|c| Placed {
            path: c.at.path.clone(),
            to: c.path().strip_prefix(&common).unwrap_or(c.path()).into(),
            kind: kind(&c.attr),
            swapped_into: None,
        })
        .collect()
}

fn top_names(placed: &[Placed]) -> BTreeSet<OsString> {
    placed
        .iter()
        .filter_map(|p| {
            p.to.as_path()
                .components()
                .next()
                .map(|c| c.as_os_str().to_owned())
        })
        .collect()
}

fn refuse_taken(
    destination: &Destination<'_>,
    names: &BTreeSet<OsString>,
    id: &EntryId,
) -> Result<(), Failure> {
    for name in names {
        let path = destination.display.join(name);
        let there = absent(Attr::at(&destination.dir, name.as_os_str()))
            .map_err(|e| io(&path.display().to_string(), e))?;
        if let Some(attr) = there {
            let what = format!("{} is occupied: {}", path.display(), There::of(&attr));
            return Err(Failure::refused("occupied", what)
                .state("nothing was changed")
                .next(format!("trash restore {id} --to ANOTHER-DIR")));
        }
    }
    Ok(())
}

fn building_name(id: &EntryId) -> String {
    format!("{BUILDING}{id}")
}

/// Copies in the making.
#[must_use]
struct Building<'a> {
    destination: &'a Destination<'a>,
    name: String,
    dir: OwnedFd,
    _lock: OwnedFd,
}

impl<'a> Building<'a> {
    /// Begins; what an interrupted restore of the same entry left half-made goes first.
    fn begin(destination: &'a Destination<'a>, id: &EntryId) -> Result<Self, Failure> {
        let name = building_name(id);
        if let Some(found) = Self::found(destination, &name)? {
            found.abandon()?;
        }
        let made = rustix::fs::mkdirat(&destination.dir, name.as_str(), Mode::RWXU);
        made.map_err(|e| not_writable(&destination.display, e))?;
        let building = Self::found(destination, &name)?
            .ok_or_else(|| io(&destination.display.display().to_string(), Errno::NOENT))?;
        building
            .make_private()
            .map_err(|e| not_writable(&destination.display, e))?;
        Ok(building)
    }

    /// One that is there, locked.
    fn found(destination: &'a Destination<'a>, name: &str) -> Result<Option<Self>, Failure> {
        let what = destination.display.display().to_string();
        let Some(lock) =
            absent(beneath::open_dir_readable(&destination.dir, name)).map_err(|e| io(&what, e))?
        else {
            return Ok(None);
        };
        let owner = Attr::of(&lock).map_err(|e| io(&what, e))?.uid;
        if owner != rustix::process::geteuid().as_raw() {
            return Err(Failure::refused(
                "foreign",
                format!("{what}/{name} belongs to somebody else"),
            ));
        }
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let busy = format!("another restore of this entry to {what} is at work");
            return Err(Failure::refused("busy", busy).state("nothing was changed"));
        }
        let dir =
            beneath::open_dir_at(&destination.dir, OsStr::new(name)).map_err(|e| io(&what, e))?;
        Ok(Some(Self {
            destination,
            name: name.to_owned(),
            dir,
            _lock: lock,
        }))
    }

    /// Nobody else may see it half-made, whatever the destination's defaults.
    fn make_private(&self) -> Result<(), Errno> {
        let here = beneath::open_dir_readable(&self.dir, c".")?;
        match rustix::fs::fremovexattr(&here, "system.posix_acl_default") {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e),
        }
        rustix::fs::fchmod(&here, Mode::RWXU)?;
        rustix::fs::mkdirat(&self.dir, ITEMS, Mode::RWXU)
    }

    /// Makes all copies; gives what could not be copied exactly.
    fn fill(
        &self,
        holding: &Holding,
        chosen: &[Candidate],
        placed: &[Placed],
    ) -> std::io::Result<Vec<String>> {
        let items = beneath::open_dir_at(&self.dir, OsStr::new(ITEMS))?;
        let mut copier = Copier::new(items.as_fd())?.filling();
        for (candidate, placed) in chosen.iter().zip(placed) {
            let to = placed.to.as_path();
            let (holder, attr) = make_parents(&items, holding, candidate, to)?;
            copy_one(&mut copier, holding, candidate, to)?;
            let spot = Spot {
                dir: holder.as_fd(),
                name: OsStr::new("."),
            };
            replica::set_times(spot, attr.atime, attr.mtime)?;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, COMPLETE, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(copier.copied.into_notes())
    }

    /// Gives the verified copies their names, then removes what is left of the making.
    fn hand_over(self) -> Result<(), Failure> {
        let what = self.destination.display.display().to_string();
        let items = beneath::open_dir_at(&self.dir, OsStr::new(ITEMS)).map_err(|e| io(&what, e))?;
        for (name, _) in names_in(items.as_fd()).map_err(|e| Failure::io(&what, &e))? {
            let path = self.destination.display.join(&name);
            let moved = give_name(&items, &name, &self.destination.dir);
            moved.map_err(|e| not_named(&path, e))?;
            self.destination.name_changed(&name);
        }
        self.abandon()
    }

    fn abandon(self) -> Result<(), Failure> {
        let what = self.destination.display.join(&self.name);
        discard::tree(self.destination.dir.as_fd(), self.name.as_ref())
            .map_err(|e| Failure::io(what.display().to_string(), &e))?;
        self.destination.name_changed(self.name.as_ref());
        Ok(())
    }
}

/// The name is given by a rename that replaces nothing; where a filesystem has none, a file gets
/// it by a link, and a directory by making it and moving its content.
fn give_name(items: &OwnedFd, name: &OsStr, to: &OwnedFd) -> Result<(), Errno> {
    match relocate::move_new(items, name, to, name) {
        Err(Errno::INVAL | Errno::NOSYS) => {}
        other => return other,
    }
    if !Attr::at(items, name)?.is_dir() {
        rustix::fs::linkat(items, name, to, name, AtFlags::empty())?;
        return discard::file(items, name);
    }
    Err(Errno::OPNOTSUPP)
}

fn not_named(path: &Path, e: Errno) -> Failure {
    let code = if e == Errno::EXIST { "occupied" } else { "io" };
    Failure {
        code: code.into(),
        ..io(&path.display().to_string(), e)
    }
    .state("the copies are complete and verified, but not all have their names yet")
    .next("trash recover ID --to DIR")
}

fn not_writable(display: &Path, e: Errno) -> Failure {
    let what = format!(
        "nothing can be made in {}: {}",
        display.display(),
        crate::failure::plain(&e.into())
    );
    Failure::failed("not-writable", what)
        .state("nothing was changed")
        .next("choose another directory for --to")
}

/// Makes the directories above a copy, like the removed ones where the entry has them; gives
/// the nearest, with the times that it is to keep.
fn make_parents(
    items: &OwnedFd,
    holding: &Holding,
    candidate: &Candidate,
    to: &Path,
) -> std::io::Result<(OwnedFd, Attr)> {
    let depth = to.components().count();
    let mut dir = beneath::open_dir(items.as_fd(), Path::new(""))?;
    for (at, name) in beneath::names(to.parent().unwrap_or(Path::new("")))?
        .into_iter()
        .enumerate()
    {
        match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {
                let origin = candidate
                    .path()
                    .ancestors()
                    .nth(depth - 1 - at)
                    .unwrap_or(Path::new(""));
                imitate(
                    holding,
                    origin,
                    Spot {
                        dir: dir.as_fd(),
                        name,
                    },
                )?;
            }
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        dir = beneath::open_dir_at(&dir, name)?;
    }
    let attr = Attr::of(&dir)?;
    Ok((dir, attr))
}

fn imitate(holding: &Holding, origin: &Path, spot: Spot<'_>) -> std::io::Result<()> {
    let known = holding
        .exactly_at(origin)?
        .into_iter()
        .find(|c| c.attr.is_dir());
    if let Some(Candidate { attr, .. }) = known {
        replica::set_mode(spot, attr.permissions())?;
        replica::set_times(spot, attr.atime, attr.mtime)?;
    }
    Ok(())
}

fn copy_one(
    copier: &mut Copier,
    holding: &Holding,
    candidate: &Candidate,
    to: &Path,
) -> std::io::Result<()> {
    let in_it = |t: &&Tree| {
        t.name.to_string() == candidate.at.tree && t.area.prefix == candidate.at.area.as_path()
    };
    let tree = holding.trees.iter().find(in_it).ok_or(Errno::NOENT)?;
    let (dir, name) = beneath::open_parent(tree.fd.as_fd(), candidate.path())?;
    let sane = |path: &Path, attr: &Attr| tame::sane_mode(holding, tree.name, path, attr);
    copier.copy(
        Spot {
            dir: dir.as_fd(),
            name,
        },
        (candidate.path(), &sane),
        to,
    )
}
