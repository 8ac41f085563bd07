//! Runs an [`Overlay`] behind a `/dev/fuse` descriptor that is already mounted.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use fuser::{Config, INodeNo, Notifier, Session, SessionACL};
use rustix::io::Errno;

use crate::kernel::Kernel;
use crate::{Interceptor, NodeId, Overlay};

/// How the kernel is to be served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Threads that answer the kernel, at least 1.
    pub threads: usize,
    /// Let the kernel read and write the backing files itself where it agrees to.
    pub passthrough: bool,
    /// The backing filesystem is mounted read-only.
    pub backing_read_only: bool,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8)),
            passthrough: true,
            backing_read_only: false,
        }
    }
}

/// A mount that is being served. Dropping it neither unmounts nor stops anything.
#[derive(Debug)]
pub struct Running {
    view: View,
    thread: JoinHandle<io::Result<()>>,
}

impl Running {
    /// A handle for cache invalidation.
    pub fn view(&self) -> View {
        self.view.clone()
    }

    /// Waits until the filesystem is unmounted.
    pub fn join(self) -> io::Result<()> {
        self.thread
            .join()
            .map_err(|_| io::Error::other("the thread that serves the mount panicked"))?
    }
}

/// Cheap handle that tells the kernel what changed behind its back. To be used from threads
/// that are no FUSE handlers.
#[derive(Clone)]
pub struct View {
    tree: Arc<dyn Tree>,
    notifier: Notifier,
}

/// What a [`View`] needs of an overlay, whoever its interceptor is.
trait Tree: Send + Sync {
    fn node_at(&self, dir: &Path) -> Result<NodeId, Errno>;
    fn directories_moved(&self);
}

impl<I: Interceptor> Tree for Overlay<I> {
    fn node_at(&self, dir: &Path) -> Result<NodeId, Errno> {
        Overlay::node_at(self, dir)
    }

    fn directories_moved(&self) {
        Overlay::directories_moved(self);
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl View {
    /// `name` in the workspace-relative directory `dir` now names something else, or nothing.
    ///
    /// Waits for system calls that are changing `dir` just now, so the caller must hold no lock
    /// that an [`Interceptor`] takes.
    ///
    /// The kernel's cache is a convenience: what cannot be invalidated (a directory that is gone,
    /// a mount that is over) is logged and forgotten.
    pub fn name_changed(&self, dir: &Path, name: &OsStr) {
        self.tree.directories_moved();
        let told = self
            .tree
            .node_at(dir)
            .map_err(io::Error::from)
            .and_then(|node| self.invalidate(INodeNo(node), name));
        if let Err(error) = told {
            tracing::debug!(%error, dir = %dir.display(), name = %name.display(), "stale cache");
        }
    }

    fn invalidate(&self, dir: INodeNo, name: &OsStr) -> io::Result<()> {
        self.notifier.inval_entry(dir, name)?;
        // Attributes and the listing; a directory has no other content.
        self.notifier.inval_inode(dir, 0, 0)
    }
}

/// Answers the kernel on `fuse_fd`, whose mount exists already, until it is unmounted. Returns
/// once the kernel has been greeted.
pub fn serve<I: Interceptor>(
    fuse_fd: OwnedFd,
    overlay: Arc<Overlay<I>>,
    options: &ServeOptions,
) -> io::Result<Running> {
    let notifier = Arc::new(OnceLock::new());
    let kernel = Kernel::new(Arc::clone(&overlay), options, Arc::clone(&notifier));
    let mut config = Config::default();
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    // Who may enter is the kernel's decision (`allow_other`).
    let session = Session::from_fd(kernel, fuse_fd, SessionACL::All, config)?;
    let notifier = notifier.get_or_init(|| session.notifier()).clone();
    let thread = std::thread::Builder::new()
        .name("fuse".to_owned())
        .spawn(move || session.run())?;
    Ok(Running {
        view: View {
            tree: overlay,
            notifier,
        },
        thread,
    })
}
