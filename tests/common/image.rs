//! A filesystem of its own in an image file, for full disks and power cuts.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::station::{detach, run};

/// Which filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// ext4, data=ordered.
    Ext4,
    /// xfs with reflinks.
    Xfs,
}

/// An image mounted by a loop device; taken away on drop.
pub struct Image {
    file: PathBuf,
    /// Where it is mounted.
    pub path: PathBuf,
    format: Format,
}

impl Image {
    /// Makes and mounts one of `mib` MiB (xfs takes no less than 300) in `dir`.
    pub fn new(dir: &Path, format: Format, mib: u64) -> Self {
        let file = dir.join("image");
        let path = dir.join("disk");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::File::create(&file)
            .unwrap()
            .set_len(mib << 20)
            .unwrap();
        let mut make = match format {
            Format::Ext4 => Command::new("mkfs.ext4"),
            Format::Xfs => Command::new("mkfs.xfs"),
        };
        make.arg("-q").arg(&file);
        run(&mut make).ok();
        let image = Self { file, path, format };
        image.mount();
        image
    }

    fn mount(&self) {
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&self.file)
            .arg(&self.path))
        .ok();
    }

    /// A daemon that was killed under a tracer takes a moment to be gone.
    fn unmount(&self) {
        let take_away = || run(Command::new("umount").arg(&self.path));
        for _ in 0..100 {
            if take_away().code == 0 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        take_away().ok();
    }

    /// Brings all that was written so far onto the disk.
    pub fn settle(&self) {
        let dir = std::fs::File::open(&self.path).unwrap();
        rustix::fs::syncfs(&dir).unwrap();
    }

    /// Cuts the power: nothing that is not on the disk yet gets there. `log` lets the
    /// filesystem write its journal out first, but no data.
    pub fn cut(&self, log: bool) {
        const SHUTDOWN: &str = "import fcntl,os,struct,sys\n\
            fd = os.open(sys.argv[1], os.O_RDONLY)\n\
            fcntl.ioctl(fd, 0x8004587D, struct.pack('I', int(sys.argv[2])))";
        let how = if log { "1" } else { "2" };
        run(Command::new("python3")
            .args(["-c", SHUTDOWN])
            .arg(&self.path)
            .arg(how))
        .ok();
    }

    /// Power is back: the filesystem recovers by its own journal.
    pub fn power_up(&self) {
        self.unmount();
        self.mount();
    }

    /// Checks the unmounted image.
    pub fn check(&self) {
        self.unmount();
        let mut check = match self.format {
            Format::Ext4 => Command::new("e2fsck"),
            Format::Xfs => Command::new("xfs_repair"),
        };
        let args: &[&str] = match self.format {
            Format::Ext4 => &["-fn"],
            Format::Xfs => &["-n", "-f"],
        };
        run(check.args(args).arg(&self.file)).ok();
        self.mount();
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        detach(&self.path);
    }
}
