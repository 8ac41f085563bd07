//! What its owner may not read: modes like 0200 and 0000 keep an ordinary user's daemon out of
//! the user's own files. For as long as it has to look inside it gives itself the right, and then
//! the file its mode again. Root needs none of it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use trashfs_mount::Attr;

/// A file or directory that this process may use until this is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct Loosened {
    file: OwnedFd,
    mode: u32,
}

impl Loosened {
    /// To read `name` in `dir`, and to enter it if it is a directory. `None` where that is
    /// possible anyway, or not this process's to decide.
    ///
    /// # Errors
    /// Those of open(2) and chmod(2).
    pub(crate) fn to_read(dir: impl AsFd, name: &OsStr) -> Result<Option<Self>, Errno> {
        Self::with(dir, name, libc::S_IRUSR)
    }

    /// To move it elsewhere, which writes a directory's `..`, or to set extended attributes.
    ///
    /// # Errors
    /// Those of open(2) and chmod(2).
    pub(crate) fn to_write(dir: impl AsFd, name: &OsStr) -> Result<Option<Self>, Errno> {
        Self::with(dir, name, libc::S_IRUSR | libc::S_IWUSR)
    }

    fn with(dir: impl AsFd, name: &OsStr, right: u32) -> Result<Option<Self>, Errno> {
        let me = rustix::process::geteuid();
        if me.is_root() {
            return Ok(None);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        let attr = Attr::of(&file)?;
        let needed = match attr.mode & libc::S_IFMT {
            libc::S_IFDIR => right | libc::S_IXUSR,
            libc::S_IFREG => right,
            _ => return Ok(None),
        };
        let mode = attr.permissions();
        if attr.uid != me.as_raw() || mode & needed == needed {
            return Ok(None);
        }
        let loosened = Self { file, mode };
        loosened.set_mode(mode | needed)?;
        Ok(Some(loosened))
    }

    /// Opens the file itself, whatever has become of its name.
    ///
    /// # Errors
    /// Those of open(2).
    pub(crate) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags.difference(OFlags::NOFOLLOW);
        rustix::fs::openat(CWD, self.path(), flags, Mode::empty())
    }

    /// A path to the file for calls that don't take its descriptor.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        rustix::fs::chmod(self.path(), Mode::from_raw_mode(mode))
    }
}

impl Drop for Loosened {
    fn drop(&mut self) {
        if let Err(error) = self.set_mode(self.mode) {
            tracing::warn!(%error, mode = format_args!("{:o}", self.mode),
                "a file that was opened to its owner did not get its mode again");
        }
    }
}
