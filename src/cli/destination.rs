//! The directory that copies go to, in the form in which it travels to whoever writes them.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::Context;
use super::context::word;
use crate::failure::{Ending, Failure};
use crate::record::Bytes;
use crate::station::{self, Located, Presence};

/// A directory of the workspace by its path there, since a daemon must not go through its own
/// mount; any other one open.
#[derive(Debug, Default)]
pub(super) struct Destination {
    pub(super) inside: Option<Bytes>,
    pub(super) outside: Option<Bytes>,
    pub(super) fds: Vec<OwnedFd>,
}

/// What was typed after `--to`, if anything was.
///
/// # Errors
/// `no-such-directory`, and `unreachable` for the workspace by another name.
pub(super) fn of(
    context: &Context,
    located: &Located,
    typed: Option<&Path>,
) -> Result<Destination, Failure> {
    let Some(typed) = typed else {
        return Ok(Destination::default());
    };
    let absolute = context.absolute(typed)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(&absolute, flags, Mode::empty())
        .map_err(|e| no_directory(typed, &e.into()))?;
    let root = match located.presence {
        Presence::Live => located.path(),
        Presence::Stale | Presence::Unmounted => located.registered.source.as_path(),
    };
    if let Ok(inside) = station::normalised(&absolute).strip_prefix(root) {
        return Ok(Destination {
            inside: Some(inside.into()),
            ..Destination::default()
        });
    }
    if located.presence == Presence::Live && same_filesystem(&dir, root) {
        let what = format!("{} is the workspace by another name", typed.display());
        return Err(Failure::refused("unreachable", what)
            .state("nothing was restored")
            .next(format!("name it below {}", root.display())));
    }
    Ok(Destination {
        inside: None,
        outside: Some(Bytes::from(typed)),
        fds: vec![dir],
    })
}

fn no_directory(typed: &Path, error: &std::io::Error) -> Failure {
    let next = match error.kind() {
        std::io::ErrorKind::NotFound => format!("mkdir -p {}", word(typed)),
        _ => "name another directory after --to".to_owned(),
    };
    Failure {
        ending: Ending::Refused,
        code: "no-such-directory".into(),
        ..Failure::io(typed.display().to_string(), error)
    }
    .state("nothing was restored")
    .next(next)
}

fn same_filesystem(dir: &OwnedFd, root: &Path) -> bool {
    match (rustix::fs::fstat(dir), rustix::fs::stat(root)) {
        (Ok(a), Ok(b)) => a.st_dev == b.st_dev,
        _ => false,
    }
}
