//! POSIX semantics over the backing directory, without FUSE types.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::Interceptor;

/// What an [`Overlay`] may use of the process's resources.
#[derive(Clone, Debug)]
pub struct OverlayOptions {
    /// Directory descriptors kept open at most; `None` takes a quarter of `RLIMIT_NOFILE`.
    pub max_directory_fds: Option<usize>,
}

impl Default for OverlayOptions {
    fn default() -> Self {
        Self {
            max_directory_fds: None,
        }
    }
}

/// A directory tree whose destructive operations are put to an [`Interceptor`] first.
pub struct Overlay<I> {
    root: OwnedFd,
    interceptor: Arc<I>,
    options: OverlayOptions,
}

impl<I: Interceptor> Overlay<I> {
    /// Over the directory `root`, which may be an `O_PATH` descriptor.
    pub fn new(root: OwnedFd, interceptor: Arc<I>, options: OverlayOptions) -> io::Result<Self> {
        Ok(Self {
            root,
            interceptor,
            options,
        })
    }
}
