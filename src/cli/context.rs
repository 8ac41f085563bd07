//! What a command may ask for: the workspace it is about and the way it may talk.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::cli::Output;
use crate::cli::text;
use crate::control::{self, Answer, Request};
use crate::failure::Failure;
use crate::failure::shell_word;
use crate::station::{self, Kind, Located};

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
                Component::CurDir => {}
                Component::ParentDir => {
                    absolute.pop();
                }
                other => absolute.push(other),
            }
        }
        Ok(absolute)
    }

    /// The workspace that the command is about: the one named with `--workspace`, else that of
    /// the current directory, else the only one.
    ///
    /// # Errors
    /// `no-workspace` or `which-workspace`.
    pub fn located(&self) -> Result<Located, Failure> {
        if let Some(named) = &self.workspace {
            return self.named(named);
        }
        if let Ok(dir) = self.current_dir()
            && let Some(located) = station::workspace_of(&dir)?
        {
            return Ok(located);
        }
        only(station::all()?)
    }

    fn named(&self, named: &Path) -> Result<Located, Failure> {
        if let Some(located) = station::workspace_of(&self.absolute(named)?)? {
            return Ok(located);
        }
        let by_id = |l: &Located| named.to_str() == Some(l.registered.id.as_str());
        station::all()?.into_iter().find(by_id).ok_or_else(|| {
            let what = format!("{} lies in no workspace", named.display());
            Failure::failed("no-workspace", what)
                .state("nothing was done")
                .next(format!("trash mount {}", word(named)))
        })
    }

    /// Has `request` done in [`located`](Self::located).
    ///
    /// # Errors
    /// The verb's.
    pub fn call<T: DeserializeOwned>(&self, request: Request) -> Result<T, Failure> {
        control::call_for(&self.located()?, request)
    }

    /// Has the request about an entry done in the workspace that has it: the one that the
    /// command is about, else any other of the station's (entries of `trash put` lie in one
    /// that no directory belongs to).
    ///
    /// # Errors
    /// The verb's; `unknown-id` when no workspace has it.
    pub fn call_about<T>(
        &self,
        ask: impl Fn(&Located) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let first = match self.located() {
            Ok(located) => Some(located),
            Err(failure) if self.workspace.is_some() => return Err(failure),
            Err(_) => None,
        };
        let mut answer = first.as_ref().map(&ask);
        if self.workspace.is_some() {
            return answer.unwrap_or_else(|| Err(unknown_anywhere()));
        }
        for other in station::all()? {
            match &answer {
                Some(Ok(_)) => break,
                Some(Err(failure)) if failure.code != "unknown-id" => break,
                _ => {}
            }
            if first
                .as_ref()
                .is_some_and(|f| f.registered.id == other.registered.id)
            {
                continue;
            }
            match ask(&other) {
                Err(failure) if failure.code == "unknown-id" && answer.is_some() => {}
                // A workspace that can't be asked hides no answer that another one has.
                Err(failure) if failure.code == "stale-mount" && answer.is_some() => {}
                other => answer = Some(other),
            }
        }
        answer.unwrap_or_else(|| Err(unknown_anywhere()))
    }

    /// [`call_about`](Self::call_about) for a request without descriptors.
    ///
    /// # Errors
    /// As that.
    pub fn ask_about<T: DeserializeOwned>(
        &self,
        request: impl Fn() -> Request,
    ) -> Result<T, Failure> {
        self.call_about(|located| control::call_for(located, request()))
    }

    /// As [`ask_about`](Self::ask_about), for an answer that comes with descriptors.
    ///
    /// # Errors
    /// As that.
    pub fn ask_for_answer(&self, request: impl Fn() -> Request) -> Result<Answer, Failure> {
        self.call_about(|located| control::call(located, request(), Vec::<OwnedFd>::new()))
    }

    /// A path as typed, relative to the workspace: an absolute one, or one that begins with `.`,
    /// by where it is; any other one is meant as lists show it.
    ///
    /// # Errors
    /// `outside-workspace`.
    pub fn member(&self, located: &Located, typed: &Path) -> Result<PathBuf, Failure> {
        let by_place = typed.is_absolute()
            || matches!(
                typed.components().next(),
                Some(Component::CurDir | Component::ParentDir)
            );
        if !by_place {
            return Ok(typed.to_owned());
        }
        self.within(located, typed)
    }

    /// A path as typed, by where it is, relative to the workspace.
    ///
    /// # Errors
    /// `outside-workspace`.
    pub fn within(&self, located: &Located, typed: &Path) -> Result<PathBuf, Failure> {
        let absolute = self.absolute(typed)?;
        let resolved = match (absolute.parent(), absolute.file_name()) {
            (Some(parent), Some(name)) => station::normalised(parent).join(name),
            _ => absolute.clone(),
        };
        let root = located.path();
        [&absolute, &resolved]
            .into_iter()
            .find_map(|path| path.strip_prefix(root).ok())
            .map(Path::to_owned)
            .ok_or_else(|| {
                let what = format!(
                    "{} is not in the workspace {}",
                    typed.display(),
                    root.display()
                );
                Failure::failed("outside-workspace", what)
                    .state("nothing was done")
                    .next("trash --workspace DIR … names another workspace")
            })
    }
}

fn unknown_anywhere() -> Failure {
    Failure::failed("no-workspace", "this station has no workspace yet")
        .state("nothing was done")
        .next("trash mount DIR")
}

/// A path for use in a shell.
pub(super) fn word(path: &Path) -> String {
    shell_word(path.to_string_lossy())
}

/// The only workspace there is; of those for `trash put` only if there is no other.
fn only(mut all: Vec<Located>) -> Result<Located, Failure> {
    if all.iter().any(|l| l.registered.kind == Kind::Mounted) {
        all.retain(|l| l.registered.kind == Kind::Mounted);
    }
    match all.len() {
        0 => Err(unknown_anywhere()),
        1 => Ok(all.remove(0)),
        n => {
            let list: Vec<String> = all
                .iter()
                .map(|l| text::safe(&l.path().to_string_lossy()))
                .collect();
            let what = format!("the current directory is in none of the {n} workspaces");
            Err(Failure::failed("which-workspace", what)
                .state(format!("there are {}", list.join(", ")))
                .next("trash --workspace DIR …"))
        }
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
