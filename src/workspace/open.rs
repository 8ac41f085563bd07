//! Opening a workspace: its staging area locked, its journal and its policy read, and what the
//! last one to work here left unfinished put in order.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags};

use crate::capture::make_way;
use crate::failure::{Failure, shell_word};
use crate::ids::WorkspaceId;
use crate::journal::Journal;
use crate::policy::{PolicyHandle, StationPolicy};
use crate::reconcile::reconcile;
use crate::staging::{Area, AreaError, STAGING_NAME, Staging};
use crate::station::{self, Kind, Register, Registered, Station};
use crate::workspace::Workspace;

/// Another command may be at work for this long.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The backing directory at `path`, as `O_PATH`.
///
/// # Errors
/// Those of open(2).
pub(crate) fn directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// For a command, while the workspace is not mounted.
///
/// # Errors
/// When its directory is gone, another process works in it, or its policy or journal can't be
/// used.
pub fn for_command(registered: &Registered) -> Result<Workspace, Failure> {
    let source = registered.source.as_path();
    let root = directory(source).map_err(|e| {
        let what = format!("opening the workspace {}", source.display());
        Failure::io(what, &e).state("what it keeps lies in that directory's .trashfs")
    })?;
    let area = lock(root, None, source)?;
    if area.workspace != registered.id {
        let what = format!(
            "the staging area in {} belongs to another workspace than the one registered there",
            source.display()
        );
        return Err(Failure::refused("other-workspace", what)
            .state("nothing was changed")
            .next(format!("trash mount {}", shell_word(source.display()))));
    }
    let station = station::load()?.unwrap_or_else(Station::unnamed);
    let workspace = assemble(
        area,
        registered,
        &station,
        &Register::open()?,
        GarbledPolicy::Note,
    )?;
    reconcile(&workspace)?;
    Ok(workspace)
}

/// Locks the staging area below `root`, making it for `create`, and waits a little for a
/// command that has it.
pub(crate) fn lock(
    root: OwnedFd,
    create: Option<&WorkspaceId>,
    path: &Path,
) -> Result<Area, Failure> {
    let mut waited = Duration::ZERO;
    loop {
        let root = root
            .try_clone()
            .map_err(|e| Failure::io("opening the workspace", &e))?;
        match Area::open(root, PathBuf::new(), create) {
            Err(AreaError::Locked) if waited < LOCK_PATIENCE => {
                std::thread::sleep(LOCK_PAUSE);
                waited += LOCK_PAUSE;
            }
            other => return other.map_err(|e| area_failure(path, &e)),
        }
    }
}

/// What is wrong with the staging area of the workspace at `path`.
pub(crate) fn area_failure(path: &Path, error: &AreaError) -> Failure {
    let path = path.display();
    let state = "nothing was changed";
    match error {
        AreaError::Foreign => Failure::refused(
            "foreign-staging",
            format!("{path}/{STAGING_NAME} exists and is not a staging area of trashfs"),
        )
        .state(state)
        .next(format!(
            "mv {path}/{STAGING_NAME} {path}/{STAGING_NAME}.other"
        )),
        AreaError::Newer(_) => {
            Failure::refused("newer-staging", format!("{path}: {error}")).state(state)
        }
        AreaError::Missing => Failure::failed("no-staging", format!("{path}: {error}"))
            .state("this workspace has kept nothing")
            .next(format!("trash mount {}", shell_word(&path))),
        AreaError::Locked => Failure::refused("locked", format!("{path}: {error}"))
            .state(state)
            .next("trash doctor"),
        AreaError::OtherWorkspace(_) => {
            Failure::refused("other-workspace", format!("{path}: {error}")).state(state)
        }
        AreaError::Io { what, error } => io_failure(&path.to_string(), what, error).state(state),
    }
}

fn io_failure(path: &str, what: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => Failure::refused(
            "read-only",
            format!("{path} is read-only: nothing that is removed there could be kept"),
        ),
        io::ErrorKind::PermissionDenied => Failure::failed(
            "no-permission",
            format!("{path}: {what}: permission denied"),
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Failure::refused(
            "full",
            format!("{path} is full: there is no room to make its staging area"),
        ),
        _ => Failure::io(format!("{path}: {what}"), error),
    }
}

/// What to do about a policy file that can't be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GarbledPolicy {
    /// Refuse: what it wanted kept could be lost.
    Refuse,
    /// Note it: a command that lists or restores destroys nothing.
    Note,
}

/// Everything that a locked staging area needs around it, in order and ready for work.
pub(crate) fn assemble(
    area: Area,
    registered: &Registered,
    station: &Station,
    register: &Register,
    garbled: GarbledPolicy,
) -> Result<Workspace, Failure> {
    make_way(&area);
    let policy = policy(&area, garbled)?;
    let dir = register.dir_of(&registered.id)?;
    let journal = Journal::open(&by_fd(&dir))?;
    let mut staging = Staging::new(area);
    if registered.kind == Kind::Put {
        let base = directory(registered.path.as_path())
            .map_err(|e| Failure::io(registered.path.display(), &e))?;
        staging = staging.based_at(base);
    }
    Ok(Workspace {
        id: registered.id.clone(),
        path: registered.path.as_path().to_owned(),
        station: station.station.clone(),
        staging: Arc::new(staging),
        journal: Arc::new(journal),
        policy: Arc::new(policy),
        live: OnceLock::new(),
    })
}

/// A path that leads to an open directory wherever it is by now.
pub(crate) fn by_fd(dir: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()))
}

fn policy(area: &Area, garbled: GarbledPolicy) -> Result<PolicyHandle, Failure> {
    let file = station::config_path();
    let text = station::config_text()?.unwrap_or_default();
    let rules = StationPolicy::parse(&file.display().to_string(), &text)?;
    let root = area
        .root
        .try_clone()
        .map_err(|e| Failure::io("opening the workspace", &e))?;
    match garbled {
        GarbledPolicy::Refuse => Ok(PolicyHandle::load(rules, root)?),
        GarbledPolicy::Note => Ok(PolicyHandle::load_or_note(rules, root)),
    }
}
