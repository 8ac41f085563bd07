//! Other filesystems inside the workspace: each gets a staging area at its top, so that what
//! is removed there can be moved instead of copied.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use trashfs_mount::Attr;

use crate::beneath;
use crate::ids::WorkspaceId;
use crate::staging::{Area, Staging};

/// Where captures out of a directory go.
pub(super) struct Site {
    pub(super) area: Arc<Area>,
    pub(super) by_copy: bool,
}

/// Two directories with the same value can exchange files by rename.
type Volume = (u64, u64);

fn volume(attr: &Attr) -> Volume {
    (attr.mnt_id, attr.dev)
}

/// The area from which files of the directory at `path` can be reached by a rename, made where
/// that is possible and needed; none where it is not.
///
/// # Errors
/// Those of opening the directories above.
pub(crate) fn area_for(
    staging: &Arc<Staging>,
    workspace: &WorkspaceId,
    path: &Path,
    attr: &Attr,
) -> Result<Option<Arc<Area>>, Errno> {
    let site = Nested::new(staging.clone(), workspace.clone()).site(path, attr)?;
    Ok((!site.by_copy).then_some(site.area))
}

/// Finds and makes areas.
pub(super) struct Nested {
    staging: Arc<Staging>,
    workspace: WorkspaceId,
    known: Mutex<HashMap<Volume, Option<Arc<Area>>>>,
}

impl Nested {
    pub(super) fn new(staging: Arc<Staging>, workspace: WorkspaceId) -> Self {
        let known = staging
            .areas()
            .into_iter()
            .map(|area| (volume(&area.root_attr), Some(area)))
            .collect();
        Self {
            staging,
            workspace,
            known: Mutex::new(known),
        }
    }

    pub(super) fn main(&self) -> Arc<Area> {
        self.staging.main()
    }

    /// Where captures out of the directory at `path` go.
    pub(super) fn site(&self, path: &Path, attr: &Attr) -> Result<Site, Errno> {
        let main = self.main();
        if volume(attr) == volume(&main.root_attr) {
            return Ok(Site {
                area: main,
                by_copy: false,
            });
        }
        let mut known = self.known.lock();
        let area = match known.get(&volume(attr)) {
            Some(area) => area.clone(),
            None => {
                let made = self.make(path, volume(attr));
                known.insert(volume(attr), made.clone());
                made
            }
        };
        Ok(area.map_or(
            Site {
                area: main,
                by_copy: true,
            },
            |area| Site {
                area,
                by_copy: false,
            },
        ))
    }

    /// Opens or makes the area at the top of `volume`; none where that can't be.
    fn make(&self, path: &Path, wanted: Volume) -> Option<Arc<Area>> {
        // A verb of the product may have made it meanwhile.
        let areas = self.staging.areas();
        if let Some(area) = areas.into_iter().find(|a| volume(&a.root_attr) == wanted) {
            return Some(area);
        }
        let made = self.top_of(path, wanted).and_then(|(root, prefix)| {
            Area::open(root, prefix.clone(), Some(&self.workspace))
                .map_err(|error| {
                    tracing::warn!(path = %prefix.display(), %error,
                    "no staging area on this filesystem: what is removed there is copied")
                })
                .map_err(|()| Errno::ACCESS)
        });
        let area = self.staging.add(made.ok()?);
        if let Err(error) = self.staging.register_areas() {
            tracing::warn!(%error, "the register of staging areas could not be written");
        }
        Some(area)
    }

    /// The topmost directory above `path` that lies on `volume`.
    fn top_of(&self, path: &Path, volume_wanted: Volume) -> Result<(OwnedFd, PathBuf), Errno> {
        let main = self.main();
        let mut prefix = PathBuf::new();
        let mut dir = beneath::open_dir(main.root.as_fd(), Path::new(""))?;
        for name in beneath::names(path)? {
            dir = beneath::open_dir_at(&dir, name)?;
            prefix.push(name);
            if volume(&Attr::of(&dir)?) == volume_wanted {
                return Ok((dir, prefix));
            }
        }
        Err(Errno::NOENT)
    }
}
