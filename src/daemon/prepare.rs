//! Opens all that a daemon needs while the backing can still be reached by its path.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use trashfs_mount::Attr;

use crate::daemon::place::Place;
use crate::failure::Failure;
use crate::ids::WorkspaceId;
use crate::staging::{Area, AreaError, STAGING_NAME, whose};
use crate::station::{
    self, Kind, Presence, Register, Registered, RuntimeDir, SetUp, normalised, set_up_local,
};
use crate::workspace::{Workspace, open};
use crate::{discard, relocate, surroundings};

/// Everything that is open before the mount covers the backing.
pub(super) struct Prepared {
    pub(super) place: Place,
    pub(super) registered: Registered,
    pub(super) workspace: Arc<Workspace>,
    pub(super) register: Register,
    pub(super) runtime: RuntimeDir,
    /// Whether the sockets' directory lies in the workspace.
    pub(super) covered: bool,
    /// The station, if it was set up only now.
    pub(super) set_up: Option<SetUp>,
    /// The log, for a daemon in the background.
    pub(super) log: File,
}

/// Opens, locks and reads it all.
pub(super) fn prepare(place: Place) -> Result<Prepared, Failure> {
    let set_up = match station::load()? {
        Some(_) => None,
        None => Some(set_up_local(None)?),
    };
    let station = set_up_local(None)?.station;
    let register = Register::open()?;
    let runtime = RuntimeDir::open()?;
    let area = area(&place, &register)?;
    keeps_names(&area, &place.source)?;
    let registered = entered(&place, &area.workspace, &register)?;
    let log = super::log::open(&register.dir_of(&registered.id)?)
        .map_err(|e| Failure::io(format!("opening the log of {}", registered.id), &e))?;
    let workspace = open::assemble(
        area,
        &registered,
        &station,
        &register,
        open::GarbledPolicy::Refuse,
    )?;
    Ok(Prepared {
        covered: normalised(&surroundings::runtime_dir()).starts_with(&place.path),
        workspace: Arc::new(workspace),
        place,
        registered,
        register,
        runtime,
        set_up,
        log,
    })
}

/// The staging area, made where there is none: under the id that is registered for this place,
/// so that the journal of one whose staging area was lost can say what is missing.
fn area(place: &Place, register: &Register) -> Result<Area, Failure> {
    let known = register.all()?.into_iter().find(|r| {
        r.kind == Kind::Mounted
            && r.path.as_path() == place.path
            && r.source.as_path() == place.source
    });
    match whose(place.root.as_fd()) {
        Ok(id) => not_a_copy(&id, place, register)?,
        Err(AreaError::Missing | AreaError::Foreign) => {}
        Err(e) => return Err(open::area_failure(&place.source, &e)),
    }
    let id = known.map_or_else(WorkspaceId::random, |r| r.id);
    let root = place
        .root
        .try_clone()
        .map_err(|e| Failure::io("opening the workspace", &e))?;
    open::lock(root, Some(&id), &place.source).map_err(|failure| match failure.code.as_str() {
        "locked" => locked(place),
        _ => failure,
    })
}

fn locked(place: &Place) -> Failure {
    let path = place.source.display();
    let holder = station::all()
        .unwrap_or_default()
        .into_iter()
        .find(|l| l.presence == Presence::Live && l.registered.source.as_path() == place.source);
    let Some(holder) = holder else {
        return Failure::refused("locked", format!("another process works in {path}"))
            .state("nothing was mounted")
            .next("trash doctor");
    };
    let mount = holder.registered.mount.as_ref();
    let what = format!(
        "{path} is served by another daemon already (process {}, mounted at {})",
        mount.map_or(0, |m| m.pid),
        holder.path().display()
    );
    Failure::refused("locked", what)
        .state("it stays as it is; nothing was mounted")
        .next(format!("trash unmount {}", holder.path().display()))
}

/// A directory that was copied with its staging area carries the id of the first: two
/// workspaces would share one journal.
fn not_a_copy(id: &WorkspaceId, place: &Place, register: &Register) -> Result<(), Failure> {
    let Some(registered) = register.get(id)? else {
        return Ok(());
    };
    let other = registered.source.as_path();
    let Ok(there) = open::directory(other) else {
        return Ok(());
    };
    let same = match (Attr::of(&there), Attr::of(&place.root)) {
        (Ok(a), Ok(b)) => a.same_file(&b),
        _ => true,
    };
    // What is mounted over that path hides the staging area, so that it must be this one's.
    let still_there = matches!(whose(there.as_fd()), Ok(owner) if owner == *id)
        || station::all()?
            .iter()
            .any(|l| l.registered.id == *id && l.presence == Presence::Live);
    if same || !still_there {
        return Ok(());
    }
    let (path, other) = (place.source.display(), other.display());
    let what = format!("{path} carries a copy of the staging area of the workspace {other}");
    Err(Failure::refused("copied-staging", what)
        .state("both keep what they have; nothing was mounted")
        .next(format!(
            "mv {path}/{STAGING_NAME} {path}/{STAGING_NAME}.copy"
        )))
}

/// The register's record of this place.
fn entered(place: &Place, id: &WorkspaceId, register: &Register) -> Result<Registered, Failure> {
    let record = Registered::new(id.clone(), Kind::Mounted, &place.path, &place.source);
    register.put(&record)?;
    Ok(record)
}

/// Capture relies on a rename that refuses to replace: not every filesystem has it.
fn keeps_names(area: &Area, path: &Path) -> Result<(), Failure> {
    let scratch = crate::beneath::open_dir_at(&area.staging, "scratch".as_ref())
        .map_err(|e| Failure::io("opening the staging area's scratch", &e.into()))?;
    let (from, to) = ("probe", "probe.moved");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(&scratch, from, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) => {}
        // A full filesystem is mounted, too: that is when things are to be removed.
        Err(Errno::NOSPC | Errno::DQUOT) => return Ok(()),
        Err(e) => return Err(Failure::io("writing to the staging area", &e.into())),
    }
    let moved = relocate::move_new(&scratch, from, &scratch, to);
    for name in [from, to] {
        match discard::file(&scratch, name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => {
                return Err(Failure::io(
                    "clearing the staging area's scratch",
                    &e.into(),
                ));
            }
        }
    }
    match moved {
        Ok(()) | Err(Errno::EXIST | Errno::NOSPC | Errno::DQUOT) => Ok(()),
        Err(e @ (Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)) => {
            let what = format!(
                "the filesystem of {} has no rename that refuses to replace ({e})",
                path.display()
            );
            Err(Failure::refused("unsuitable-filesystem", what)
                .state("nothing could be kept safely there; nothing was mounted"))
        }
        Err(e) => Err(Failure::io("renaming in the staging area", &e.into())),
    }
}
