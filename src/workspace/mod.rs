//! A workspace opened for work: by the daemon that has it mounted, or by a command while it is
//! not mounted. All verbs take one of these.

pub mod open;

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use trashfs_mount::mountinfo;

use crate::ids::WorkspaceId;
use crate::journal::Journal;
use crate::policy::PolicyHandle;
use crate::staging::Staging;

/// What only a live mount can do.
pub trait Live: Send + Sync {
    /// Closes every open operation and returns once the journal has them as sealed.
    fn close_operations(&self);
    /// Closes the operations whose command has ended, and returns once the journal has them as
    /// sealed: what they hold can be given up from then on.
    fn close_ended_operations(&self) {}
    /// A name in the workspace-relative directory `dir` appeared, went or changed behind the
    /// kernel's back.
    fn name_changed(&self, dir: &Path, name: &OsStr);
    /// Links of inode (`dev`, `ino`) in staging changed by `by` (restored or expired ones: less).
    fn staged_links_changed(&self, dev: u64, ino: u64, by: i32);
    /// Whether any inode has links in staging: where none has, restored trees need no look at
    /// each file.
    fn has_staged_links(&self) -> bool {
        true
    }
}

/// A workspace opened for work.
pub struct Workspace {
    /// Its id.
    pub id: WorkspaceId,
    /// Where users see it.
    pub path: PathBuf,
    /// Name of this station.
    pub station: String,
    /// Its staging areas; the main one's root is the backing directory.
    pub staging: Arc<Staging>,
    /// Its journal.
    pub journal: Arc<Journal>,
    /// Its policy, reloaded when the file changes.
    pub policy: Arc<PolicyHandle>,
    /// The live mount, set once by its daemon.
    pub live: OnceLock<Arc<dyn Live>>,
}

impl Workspace {
    /// A mount at or below the workspace-relative `path` that was made over this workspace's own:
    /// what moves its directory would tear it off.
    ///
    /// # Errors
    /// Those of reading `/proc/self/mountinfo`.
    pub(crate) fn mounted_over(&self, path: &Path) -> std::io::Result<Option<PathBuf>> {
        let top = self.path.join(path);
        Ok(mountinfo::mounts()?
            .into_iter()
            .map(|mount| mount.mount_point)
            .find(|point| point.starts_with(&top)))
    }

    /// Runs `work` with the directory that the workspace's paths start from: the backing's root.
    pub fn with_root<T>(&self, work: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        self.staging.with_base(work)
    }

    /// Tells the kernel, where the workspace is mounted.
    pub fn name_changed(&self, dir: &Path, name: &OsStr) {
        if let Some(live) = self.live.get() {
            live.name_changed(dir, name);
        }
    }

    /// Closes open operations, where the workspace is mounted.
    pub fn close_operations(&self) {
        if let Some(live) = self.live.get() {
            live.close_operations();
        }
    }
}
