//! Putting paths of a workspace away.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use trashfs_mount::Attr;

use crate::failure::Failure;
use crate::ids::{EntryId, OperationId};
use crate::policy::{Decision, Subject};
use crate::put::{Away, Put, PutSpec};
use crate::record::{Cause, Keep, Kept, OP_FORMAT, OpRecord};
use crate::relocate::move_even_readonly;
use crate::replica::Spot;
use crate::restore::{links, note_lookalikes};
use crate::staging::{Area, CONTAINER_MODE, OP_RECORD, STAGING_NAME, TreeName, write_record};
use crate::walk::names_in;
use crate::workspace::Workspace;
use crate::{beneath, capture, clock, discard, seal};

/// How a path is kept that a rule would have deleted outright: whoever puts it away wants it
/// kept.
const KEPT_ANYWAY: Kept = Kept {
    keep: Keep::Hosted,
    retain: Duration::from_secs(365 * DAY_S),
    versions_max: None,
};
const DAY_S: u64 = 86_400;

/// A path that may be put away.
struct Victim {
    path: PathBuf,
    dir: OwnedFd,
    attr: Attr,
}

impl Victim {
    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or(OsStr::new(""))
    }
}

/// Puts the paths of `spec` away; each is checked before the first goes.
///
/// # Errors
/// A refusal with its reason while nothing was removed; later what went wrong and what was put
/// away until then.
pub fn put_inside(ws: &Workspace, spec: &PutSpec) -> Result<Put, Failure> {
    spec.check()?;
    ws.close_operations();
    let victims: Result<Vec<_>, _> = spec.paths.iter().map(|p| victim(ws, p.as_path())).collect();
    let victims = victims?;
    if spec.permanent {
        return delete(ws, &victims);
    }
    let mut making = Making::new(ws, spec);
    let mut put = Put::default();
    for victim in &victims {
        match making.keep(victim) {
            Ok(entry) => put.put.push(away(ws, victim, Some(entry))),
            Err(failure) => {
                making.seal()?;
                return super::after(&put, Err(failure));
            }
        }
    }
    making.seal()?;
    Ok(put)
}

fn away(ws: &Workspace, victim: &Victim, entry: Option<EntryId>) -> Away {
    Away {
        path: ws.path.join(&victim.path).into(),
        kind: victim.attr.kind().into(),
        entry,
    }
}

fn io(path: &Path, e: Errno) -> Failure {
    Failure::io(path.display().to_string(), &e.into())
}

fn refused(code: &str, path: &Path, why: &str) -> Failure {
    Failure::refused(code, format!("{} is not removed", path.display()))
        .state(format!("{why}; nothing was removed"))
}

fn victim(ws: &Workspace, path: &Path) -> Result<Victim, Failure> {
    let names = beneath::names(path)
        .map_err(|_| refused("outside", path, "it is not inside the workspace"))?;
    let clean: PathBuf = names.into_iter().collect();
    if clean.as_os_str().is_empty() {
        return Err(refused("workspace", &ws.path, "it is the workspace itself"));
    }
    let in_staging = |area: &Area| clean.starts_with(area.prefix.join(STAGING_NAME));
    if ws.staging.areas().iter().any(|area| in_staging(area)) {
        return Err(refused("staging", path, "it lies in a staging area"));
    }
    let (dir, name) = ws
        .with_root(|root| {
            beneath::open_parent(root, &clean).map(|(dir, name)| (dir, name.to_owned()))
        })
        .map_err(|e| no_such(path, e))?;
    let attr = Attr::at(&dir, name.as_os_str()).map_err(|e| no_such(path, e))?;
    let above = Attr::of(&dir).map_err(|e| io(path, e))?;
    if (attr.mnt_id, attr.dev) != (above.mnt_id, above.dev) {
        return Err(refused(
            "mount-point",
            path,
            "another filesystem is mounted there",
        ));
    }
    let over = ws
        .mounted_over(&clean)
        .map_err(|e| Failure::io(path.display().to_string(), &e))?;
    if let Some(point) = over {
        let why = format!("{} is mounted in it", point.display());
        return Err(refused("mount-point", path, &why));
    }
    if attr.is_dir()
        && let Some(inner) = mounted_inside(&dir, &name, &attr)
            .map_err(|e| Failure::io(path.display().to_string(), &e))?
    {
        let why = format!("another filesystem is mounted at {} in it", inner.display());
        return Err(refused("mount-point", path, &why));
    }
    Ok(Victim {
        path: clean,
        dir,
        attr,
    })
}

