//! Runs an [`Overlay`] behind a `/dev/fuse` descriptor that is already mounted.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::{Interceptor, Overlay};

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
            threads: 4,
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
#[derive(Clone, Debug)]
pub struct View {}

impl View {
    /// `name` in the workspace-relative directory `dir` now names something else, or nothing.
    pub fn name_changed(&self, dir: &Path, name: &OsStr) {
        let _ = (dir, name);
    }
}

/// Answers the kernel on `fuse_fd`, whose mount exists already, until it is unmounted. Returns
/// once the kernel has been greeted.
pub fn serve<I: Interceptor>(
    fuse_fd: OwnedFd,
    overlay: Arc<Overlay<I>>,
    options: &ServeOptions,
) -> io::Result<Running> {
    let _ = (fuse_fd, overlay, options);
    Err(io::ErrorKind::Unsupported.into())
}
