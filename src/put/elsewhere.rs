//! Outside of any mount: each filesystem has a staging area from which its files can be reached
//! by a rename, registered like a workspace, so that what it keeps can be listed and restored.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use trashfs_mount::Attr;

use crate::failure::Failure;
use crate::ids::WorkspaceId;
use crate::put::inside::put_inside;
use crate::put::{Away, Put, PutSpec, after};
use crate::reconcile::reconcile;
use crate::staging::{STAGING_NAME, whose};
use crate::station::{self, Kind, Register, Registered, Station, owner_only_dir};
use crate::workspace::{Workspace, open};
use crate::{clock, discard, surroundings};

/// A directory that can hold the staging area for paths below `top`.
struct Site {
    top: PathBuf,
    source: PathBuf,
}

/// Puts away paths that lie in no workspace.
pub(super) fn put(paths: &[PathBuf], spec: &PutSpec) -> Result<Put, Failure> {
    let mut done = Put::default();
    let mut sites: Vec<(Site, Vec<PathBuf>)> = Vec::new();
    for path in paths {
        if spec.permanent {
            let gone = delete(path);
            done.put.push(after(&done, gone)?);
            continue;
        }
        let site = site_for(path)?;
        match sites
            .iter_mut()
            .find(|(known, _)| known.source == site.source)
        {
            Some((_, paths)) => paths.push(path.clone()),
            None => sites.push((site, vec![path.clone()])),
        }
    }
    for (site, paths) in sites {
        let put = open_site(&site).and_then(|ws| {
            let below = |path: &PathBuf| path.strip_prefix(&site.top).unwrap_or(path).into();
            let paths = paths.iter().map(below).collect();
            put_inside(
                &ws,
                &PutSpec {
                    paths,
                    ..spec.clone()
                },
            )
        });
        done.put.extend(after(&done, put)?.put);
    }
    Ok(done)
}

/// The first place on the path's own mount that can hold a staging area: in the station's state
/// directory, at the top of the mount, or beside the path.
fn site_for(path: &Path) -> Result<Site, Failure> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let failed = |e: std::io::Error| {
        Failure::io(path.display().to_string(), &e).state("nothing was removed")
    };
    let wanted = mount_of(parent).map_err(failed)?;
    let top = parent
        .ancestors()
        .take_while(|dir| mount_of(dir).is_ok_and(|mount| mount == wanted))
        .last()
        .unwrap_or(parent)
        .to_owned();
    let own = surroundings::state_dir().join("put");
    let uid = rustix::process::geteuid().as_raw();
    let at_top = top.join(format!("{STAGING_NAME}-{uid}"));
    for source in [own, at_top] {
        let usable = owner_only_dir(&source).is_ok()
            && mount_of(&source).is_ok_and(|mount| mount == wanted)
            && source
                .metadata()
                .is_ok_and(|m| m.mode() & 0o077 == 0 || m.uid() == uid);
        if usable {
            return Ok(Site { top, source });
        }
    }
    Ok(Site {
        top: parent.to_owned(),
        source: parent.to_owned(),
    })
}

/// What can exchange files by rename has the same value.
fn mount_of(dir: &Path) -> std::io::Result<(u64, u64)> {
    let attr = Attr::of(open::directory(dir)?)?;
    Ok((attr.mnt_id, attr.dev))
}

/// Opens the site as a workspace, entering it in the register first.
fn open_site(site: &Site) -> Result<Workspace, Failure> {
    let what = site.source.display().to_string();
    let root = open::directory(&site.source).map_err(|e| Failure::io(&what, &e))?;
    let register = Register::open()?;
    let id = match whose(std::os::fd::AsFd::as_fd(&root)) {
        Ok(id) => id,
        Err(crate::staging::AreaError::Missing) => WorkspaceId::random(),
        Err(e) => return Err(open::area_failure(&site.source, &e)),
    };
    let record = Registered::new(id.clone(), Kind::Put, &site.top, &site.source);
    if register.get(&id)?.as_ref() != Some(&record) {
        register.put(&record)?;
    }
    let area = open::lock(clone(&root, &what)?, Some(&id), &site.source)?;
    let station = station::load()?.unwrap_or_else(Station::unnamed);
    let policy = open::GarbledPolicy::Note;
    let workspace = open::assemble(area, &record, &station, &register, policy)?;
    reconcile(&workspace)?;
    Ok(workspace)
}

fn clone(fd: &OwnedFd, what: &str) -> Result<OwnedFd, Failure> {
    fd.try_clone().map_err(|e| Failure::io(what, &e))
}

/// Deletes outright, noted in the station's log first.
fn delete(path: &Path) -> Result<Away, Failure> {
    let what = path.display().to_string();
    let failed = |e: std::io::Error| Failure::io(&what, &e);
    let parent = open::directory(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    let name = path.file_name().unwrap_or_default();
    let attr = Attr::at(&parent, name).map_err(|e| failed(e.into()))?;
    note(path).map_err(|e| Failure::io("the log of deletions", &e).state("nothing was removed"))?;
    discard::tree(std::os::fd::AsFd::as_fd(&parent), name).map_err(failed)?;
    Ok(Away {
        path: path.into(),
        kind: attr.kind().into(),
        entry: None,
    })
}

/// A line in `deleted.jsonl` of the state directory.
fn note(path: &Path) -> std::io::Result<()> {
    use std::io::Write as _;
    owner_only_dir(&surroundings::state_dir()).map_err(|f| std::io::Error::other(f.what))?;
    let log = surroundings::state_dir().join("deleted.jsonl");
    let line = serde_json::json!({
        "time": clock::now().to_rfc3339(),
        "path": crate::record::Bytes::from(path),
        "by": "trash put --permanent",
    });
    let mut log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)?;
    writeln!(log, "{line}")?;
    log.sync_data()
}
