//! Taking things out of staging: one rename to `purge/`, from which nothing comes back, then the
//! discarding, which may be interrupted and is finished at the next start.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use trashfs_mount::Attr;

use crate::beneath;
use crate::discard;
use crate::ids::EntryId;
use crate::relocate;
use crate::staging::{Area, Staging, Tree, TreeName};
use crate::walk::names_in;
use crate::workspace::Workspace;

/// Something in `purge/`, to be discarded.
#[must_use = "it occupies the disk until it is discarded"]
#[derive(Debug)]
pub struct Outgoing {
    area: Arc<Area>,
    name: OsString,
}

fn purge_dir(area: &Area) -> Result<OwnedFd, Errno> {
    beneath::open_dir_at(&area.staging, OsStr::new("purge"))
}

/// The entry that a name in `purge/` belongs to, and the tree if it is only that; `None` for
/// what is not ours.
pub fn parse_name(name: &OsStr) -> Option<(EntryId, Option<TreeName>)> {
    let text = name.to_str()?;
    match text.split_once('.') {
        None => Some((text.parse().ok()?, None)),
        Some((id, tree)) => Some((id.parse().ok()?, Some(tree.parse().ok()?))),
    }
}

/// Takes an entry out of every area. Nothing of it can be restored from here on.
///
/// # Errors
/// Those of rename(2); areas before the failing one have let it go, and a repetition goes on
/// from there.
pub fn take_out(staging: &Staging, id: &EntryId) -> io::Result<Vec<Outgoing>> {
    let mut out = Vec::new();
    for area in staging.areas() {
        let ops = area.ops.as_fd();
        if let Some(outgoing) = move_out(&area, ops, OsStr::new(id.as_str()), id.as_str().into())? {
            out.push(outgoing);
        }
    }
    Ok(out)
}

/// Takes one tree of an entry out.
///
/// # Errors
/// Those of rename(2).
pub fn take_out_tree(tree: &Tree, id: &EntryId) -> io::Result<Option<Outgoing>> {
    let name = tree.name.to_string();
    let entry = beneath::open_dir_at(&tree.area.ops, OsStr::new(id.as_str()))?;
    let target = format!("{id}.{name}").into();
    move_out(&tree.area, entry.as_fd(), OsStr::new(&name), target)
}

fn move_out(
    area: &Arc<Area>,
    dir: BorrowedFd<'_>,
    name: &OsStr,
    target: OsString,
) -> io::Result<Option<Outgoing>> {
    let purge = purge_dir(area)?;
    let outgoing = Outgoing {
        area: area.clone(),
        name: target,
    };
    loop {
        match relocate::move_new(dir, name, &purge, outgoing.name.as_os_str()) {
            Ok(()) => return Ok(Some(outgoing)),
            Err(Errno::NOENT) => return Ok(None),
            // An earlier purge of the same name was interrupted.
            Err(Errno::EXIST) => discard::tree(purge.as_fd(), &outgoing.name)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Discards what was taken out; returns how many bytes of the disk that gave back.
///
/// # Errors
/// Those of removing; what remains is discarded at the next start.
pub fn discard(ws: &Workspace, outgoing: Vec<Outgoing>) -> io::Result<u64> {
    let mut freed_bytes = 0;
    for out in outgoing {
        let purge = purge_dir(&out.area)?;
        freed_bytes += discard_at(ws, purge.as_fd(), &out.name)?;
    }
    Ok(freed_bytes)
}

/// Discards one name in a staged directory with all below it.
pub(super) fn discard_at(ws: &Workspace, dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<u64> {
    let mut freed_bytes = 0;
    discard::tree_telling(dir, name, &mut |attr: &Attr| {
        if attr.nlink <= 1 {
            freed_bytes += attr.blocks * 512;
        }
        // Also of a last link: the others may have gone since it was counted, and its number
        // will be used again.
        if let Some(live) = ws.live.get() {
            live.staged_links_changed(attr.dev, attr.ino, -1);
        }
    })?;
    Ok(freed_bytes)
}

/// Removes an entry's directory after everything in it went back: records and empty containers.
///
/// # Errors
/// Those of renaming and removing.
pub fn clear(ws: &Workspace, id: &EntryId) -> io::Result<()> {
    let outgoing = take_out(&ws.staging, id)?;
    discard(ws, outgoing).map(drop)
}

/// Everything that lies in `purge/` of any area, ours or not.
///
/// # Errors
/// Those of reading a directory.
pub fn lying(staging: &Staging) -> io::Result<Vec<(Option<EntryId>, Outgoing)>> {
    let mut found = Vec::new();
    for area in staging.areas() {
        for (name, _) in names_in(purge_dir(&area)?.as_fd())? {
            let entry = parse_name(&name).map(|(id, _)| id);
            let area = area.clone();
            found.push((entry, Outgoing { area, name }));
        }
    }
    Ok(found)
}

impl Outgoing {
    /// Whether it is a whole entry rather than one of its trees.
    pub fn is_whole_entry(&self) -> bool {
        matches!(parse_name(&self.name), Some((_, None)))
    }

    /// For messages: its path below the area's root.
    pub fn place(&self) -> std::path::PathBuf {
        self.area
            .prefix
            .join(crate::staging::STAGING_NAME)
            .join("purge")
            .join(&self.name)
    }
}