fn no_such(path: &Path, e: Errno) -> Failure {
    let code = if matches!(e, Errno::NOENT | Errno::NOTDIR) {
        "no-such-file"
    } else {
        "io"
    };
    Failure {
        code: code.into(),
        ..io(path, e)
    }
    .state("nothing was removed")
}

/// The first directory below that lies on another filesystem or holds a staging area of its own.
fn mounted_inside(dir: &OwnedFd, name: &OsStr, attr: &Attr) -> std::io::Result<Option<PathBuf>> {
    let top = beneath::open_dir_at(dir, name)?;
    let mut pending = vec![PathBuf::new()];
    while let Some(below) = pending.pop() {
        let here = beneath::open_dir(top.as_fd(), &below)?;
        let names = match names_in(here.as_fd()) {
            // What can't be looked into can't be mounted upon by its owner either.
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => continue,
            other => other?,
        };
        for (name, kind) in names {
            if !matches!(kind, FileType::Directory | FileType::Unknown) {
                continue;
            }
            let inner = Attr::at(&here, name.as_os_str())?;
            let path = below.join(&name);
            if inner.is_dir() && (inner.mnt_id, inner.dev) != (attr.mnt_id, attr.dev) {
                return Ok(Some(path));
            }
            if inner.is_dir() {
                pending.push(path);
            }
        }
    }
    Ok(None)
}

/// Deletes outright, as was asked for in so many words, and notes it first.
fn delete(ws: &Workspace, victims: &[Victim]) -> Result<Put, Failure> {
    let mut put = Put::default();
    for victim in victims {
        tracing::warn!(path = %victim.path.display(), "deleted outright by trash put --permanent");
        let noted = ws.journal.batch(|rows| {
            rows.deleted_outright(&victim.path.as_path().into(), "trash put --permanent")
        });
        let gone = noted.and_then(|()| {
            discard::tree(victim.dir.as_fd(), victim.name())
                .map_err(|e| Failure::io(victim.path.display().to_string(), &e))
        });
        announce(ws, victim);
        super::after(&put, gone)?;
        put.put.push(away(ws, victim, None));
    }
    Ok(put)
}

fn announce(ws: &Workspace, victim: &Victim) {
    let dir = victim.path.parent().unwrap_or(Path::new(""));
    ws.name_changed(dir, victim.name());
}

/// The entries of one `put`, by the way of keeping; made when first needed.
struct Making<'a> {
    ws: &'a Workspace,
    spec: &'a PutSpec,
    operation: OperationId,
    entries: Vec<(Keep, EntryId)>,
}

impl<'a> Making<'a> {
    fn new(ws: &'a Workspace, spec: &'a PutSpec) -> Self {
        Self {
            ws,
            spec,
            operation: OperationId::random(),
            entries: Vec::new(),
        }
    }

    /// Moves one path into staging.
    fn keep(&mut self, victim: &Victim) -> Result<EntryId, Failure> {
        let kept = self.decide(victim);
        let entry = self.entry(kept.keep, &victim.path)?;
        let tree = TreeName {
            cause: Cause::Remove,
            retain: kept.retain,
            slot: 1,
        };
        let area = self.area(victim)?;
        let place = place(&area, &entry, tree, &victim.path).map_err(|e| io(&victim.path, e))?;
        let spot = Spot {
            dir: victim.dir.as_fd(),
            name: victim.name(),
        };
        note_lookalikes(&place.entry, (tree, &victim.path), spot, &victim.attr)
            .map_err(|e| Failure::io(victim.path.display().to_string(), &e))?;
        let name = victim.name();
        move_even_readonly((&victim.dir, name), (&place.dir, name))
            .map_err(|e| not_moved(&victim.path, e))?;
        announce(self.ws, victim);
        links::announce(
            self.ws,
            Spot {
                dir: place.dir.as_fd(),
                name,
            },
            &victim.attr,
            1,
        );
        Ok(entry)
    }

