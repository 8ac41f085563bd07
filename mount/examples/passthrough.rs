//! Mounts BACKING at MOUNTPOINT without any interceptor: for conformance suites, benchmarks and
//! profiles. `TRASHFS_PLAIN_IO=1` does without kernel passthrough, `TRASHFS_THREADS=N` sets the
//! number of threads.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use trashfs_mount::session::{MountOptions, mount};
use trashfs_mount::{Overlay, OverlayOptions, ProceedAlways, ServeOptions, serve};

#[expect(clippy::disallowed_methods, reason = "a tool for developers")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, backing, mountpoint] = args.as_slice() else {
        eprintln!("usage: passthrough BACKING MOUNTPOINT");
        std::process::exit(1);
    };
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(backing, directory, Mode::empty())?;
    let point = rustix::fs::open(mountpoint, directory, Mode::empty())?;
    let how = MountOptions {
        allow_other: rustix::process::geteuid().is_root(),
        source_name: "passthrough".into(),
    };
    let (device, pending) = mount(point.as_fd(), Path::new(mountpoint), &how)?;
    let overlay = Overlay::new(root, Arc::new(ProceedAlways), OverlayOptions::default())?;
    let defaults = ServeOptions::default();
    let threads = std::env::var("TRASHFS_THREADS").ok();
    let options = ServeOptions {
        threads: threads.map_or(Ok(defaults.threads), |n| n.parse())?,
        passthrough: std::env::var_os("TRASHFS_PLAIN_IO").is_none(),
        ..defaults
    };
    let running = serve(device, Arc::new(overlay), &options)?;
    pending.keep();
    running.join()?;
    Ok(())
}
