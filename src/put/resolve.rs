//! From a path as it was typed to the file that is meant, and whether it may be put away.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::staging::STAGING_NAME;
use crate::station::{Kind, Located};
use crate::surroundings;

/// The real path of what `typed` means: links in its directories are followed, its last name is
/// not.
pub(super) fn resolve(cwd: &Path, typed: &Path, known: &[Located]) -> Result<PathBuf, Failure> {
    let shown = typed.display();
    let bytes = typed.as_os_str().as_bytes();
    let trimmed = bytes
        .iter()
        .rposition(|b| *b != b'/')
        .map_or(&bytes[..0], |last| &bytes[..=last]);
    if trimmed.is_empty() {
        return Err(refused(
            "root",
            format!("{shown} is not removed"),
            "it is the root directory",
        ));
    }
    let last = trimmed.rsplit(|b| *b == b'/').next().unwrap_or_default();
    if last == b"." || last == b".." {
        let why = "`.` and `..` name a directory that somebody works in";
        return Err(refused("dot", format!("{shown} is not removed"), why));
    }
    let absolute = cwd.join(OsStr::from_bytes(trimmed));
    let parent = absolute.parent().unwrap_or(Path::new("/"));
    let missing = |e: std::io::Error| {
        let code = if e.kind() == std::io::ErrorKind::NotFound {
            "no-such-file"
        } else {
            "io"
        };
        Failure {
            code: code.into(),
            ..Failure::io(shown.to_string(), &e)
        }
        .state("nothing was removed")
    };
    let real = parent
        .canonicalize()
        .map_err(missing)?
        .join(OsStr::from_bytes(last));
    let meta = real.symlink_metadata().map_err(missing)?;
    if trimmed.len() < bytes.len() && meta.is_symlink() {
        let why = "with the slash it means the directory behind the link, without it the link";
        return Err(
            refused("trailing-slash", format!("{shown} is a symbolic link"), why).next(format!(
                "trash put {}",
                OsStr::from_bytes(trimmed).to_string_lossy()
            )),
        );
    }
    if trimmed.len() < bytes.len() && !meta.is_dir() {
        return Err(missing(rustix::io::Errno::NOTDIR.into()));
    }
    may_go(&real, known)?;
    Ok(real)
}

fn refused(code: &str, what: String, why: &str) -> Failure {
    Failure::refused(code, what).state(format!("{why}; nothing was removed"))
}

/// Refuses what the product itself, or a workspace as a whole, stands on.
fn may_go(real: &Path, known: &[Located]) -> Result<(), Failure> {
    let what = || format!("{} is not removed", real.display());
    let uid = rustix::process::geteuid().as_raw();
    let own = format!("{STAGING_NAME}-{uid}");
    if real
        .components()
        .any(|c| c.as_os_str() == STAGING_NAME || c.as_os_str() == own.as_str())
    {
        return Err(refused("staging", what(), "it lies in a staging area"));
    }
    for located in known.iter().filter(|l| l.registered.kind == Kind::Mounted) {
        for root in [
            located.registered.path.as_path(),
            located.registered.source.as_path(),
        ] {
            if root.starts_with(real) {
                let path = root.display();
                let why = format!("the workspace {path} is there");
                return Err(
                    refused("workspace", what(), &why).next(format!("trash unmount {path}"))
                );
            }
        }
    }
    let station = [
        surroundings::state_dir(),
        surroundings::config_dir(),
        surroundings::runtime_dir(),
    ];
    if station.iter().any(|dir| dir.starts_with(real)) {
        return Err(refused(
            "station",
            what(),
            "the station's own state is in it",
        ));
    }
    Ok(())
}
