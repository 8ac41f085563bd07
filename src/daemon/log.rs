//! The daemon's log: a file of its owner only, opened before the mount covers it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tracing_subscriber::EnvFilter;

use crate::{relocate, surroundings};

pub(super) const FILE: &str = "daemon.log";
const BEFORE: &str = "daemon.log.1";
/// A longer one is set aside when the next daemon starts.
const LENGTH_MAX_BYTES: u64 = 8 * 1024 * 1024;

/// Opens the log in `dir`.
pub(super) fn open(dir: &OwnedFd) -> io::Result<File> {
    let log = append(dir)?;
    if log.metadata()?.len() < LENGTH_MAX_BYTES {
        return Ok(log);
    }
    match relocate::replace_record(dir, FILE, BEFORE) {
        Ok(()) | Err(Errno::NOENT) => append(dir),
        Err(e) => Err(e.into()),
    }
}

fn append(dir: &OwnedFd) -> io::Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, FILE, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(fd.into())
}

fn filter() -> EnvFilter {
    let asked = surroundings::variable("RUST_LOG").and_then(|v| v.into_string().ok());
    asked
        .and_then(|text| EnvFilter::try_new(text).ok())
        .unwrap_or_else(|| EnvFilter::new("info"))
}

/// Log to `file` from now on.
pub(super) fn to_file(file: File) {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter())
        .with_ansi(false)
        .with_writer(std::sync::Mutex::new(file));
    set(subscriber.finish());
}

/// Log to standard error from now on: in the foreground.
pub(super) fn to_stderr() {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter())
        .with_ansi(false)
        .with_writer(io::stderr);
    set(subscriber.finish());
}

fn set(subscriber: impl tracing::Subscriber + Send + Sync) {
    if let Err(error) = tracing::subscriber::set_global_default(subscriber) {
        // Only a test process has one already.
        tracing::debug!(%error, "logging was set up before");
    }
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
}