    fn decide(&self, victim: &Victim) -> Kept {
        let born = victim.attr.btime.unwrap_or(victim.attr.mtime).secs;
        let age_s = (clock::now().0 / 1_000_000_000).saturating_sub(born);
        let decision = self.ws.policy.decide(&Subject {
            path: &victim.path,
            cause: Cause::Remove,
            comm: "trash",
            asked_to_remove: false,
            size_bytes: victim.attr.size_bytes,
            age_s: u64::try_from(age_s).unwrap_or(0),
            scratch: false,
            cache: false,
        });
        let mut kept = match decision {
            Decision::Keep(kept) => kept,
            Decision::Delete { .. } => KEPT_ANYWAY,
        };
        if let Some(days) = self.spec.retention_days {
            kept.retain = Duration::from_secs(u64::from(days) * DAY_S);
        }
        kept
    }

    /// The staging area from which the path can be reached by a rename.
    fn area(&self, victim: &Victim) -> Result<std::sync::Arc<Area>, Failure> {
        let parent = victim.path.parent().unwrap_or(Path::new(""));
        let above = Attr::of(&victim.dir).map_err(|e| io(&victim.path, e))?;
        capture::area_for(&self.ws.staging, &self.ws.id, parent, &above)
            .map_err(|e| io(&victim.path, e))?
            .ok_or_else(|| {
                let why = "its filesystem has no staging area and none can be made";
                refused("no-staging", &victim.path, why)
            })
    }

    /// The entry, with its record written before anything goes into it.
    fn entry(&mut self, keep: Keep, path: &Path) -> Result<EntryId, Failure> {
        if let Some((_, entry)) = self.entries.iter().find(|(k, _)| *k == keep) {
            return Ok(entry.clone());
        }
        let entry = EntryId::random();
        let record = OpRecord {
            format: OP_FORMAT,
            entry: entry.clone(),
            operation: self.operation.clone(),
            workspace: self.ws.id.clone(),
            keep,
            started: clock::now(),
            process: self.spec.process.clone(),
            attribution: self.spec.attribution.clone(),
            made_by: Some("put".to_owned()),
        };
        let main = self.ws.staging.main();
        let dir = beneath::make_dirs(main.ops.as_fd(), Path::new(entry.as_str()), Mode::RWXU)
            .map_err(|e| io(path, e))?;
        let text = serde_json::to_vec(&record).map_err(|e| Failure::io(OP_RECORD, &e.into()))?;
        write_record(&dir, OP_RECORD, &text).map_err(|e| Failure::io(OP_RECORD, &e))?;
        self.entries.push((keep, entry.clone()));
        Ok(entry)
    }

    fn seal(self) -> Result<(), Failure> {
        for (_, entry) in &self.entries {
            if seal::seal_now(self.ws, entry)?.is_none() {
                crate::retention::purge::clear(self.ws, entry)
                    .map_err(|e| Failure::io("clearing an empty entry", &e))?;
            }
        }
        Ok(())
    }
}

/// Directories in staging for one path.
struct Place {
    entry: OwnedFd,
    dir: OwnedFd,
}

fn place(area: &Area, entry: &EntryId, tree: TreeName, path: &Path) -> Result<Place, Errno> {
    let entry = beneath::make_dirs(area.ops.as_fd(), Path::new(entry.as_str()), Mode::RWXU)?;
    let tree = beneath::make_dirs(entry.as_fd(), Path::new(&tree.to_string()), Mode::RWXU)?;
    let parent = path.parent().unwrap_or(Path::new(""));
    let dir = beneath::make_dirs(tree.as_fd(), parent, Mode::from_raw_mode(CONTAINER_MODE))?;
    Ok(Place { entry, dir })
}

fn not_moved(path: &Path, e: Errno) -> Failure {
    let why = crate::failure::plain(&e.into());
    Failure::refused(
        "not-kept",
        format!("{} can't be kept: {why}", path.display()),
    )
    .state("it is where it was")
    .next(format!("trash put --permanent {}", path.display()))
}
