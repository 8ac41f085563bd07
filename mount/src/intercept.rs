//! The seam between the filesystem and whoever keeps what it destroys.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::{Attr, NodeId};

/// Who made the request (from the FUSE request header).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Filesystem uid of the calling thread.
    pub uid: u32,
    /// Filesystem gid of the calling thread.
    pub gid: u32,
    /// Thread id in the daemon's pid namespace; 0 when the kernel itself asks or the caller
    /// lives in a namespace that the daemon cannot see.
    pub tid: u32,
}

/// Computes a workspace-relative path on demand; removal of a file rarely needs it.
pub trait PathSource {
    /// Path of the directory relative to the workspace root; empty for the root itself.
    fn path(&self) -> Result<PathBuf, Errno>;
}

/// A directory of the workspace in which a name is about to change.
pub struct Dir<'a> {
    /// Stable while the kernel knows the directory. Once the directory is removed
    /// ([`Change::Rmdir`]) the number may come to stand for another one.
    pub id: NodeId,
    /// Changes whenever any directory of the workspace has moved. A path computed under another
    /// epoch is void.
    pub epoch: u64,
    /// `O_PATH` descriptor of the directory in the backing filesystem.
    pub fd: BorrowedFd<'a>,
    /// Where it is now.
    pub path: &'a dyn PathSource,
}

/// What a system call is about to destroy.
pub struct Victim<'a> {
    /// Directory that holds it.
    pub dir: &'a Dir<'a>,
    /// Its name there.
    pub name: &'a OsStr,
    /// Its attributes just now.
    pub attr: &'a Attr,
    /// Its number, as given to [`Interceptor::writers_gone`].
    pub node: NodeId,
    /// Handles through which it is open for writing.
    pub writers: u32,
}

/// A mutation that is about to happen.
#[non_exhaustive]
pub enum Change<'a> {
    /// `unlink(2)` of anything but a directory.
    Unlink(Victim<'a>),
    /// `rmdir(2)`; the directory may turn out not to be empty.
    Rmdir(Victim<'a>),
    /// `rename(2)` onto an existing name that is another inode, without `RENAME_NOREPLACE` or
    /// `RENAME_EXCHANGE`.
    Replace {
        /// What moves.
        source: Victim<'a>,
        /// What the move would destroy.
        target: Victim<'a>,
    },
    /// The file gets shorter: `truncate(2)`, `ftruncate(2)`, `O_TRUNC`.
    Truncate {
        /// The file under one of its names.
        file: Victim<'a>,
        /// Length to come.
        new_size_bytes: u64,
    },
    /// `rename(2)` to a free name.
    Rename {
        /// What moves.
        source: Victim<'a>,
        /// Directory to come.
        to_dir: &'a Dir<'a>,
        /// Name to come.
        to_name: &'a OsStr,
    },
}

/// Where a victim lies now, from the workspace's root in the backing: how the filesystem
/// reaches a file that has no name any more but is still open somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path relative to the backing root.
    pub path: Box<Path>,
}

/// Names a prepared capture until [`Interceptor::settled`] is called. Plain number, so that
/// the path of a removal allocates nothing for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// The interceptor's answer.
#[must_use]
#[derive(Debug)]
pub enum Verdict {
    /// Perform the system call.
    Proceed,
    /// The victim was moved away already and, for [`Change::Replace`], the source has taken its
    /// name: answer success, perform nothing.
    Moved(Place),
    /// Perform the system call, then report its outcome through [`Interceptor::settled`].
    Prepared {
        /// To be given back.
        ticket: Ticket,
        /// Where the victim will lie once the call has succeeded, if anywhere.
        place: Option<Place>,
    },
    /// Answer this error and leave everything as it is.
    Refuse(Errno),
}

/// Kinds of change that an interceptor wants to hear of: those it doesn't cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interests(u32);

impl Interests {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// [`Change::Unlink`].
    pub const UNLINK: Self = Self(1);
    /// [`Change::Rmdir`].
    pub const RMDIR: Self = Self(2);
    /// [`Change::Replace`].
    pub const REPLACE: Self = Self(4);
    /// [`Change::Truncate`].
    pub const TRUNCATE: Self = Self(8);
    /// [`Change::Rename`].
    pub const RENAME: Self = Self(16);
    /// [`Interceptor::created`].
    pub const CREATE: Self = Self(32);

    /// Both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is wanted.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Asked before anything is destroyed.
///
/// Called from several threads at once, in a FUSE handler: an implementation must not touch the
/// mount itself, wait for the network, or call NSS.
pub trait Interceptor: Send + Sync + 'static {
    /// Constant for the life of the mount.
    fn interests(&self) -> Interests;

    /// A change of a wanted kind is about to happen. The kernel holds the locks of the
    /// directories concerned, so names in them are stable.
    fn before(&self, caller: Caller, change: &Change<'_>) -> Verdict;

    /// The outcome of the system call for which `ticket` was given. Called exactly once for
    /// each ticket.
    fn settled(&self, ticket: Ticket, outcome: Result<(), Errno>);

    /// A new file, directory, link or special file has just been made.
    fn created(&self, caller: Caller, attr: &Attr);

    /// `node` is about to be opened for writing. Whoever looks after the disk's room, or wants to
    /// see a file before somebody else changes it, may take a moment here.
    fn opening_to_write(&self, _caller: Caller, _node: NodeId) {}

    /// The last writable handle of a victim that had `writers > 0` was closed.
    fn writers_gone(&self, node: NodeId);

    /// Whether `name` in the directory `dir` is the interceptor's own and must not be seen,
    /// reached or made through the mount. Called for every name: compare bytes first.
    fn hides(&self, dir: &Attr, name: &OsStr) -> bool;

    /// How many of `attr.nlink` are links that [`Interceptor::hides`] conceals (staged copies;
    /// for a directory, hidden subdirectories). Asked only when the number matters.
    fn hidden_links(&self, attr: &Attr) -> u32;

    /// Opens a place returned earlier, as `O_PATH`.
    fn open_place(&self, place: &Place) -> Result<OwnedFd, Errno>;
}

/// Wants nothing, hides nothing: a plain passthrough filesystem.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProceedAlways;

impl Interceptor for ProceedAlways {
    fn interests(&self) -> Interests {
        Interests::NONE
    }
    fn before(&self, _: Caller, _: &Change<'_>) -> Verdict {
        Verdict::Proceed
    }
    fn settled(&self, _: Ticket, _: Result<(), Errno>) {}
    fn created(&self, _: Caller, _: &Attr) {}
    fn writers_gone(&self, _: NodeId) {}
    fn hides(&self, _: &Attr, _: &OsStr) -> bool {
        false
    }
    fn hidden_links(&self, _: &Attr) -> u32 {
        0
    }
    fn open_place(&self, _: &Place) -> Result<OwnedFd, Errno> {
        Err(Errno::STALE)
    }
}
