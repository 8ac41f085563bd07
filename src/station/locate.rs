//! Which workspace a path belongs to, and whether it is mounted.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use trashfs_mount::mountinfo;

use crate::control;
use crate::failure::{Failure, shell_word};
use crate::staging::whose;
use crate::station::{Register, Registered, RuntimeDir};
use crate::workspace::open;

/// Whether a workspace can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// Mounted, and its daemon answers.
    Live,
    /// Mounted, but its daemon is dead: the mount gives `ENOTCONN`.
    Stale,
    /// Not mounted: commands open it themselves.
    Unmounted,
}

/// A workspace that was found.
#[derive(Clone, Debug)]
pub struct Located {
    /// As it is registered.
    pub registered: Registered,
    /// Whether it is mounted.
    pub presence: Presence,
}

impl Located {
    /// Where users see it.
    pub fn path(&self) -> &Path {
        self.registered.path.as_path()
    }
}

/// All workspaces of this station, by path.
///
/// # Errors
/// When the register can't be read.
pub fn all() -> Result<Vec<Located>, Failure> {
    let mut found = mounted_records()?;
    if let Some(register) = Register::existing()? {
        let known = register.all()?;
        found.extend(known.into_iter().filter(|r| !r.path.0.is_empty()));
    }
    found.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.id.cmp(&b.id)));
    found.dedup_by(|later, first| later.id == first.id);
    let mounts = mountinfo::mounts().unwrap_or_default();
    let located = found.into_iter().map(|registered| {
        let presence = presence(&registered, &mounts);
        Located {
            registered,
            presence,
        }
    });
    Ok(without_predecessors(located.collect()))
}

/// A directory that lost its staging area and got another one is registered twice: the record
/// that counts is the mounted one's, else that of the area which lies there now.
fn without_predecessors(all: Vec<Located>) -> Vec<Located> {
    let counts = |one: &Located| {
        let mut rivals = all.iter().filter(|other| {
            other.registered.id != one.registered.id
                && other.registered.kind == one.registered.kind
                && other.registered.path == one.registered.path
                && other.registered.source == one.registered.source
        });
        one.presence != Presence::Unmounted
            || rivals.next().is_none()
            || open::directory(one.registered.source.as_path())
                .is_ok_and(|root| matches!(whose(root.as_fd()), Ok(id) if id == one.registered.id))
    };
    let kept: Vec<bool> = all.iter().map(counts).collect();
    let all = all.into_iter().zip(kept);
    all.filter_map(|(one, kept)| kept.then_some(one)).collect()
}

/// The workspace that `path` lies in: of several the innermost, and of those with the same path
/// (registered anew after its staging area was lost) the one that is mounted.
///
/// # Errors
/// When the register can't be read.
pub fn workspace_of(path: &Path) -> Result<Option<Located>, Failure> {
    let forms = [path.to_owned(), normalised(path)];
    let depth = |root: &Path| match forms.iter().any(|form| form.starts_with(root)) {
        true => root.components().count(),
        false => 0,
    };
    let rank = |located: &Located| {
        let record = &located.registered;
        let by_mount = depth(record.path.as_path());
        let by_source = depth(record.source.as_path());
        let mounted = located.presence != Presence::Unmounted;
        (by_mount.max(by_source), mounted)
    };
    let mounted_ones = all()?
        .into_iter()
        .filter(|l| l.registered.kind == super::Kind::Mounted);
    Ok(mounted_ones.filter(|l| rank(l).0 > 0).max_by_key(rank))
}

/// `path` with the symbolic links of all that exists of it resolved, and the rest as it is.
pub fn normalised(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        let Ok(resolved) = ancestor.canonicalize() else {
            continue;
        };
        return match path.strip_prefix(ancestor) {
            Ok(rest) if !rest.as_os_str().is_empty() => resolved.join(rest),
            _ => resolved,
        };
    }
    path.to_owned()
}

/// Why something of the station's own can't be reached: where a dead mount covers it, that is
/// the reason, and mounting anew the remedy.
pub(crate) fn unreachable(doing: &str, path: &Path, error: &std::io::Error) -> Failure {
    let what = format!("{doing} {}", path.display());
    let plain = Failure::io(what, error);
    if error.kind() != std::io::ErrorKind::NotConnected {
        return plain;
    }
    let mounts = mountinfo::mounts().unwrap_or_default();
    let above = |m: &&mountinfo::MountEntry| m.is_trashfs() && path.starts_with(&m.mount_point);
    let covering = mounts.iter().filter(above);
    let deepest = covering.max_by_key(|m| m.mount_point.components().count());
    let Some(mount) = deepest else { return plain };
    let mount = mount.mount_point.display();
    let what = format!("{mount} is mounted, but its daemon is dead: {}", plain.what);
    Failure::refused("stale-mount", what)
        .state("it can't be reached until it is mounted anew; nothing was lost")
        .next(format!("trash mount {}", shell_word(&mount)))
}

fn mounted_records() -> Result<Vec<Registered>, Failure> {
    match crate::surroundings::runtime_dir().symlink_metadata() {
        Ok(_) => Ok(RuntimeDir::open()?.records()),
        Err(_) => Ok(Vec::new()),
    }
}

fn presence(registered: &Registered, mounts: &[mountinfo::MountEntry]) -> Presence {
    if control::answers(&registered.id) {
        return Presence::Live;
    }
    match mountinfo::topmost_at(mounts, registered.path.as_path()) {
        Some(mount) if mount.is_trashfs() => Presence::Stale,
        _ => Presence::Unmounted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exists_of_a_path_is_resolved() {
        let scratch = tempfile::tempdir().unwrap();
        let real = scratch.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink("real", &link).unwrap();
        assert_eq!(normalised(&link), real);
        assert_eq!(normalised(&link.join("gone/x")), real.join("gone/x"));
    }
}
