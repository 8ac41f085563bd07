//! Where to mount: the directory, its backing, and what is mounted there already.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::StatVfsMountFlags;
use trashfs_mount::Attr;
use trashfs_mount::mountinfo::{self, Health, MountEntry};
use trashfs_mount::session::Mount;

use crate::control::Pong;
use crate::failure::{Failure, shell_word};
use crate::station::{self, normalised};
use crate::workspace::open;

/// How long a mount's daemon may take to answer before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(3);
/// Stale mounts can lie on top of each other.
const STACKED_MAX: usize = 16;

/// What is asked for. Paths are absolute.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The directory to mount over.
    pub dir: PathBuf,
    /// Another backing directory than `dir` itself.
    pub source: Option<PathBuf>,
    /// Let other users in. Root's mounts always do.
    pub allow_other: bool,
}

/// A place where a mount can be made.
#[derive(Debug)]
pub(super) struct Place {
    /// The mount point, canonical.
    pub(super) path: PathBuf,
    /// The mount point, `O_PATH`.
    pub(super) target: OwnedFd,
    /// The backing directory, canonical.
    pub(super) source: PathBuf,
    /// The backing directory, `O_PATH`.
    pub(super) root: OwnedFd,
    /// What was found out on the way that the user should know.
    pub(super) notices: Vec<String>,
}

/// What there is at the place.
#[derive(Debug)]
pub(super) enum Found {
    /// Room for a mount.
    Free(Place),
    /// This very mount, and its daemon answers.
    Mounted(Pong),
}

/// Finds the place and clears this user's own dead mounts out of it.
pub(super) fn find(wanted: &Wanted) -> Result<Found, Failure> {
    let path = normalised(&wanted.dir);
    if path == Path::new("/") {
        return Err(Failure::refused(
            "unsuitable",
            "the root directory of the system can't be a workspace",
        )
        .state("nothing was mounted")
        .next("trash mount DIR"));
    }
    let mut notices = Vec::new();
    for _ in 0..STACKED_MAX {
        let mounts = mounts()?;
        let Some(there) = mountinfo::topmost_at(&mounts, &path).filter(|m| m.is_trashfs()) else {
            return free(wanted, &path, &mounts, notices).map(Found::Free);
        };
        match mountinfo::health(&path, PATIENCE) {
            Health::Stale => notices.push(clear(there)?),
            Health::Silent => return Err(stuck(&path)),
            _ => return mounted(&path, wanted.source.as_deref()).map(Found::Mounted),
        }
    }
    Err(Failure::refused(
        "stale-mount",
        format!("too many dead mounts lie on {}", path.display()),
    )
    .next(format!("umount -l {}", path.display())))
}

fn mounts() -> Result<Vec<MountEntry>, Failure> {
    mountinfo::mounts().map_err(|e| Failure::io("reading /proc/self/mountinfo", &e))
}

/// Takes away a mount whose daemon is dead, if it is this user's own.
fn clear(there: &MountEntry) -> Result<String, Failure> {
    let path = there.mount_point.display();
    let me = rustix::process::geteuid().as_raw();
    if there.user_id() != Some(me) {
        let what = format!("a dead mount of another user lies on {path}");
        return Err(Failure::refused("stale-mount", what)
            .state("its daemon has ended; nothing was changed")
            .next(format!("as that user or as root: umount -l {path}")));
    }
    let mount = Mount {
        path: there.mount_point.clone(),
        id: there.id,
    };
    mount.unmount(true).map_err(|e| {
        Failure::failed(
            "unmount",
            format!("taking away the dead mount on {path}: {e}"),
        )
        .state("the workspace can't be reached; nothing was lost")
        .next(format!("umount -l {path}"))
    })?;
    Ok(format!("a dead mount on {path} was taken away"))
}

fn stuck(path: &Path) -> Failure {
    let path = path.display();
    Failure::refused(
        "stuck-mount",
        format!("{path} is mounted and its daemon does not answer"),
    )
    .state("it is left as it is")
    .next(format!("trash unmount --lazy {}", shell_word(&path)))
}

