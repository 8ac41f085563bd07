//! The one place that reads the environment: XDG directories (XDG Base Directory
//! Specification 0.8) and the few variables that the product knows.

use std::ffi::OsString;
use std::path::PathBuf;

/// A variable, unless unset or empty.
pub fn variable(name: &str) -> Option<OsString> {
    #[expect(clippy::disallowed_methods, reason = "this is the environment's home")]
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn absolute(name: &str) -> Option<PathBuf> {
    variable(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// `$HOME`, or `/` for a process that has none.
pub fn home() -> PathBuf {
    absolute("HOME").unwrap_or_else(|| PathBuf::from("/"))
}

/// Where the station's configuration lies: `$XDG_CONFIG_HOME/trashfs`.
pub fn config_dir() -> PathBuf {
    absolute("XDG_CONFIG_HOME")
        .unwrap_or_else(|| home().join(".config"))
        .join("trashfs")
}

/// Where journals and the register of workspaces lie: `$XDG_STATE_HOME/trashfs`.
pub fn state_dir() -> PathBuf {
    absolute("XDG_STATE_HOME")
        .unwrap_or_else(|| home().join(".local/state"))
        .join("trashfs")
}

/// Where the units of systemd's user instance lie: `$XDG_CONFIG_HOME/systemd/user`.
pub fn systemd_user_dir() -> PathBuf {
    absolute("XDG_CONFIG_HOME")
        .unwrap_or_else(|| home().join(".config"))
        .join("systemd/user")
}

/// Where control sockets lie: `$XDG_RUNTIME_DIR/trashfs`, else `/run/user/UID/trashfs` where
/// that exists, else `/tmp/trashfs-UID`. Never inside the home directory, since a socket cannot
/// be reached through a mount over it.
pub fn runtime_dir() -> PathBuf {
    if let Some(dir) = absolute("XDG_RUNTIME_DIR") {
        return dir.join("trashfs");
    }
    let uid = rustix::process::getuid().as_raw();
    let run = PathBuf::from(format!("/run/user/{uid}"));
    if run.is_dir() {
        return run.join("trashfs");
    }
    PathBuf::from(format!("/tmp/trashfs-{uid}"))
}
