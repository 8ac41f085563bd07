//! Mounts BACKING at MOUNTPOINT without any interceptor, as root: for conformance suites,
//! benchmarks and profiles. `TRASHFS_PLAIN_IO=1` does without kernel passthrough.

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;
use trashfs_mount::{Overlay, OverlayOptions, ProceedAlways, ServeOptions, serve};

#[expect(clippy::disallowed_methods, reason = "a tool for developers")]
fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, backing, mountpoint] = args.as_slice() else {
        eprintln!("usage: passthrough BACKING MOUNTPOINT");
        std::process::exit(1);
    };
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(backing, directory, Mode::empty())?;
    let fuse = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let options = CString::new(format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
        fuse.as_raw_fd()
    ))?;
    rustix::mount::mount(
        "passthrough",
        mountpoint,
        "fuse.passthrough",
        MountFlags::empty(),
        options.as_c_str(),
    )?;
    let overlay = Overlay::new(root, Arc::new(ProceedAlways), OverlayOptions::default())?;
    let threads = std::env::var("TRASHFS_THREADS").ok();
    let options = ServeOptions {
        threads: threads
            .and_then(|n| n.parse().ok())
            .unwrap_or(ServeOptions::default().threads),
        passthrough: std::env::var_os("TRASHFS_PLAIN_IO").is_none(),
        ..ServeOptions::default()
    };
    serve(fuse, Arc::new(overlay), &options)?.join()
}