/// Whether the mount at `path` is the one that was asked for.
fn mounted(path: &Path, source: Option<&Path>) -> Result<Pong, Failure> {
    let pong = station::all()?
        .iter()
        .filter(|l| l.path() == path)
        .find_map(|l| crate::control::ping(&l.registered.id, PATIENCE).ok());
    let Some(pong) = pong else {
        let what = format!("{} is already mounted as a trashfs", path.display());
        return Err(Failure::refused("mounted", what)
            .state("its daemon is not one of this station's, or does not answer")
            .next("trash doctor"));
    };
    let wanted = source.map_or_else(|| path.to_owned(), normalised);
    if pong.source.as_path() == wanted {
        return Ok(pong);
    }
    let what = format!(
        "{} is already mounted with the backing {} (daemon {})",
        path.display(),
        pong.source.display(),
        pong.pid
    );
    Err(Failure::refused("mounted", what)
        .state("it stays as it is")
        .next(format!("trash unmount {}", path.display())))
}

fn free(
    wanted: &Wanted,
    path: &Path,
    mounts: &[MountEntry],
    notices: Vec<String>,
) -> Result<Place, Failure> {
    let target = existing_directory(&wanted.dir, path)?;
    let source = wanted.source.as_deref().unwrap_or(&wanted.dir);
    let source_path = normalised(source);
    let root = existing_directory(source, &source_path)?;
    outside_workspaces(target.as_fd(), path, mounts)?;
    outside_workspaces(root.as_fd(), &source_path, mounts)?;
    if path != source_path && path.starts_with(&source_path) {
        let what = format!(
            "{} lies inside its own backing directory {}",
            path.display(),
            source_path.display()
        );
        return Err(Failure::refused("inside-backing", what).state("nothing was mounted"));
    }
    writable(root.as_fd(), &source_path)?;
    Ok(Place {
        path: path.to_owned(),
        target,
        source: source_path,
        root,
        notices,
    })
}

fn existing_directory(asked: &Path, path: &Path) -> Result<OwnedFd, Failure> {
    open::directory(path).map_err(|e| {
        let asked = asked.display();
        let failure = match e.kind() {
            io::ErrorKind::NotFound => Failure::failed(
                "no-such-directory",
                format!("there is no directory {asked}"),
            )
            .next(format!("mkdir -p {}", shell_word(&asked))),
            io::ErrorKind::NotADirectory => {
                Failure::failed("not-a-directory", format!("{asked} is not a directory"))
                    .next("trash mount DIR")
            }
            io::ErrorKind::PermissionDenied => {
                Failure::failed("no-permission", format!("{asked} may not be opened"))
            }
            io::ErrorKind::NotConnected => {
                Failure::refused("stale-mount", format!("a dead mount lies above {asked}"))
                    .next("trash doctor")
            }
            _ => Failure::io(format!("opening {asked}"), &e),
        };
        failure.state("nothing was mounted")
    })
}

/// A workspace in a workspace would keep the inner one's staging twice, and each would take the
/// other's renames apart.
fn outside_workspaces(dir: impl AsFd, path: &Path, mounts: &[MountEntry]) -> Result<(), Failure> {
    let id = mountinfo::mount_id_of(dir)
        .map_err(|e| Failure::io(format!("looking at the mount of {}", path.display()), &e))?;
    let ours = || mounts.iter().filter(|m| m.is_trashfs());
    if let Some(around) = ours().find(|m| m.id == id) {
        let what = format!(
            "{} lies inside the workspace {}, which is mounted",
            path.display(),
            around.mount_point.display()
        );
        return Err(Failure::refused("inside-workspace", what)
            .state("what is removed there is kept already; nothing was mounted"));
    }
    let below = |m: &&MountEntry| m.mount_point != path && m.mount_point.starts_with(path);
    if let Some(inner) = ours().find(below) {
        let inner = inner.mount_point.display();
        let what = format!(
            "{} contains the workspace {inner}, which is mounted",
            path.display()
        );
        return Err(Failure::refused("contains-workspace", what)
            .state("nothing was mounted")
            .next(format!("trash unmount {inner}")));
    }
    Ok(())
}

fn writable(root: impl AsFd, path: &Path) -> Result<(), Failure> {
    let stat = rustix::fs::fstatvfs(root).map_err(|e| {
        Failure::io(
            format!("asking the filesystem of {}", path.display()),
            &e.into(),
        )
    })?;
    if stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
        let what = format!(
            "{} is read-only: nothing that is removed there could be kept",
            path.display()
        );
        return Err(Failure::refused("read-only", what).state("nothing was mounted"));
    }
    Ok(())
}

impl Place {
    /// Device and inode number of the backing directory.
    pub(super) fn backing(&self) -> io::Result<(u64, u64)> {
        let attr = Attr::of(&self.root)?;
        Ok((attr.dev, attr.ino))
    }
}
