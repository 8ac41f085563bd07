//! What the product finds around it: its configuration, other programs, FUSE.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::doctor::Check;
use crate::{station, surroundings};

const FUSE_DEVICE: &str = "/dev/fuse";
const FUSE_CONF: &str = "/etc/fuse.conf";

pub(super) fn examine() -> Vec<Check> {
    let mut checks = vec![set_up(), shadowing(), device()];
    checks.extend(fusermount());
    checks.extend(other_users());
    checks
}

fn set_up() -> Check {
    const NAME: &str = "setup";
    match station::load() {
        Ok(Some(station)) => Check::ok(NAME, format!("station {}, local profile", station.station)),
        Ok(None) => Check::warn(
            NAME,
            "this station is not set up; the first mount does it",
            "trash setup --local",
        ),
        Err(failure) => Check::fail(NAME, failure.what, failure.next),
    }
}

/// Another `trash` before this one on PATH (trash-cli has one) would be what users and agents
/// really call.
fn shadowing() -> Check {
    const NAME: &str = "pathShadowing";
    let this = std::env::current_exe().and_then(|path| path.canonicalize());
    let Ok(this) = this else {
        return Check::warn(NAME, "this program's own place is not known", "");
    };
    let on_path = on_path("trash");
    let Some(first) = on_path.first() else {
        return Check::warn(
            NAME,
            format!("no trash is on PATH; this one is {}", this.display()),
            format!("ln -s {} ~/.local/bin/trash", this.display()),
        );
    };
    if first.canonicalize().is_ok_and(|first| first == this) {
        return Check::ok(NAME, format!("trash is {}", this.display()));
    }
    Check::warn(
        NAME,
        format!(
            "another trash comes first on PATH: {} (this one is {})",
            first.display(),
            this.display()
        ),
        format!(
            "export PATH={}:$PATH",
            this.parent().unwrap_or(&this).display()
        ),
    )
}

fn on_path(program: &str) -> Vec<PathBuf> {
    let path = surroundings::variable("PATH").unwrap_or_default();
    let is_program = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .filter(is_program)
        .collect()
}

fn device() -> Check {
    const NAME: &str = "fuse";
    let path = Path::new(FUSE_DEVICE);
    if !path.exists() {
        return Check::fail(
            NAME,
            format!(
                "there is no {FUSE_DEVICE}: the kernel has no FUSE, or this container was not given it"
            ),
            "modprobe fuse",
        );
    }
    let opened = std::fs::File::options().read(true).write(true).open(path);
    match opened {
        Ok(_) => Check::ok(NAME, format!("{FUSE_DEVICE} can be opened")),
        Err(error) => Check::fail(
            NAME,
            format!("{FUSE_DEVICE} can't be opened: {error}"),
            format!("as root: chmod 666 {FUSE_DEVICE}"),
        ),
    }
}

/// Root mounts by itself.
fn fusermount() -> Option<Check> {
    const NAME: &str = "fusermount";
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let found = on_path("fusermount3");
    let Some(path) = found.first() else {
        return Some(Check::fail(
            NAME,
            "fusermount3 is not installed; an ordinary user mounts through it",
            "as root: apt-get install fuse3",
        ));
    };
    let set_uid = path
        .metadata()
        .is_ok_and(|m| m.mode() & 0o4000 != 0 && m.uid() == 0);
    Some(if set_uid {
        Check::ok(NAME, format!("{} is installed", path.display()))
    } else {
        Check::fail(
            NAME,
            format!("{} is not set-user-id root", path.display()),
            format!("as root: chmod u+s {}", path.display()),
        )
    })
}

fn other_users() -> Option<Check> {
    const NAME: &str = "otherUsers";
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let conf = std::fs::read_to_string(FUSE_CONF).unwrap_or_default();
    let allowed = conf.lines().any(|line| line.trim() == "user_allow_other");
    Some(Check::ok(
        NAME,
        match allowed {
            true => "--allow-other is allowed",
            false => "--allow-other needs the line user_allow_other in /etc/fuse.conf",
        },
    ))
}
