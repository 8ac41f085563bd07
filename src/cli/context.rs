//! What a command may ask for: the workspace it is about and the way it may talk.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::cli::Output;
use crate::failure::Failure;

/// What every command gets.
#[derive(Debug)]
pub struct Context {
    /// `--workspace`, as typed.
    pub workspace: Option<PathBuf>,
    /// How to talk.
    pub output: Output,
}

impl Context {
    /// Of one invocation.
    pub fn new(workspace: Option<PathBuf>, output: Output) -> Self {
        Self { workspace, output }
    }

    /// The current directory, also where it was removed from under the process.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn current_dir(&self) -> Result<PathBuf, Failure> {
        if let Ok(dir) = std::env::current_dir() {
            return Ok(dir);
        }
        let link = std::fs::read_link("/proc/self/cwd")
            .map_err(|e| Failure::io("finding the current directory", &e))?;
        Ok(without_deleted_mark(link))
    }

    /// `path` made absolute by the current directory, with `.` and `..` taken out by their
    /// letters, so that a link as last name stays one.
    ///
    /// # Errors
    /// When the current directory is needed and not known.
    pub fn absolute(&self, path: &Path) -> Result<PathBuf, Failure> {
        let mut absolute = if path.is_absolute() {
            PathBuf::new()
        } else {
            self.current_dir()?
        };
        for component in path.components() {
            match component {
                std::path::Component::CurDir => {}
                std::path::Component::ParentDir => {
                    absolute.pop();
                }
                other => absolute.push(other),
            }
        }
        Ok(absolute)
    }
}

/// proc(5) marks the directory of a process that was removed.
fn without_deleted_mark(link: PathBuf) -> PathBuf {
    match link.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(path) => OsString::from_vec(path.to_vec()).into(),
        None => link,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_current_directory_still_has_a_path() {
        let mark = |text: &str| without_deleted_mark(PathBuf::from(text));
        assert_eq!(mark("/w/src (deleted)"), Path::new("/w/src"));
        assert_eq!(mark("/w/src"), Path::new("/w/src"));
    }
}
