//! Directories in a removed tree that only hold a place: their real ones were moved elsewhere
//! before the tree was removed. They go back with a mode that people can use.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use trashfs_mount::Attr;

use crate::beneath;
use crate::loosen::Loosened;
use crate::replica::{self, Spot};
use crate::restore::staged::Holding;
use crate::staging::TreeName;
use crate::walk::names_in;

/// Mode of a place-holding directory whose surroundings say nothing better.
const SANE_MODE: u32 = 0o755;

/// The mode to give a directory in a copy, where its own is that of a container.
pub(crate) fn sane_mode(
    holding: &Holding,
    tree: TreeName,
    path: &Path,
    attr: &Attr,
) -> Option<u32> {
    (!holding.whole_roots && holding.is_container(tree, path, attr)).then_some(SANE_MODE)
}

/// Gives the containers in the removed tree at `spot` the mode and owner of the directory that
/// holds them. Only directories are looked at: a large tree costs little.
pub(crate) fn containers(
    holding: &Holding,
    (tree, path): (TreeName, &Path),
    spot: Spot<'_>,
) -> io::Result<()> {
    let attr = Attr::at(spot.dir, spot.name)?;
    let mut loosened = Vec::new();
    loosened.extend(Loosened::to_read(spot.dir, spot.name)?);
    let top = beneath::open_dir_at(spot.dir, spot.name)?;
    let mut pending: Vec<(PathBuf, Attr)> = vec![(PathBuf::new(), attr)];
    while let Some((below, attr)) = pending.pop() {
        let dir = beneath::open_dir(top.as_fd(), &below)?;
        for name in directories_in(&dir)? {
            let inner_path = below.join(&name);
            let mut inner = Attr::at(&dir, name.as_os_str())?;
            if holding.is_container(tree, &path.join(&inner_path), &inner) {
                let at = Spot {
                    dir: dir.as_fd(),
                    name: &name,
                };
                // As an ordinary user the owner is right already.
                if let Err(e) = replica::set_owner(at, attr.uid, attr.gid) {
                    tracing::debug!(error = %e, "the owner of a place-holding directory stays");
                }
                replica::set_mode(at, attr.permissions())?;
                inner.mode = attr.mode;
            }
            loosened.extend(Loosened::to_read(&dir, &name)?);
            pending.push((inner_path, inner));
        }
    }
    Ok(())
}

fn directories_in(dir: &OwnedFd) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names = names_in(dir.as_fd())?;
    for (name, file_type) in &mut names {
        if *file_type == FileType::Unknown {
            *file_type = FileType::from_raw_mode(Attr::at(dir, name.as_os_str())?.mode);
        }
    }
    names.retain(|(_, file_type)| *file_type == FileType::Directory);
    Ok(names.into_iter().map(|(name, _)| name).collect())
}
