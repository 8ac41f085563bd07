//! The mount as programs see it. Needs root and `/dev/fuse`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod behaviour;
mod data;
mod guarded;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use trashfs_mount::session::{self, Mount, MountOptions};
use trashfs_mount::{
    Interceptor, Overlay, OverlayOptions, ProceedAlways, Running, ServeOptions, View, serve,
};

/// A backing directory, mounted elsewhere.
struct Mounted {
    backing: tempfile::TempDir,
    point: tempfile::TempDir,
    mount: Option<Mount>,
    running: Option<Running>,
}

impl Mounted {
    /// With nobody to ask; `passthrough` as in [`ServeOptions`].
    fn plain(passthrough: bool) -> Self {
        Self::with(Arc::new(ProceedAlways), passthrough)
    }

    fn with<I: Interceptor>(interceptor: Arc<I>, passthrough: bool) -> Self {
        let (backing, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&backing, &point] {
            rustix::fs::chmod(dir.path(), Mode::from_raw_mode(0o777)).unwrap();
        }
        let options = MountOptions {
            allow_other: true,
            source_name: "test".into(),
        };
        let target = open_dir(point.path());
        let (device, pending) = session::mount(target.as_fd(), point.path(), &options).unwrap();
        let root = open_dir(backing.path());
        let overlay = Overlay::new(root, interceptor, OverlayOptions::default()).unwrap();
        let options = ServeOptions {
            passthrough,
            ..ServeOptions::default()
        };
        let running = serve(device, Arc::new(overlay), &options).unwrap();
        Self {
            backing,
            point,
            mount: Some(pending.keep()),
            running: Some(running),
        }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.point.path().join(name)
    }

    /// The same file past the mount.
    fn below(&self, name: impl AsRef<Path>) -> PathBuf {
        self.backing.path().join(name)
    }

    fn view(&self) -> View {
        self.running.as_ref().unwrap().view()
    }

    /// Runs a shell script inside; fails with what it printed.
    fn shell(&self, script: &str) -> String {
        self.shell_as(0, script)
    }

    fn shell_as(&self, uid: u32, script: &str) -> String {
        use std::os::unix::process::CommandExt;
        let output = Command::new("sh")
            .args(["-euc", &format!("{PRELUDE}{script}")])
            .current_dir(self.point.path())
            .uid(uid)
            .gid(uid)
            .output()
            .unwrap();
        let (out, err) = (output.stdout, output.stderr);
        let (out, err) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
        assert!(output.status.success(), "{script}\n{out}\n{err}");
        out.into_owned()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.unmount(true).unwrap();
        }
        if let Some(running) = self.running.take() {
            running.join().unwrap();
        }
    }
}

fn open_dir(path: &Path) -> std::os::fd::OwnedFd {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).unwrap()
}

/// For scripts: `not 'COMMAND'` fails if the command doesn't (`!` is no failure to `sh -e`).
const PRELUDE: &str = "not() {
    if (eval \"$1\") >/dev/null 2>&1; then echo \"should have failed: $1\" >&2; exit 1; fi
}
";

/// Runs a test with the kernel's help and without.
fn both_ways(test: impl Fn(&Mounted)) {
    for passthrough in [true, false] {
        test(&Mounted::plain(passthrough));
    }
}
