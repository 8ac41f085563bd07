//! What is mounted where, from `/proc/self/mountinfo` (proc(5)); and questions about a mount
//! that send it no request, so that one whose daemon is dead or stuck can't hang the asker.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// The type under which this filesystem is mounted.
pub const FS_TYPE: &str = "fuse.trashfs";

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Unique while the mount lives; numbers are used again.
    pub id: u64,
    /// The mount that this one lies on.
    pub parent: u64,
    /// `major:minor` of the mounted filesystem.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Options of this mount.
    pub options: String,
    /// Filesystem type with subtype.
    pub fs_type: String,
    /// Source as it was given.
    pub source: OsString,
    /// Options of the filesystem.
    pub super_options: String,
}

impl MountEntry {
    /// Whether it is one of this filesystem's mounts.
    pub fn is_trashfs(&self) -> bool {
        self.fs_type == FS_TYPE
    }

    /// The user who mounted it, for a FUSE mount.
    pub fn user_id(&self) -> Option<u32> {
        let options = self.super_options.split(',');
        let mut ids = options.filter_map(|o| o.strip_prefix("user_id="));
        ids.next()?.parse().ok()
    }

    /// The number of its directory below `/sys/fs/fuse/connections`.
    pub fn connection(&self) -> u32 {
        self.device.1
    }
}

/// Every mount that this process can see; later ones cover earlier ones at the same place.
///
/// # Errors
/// Those of reading `/proc/self/mountinfo`.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

fn parse(text: &[u8]) -> Vec<MountEntry> {
    text.split(|b| *b == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|b| *b == b' ');
    let mut text = || fields.next().map(String::from_utf8_lossy);
    let id = text()?.parse().ok()?;
    let parent = text()?.parse().ok()?;
    let device = text()?;
    let (major, minor) = device.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let _root = text()?;
    let mount_point = PathBuf::from(unescape(fields.next()?));
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = String::from_utf8_lossy(&unescape(fields.next()?).into_vec()).into_owned();
    let source = unescape(fields.next()?);
    let super_options = String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
    Some(MountEntry {
        id,
        parent,
        device,
        mount_point,
        options,
        fs_type,
        source,
        super_options,
    })
}

/// The kernel writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| first == b'\\').and_then(|d| {
            let digits = std::str::from_utf8(d).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        plain.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    OsString::from_vec(plain)
}

/// The mount on top at exactly `path`.
pub fn topmost_at<'m>(mounts: &'m [MountEntry], path: &Path) -> Option<&'m MountEntry> {
    let here: Vec<_> = mounts.iter().filter(|m| m.mount_point == path).collect();
    // Of several at one place each lies on the one before it.
    let covered = |id: u64| here.iter().any(|m| m.parent == id && m.id != id);
    here.iter().copied().rfind(|m| !covered(m.id))
}

/// The mount that an open descriptor lies on.
///
/// # Errors
/// Those of reading procfs.
pub fn mount_id_of(fd: impl AsFd) -> io::Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path)?;
    let mut ids = text.lines().filter_map(|l| l.strip_prefix("mnt_id:"));
    ids.next()
        .and_then(|id| id.trim().parse().ok())
        .ok_or_else(|| io::Error::other("the kernel gives no mnt_id in fdinfo"))
}

/// The mount on top at the directory `path`, without a request to its filesystem.
///
/// # Errors
/// Those of open(2) with `O_PATH`, and of reading procfs.
pub fn mount_id_at(path: &Path) -> io::Result<u64> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    mount_id_of(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Whether `fd` lies on the filesystem that is mounted as number `id`, through whichever mount
/// of it. Sends it no request.
///
/// # Errors
/// Those of reading procfs.
pub fn is_on(fd: impl AsFd, id: u64) -> io::Result<bool> {
    let its = mount_id_of(fd)?;
    let mounts = mounts()?;
    let device = |id: u64| mounts.iter().find(|m| m.id == id).map(|m| m.device);
    Ok(its == id || (device(its).is_some() && device(its) == device(id)))
}

/// Whether somebody answers for a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answered.
    Answers,
    /// Its daemon is dead (`ENOTCONN`).
    Stale,
    /// No answer in time.
    Silent,
    /// Another error.
    Failing(Errno),
}

/// Asks the filesystem at `path` for its size, and waits `patience` for the answer.
pub fn health(path: &Path, patience: Duration) -> Health {
    let (sender, receiver) = mpsc::channel();
    let path = path.to_owned();
    // Left behind if the daemon is stuck: it ends with the process, or with the mount.
    let asker = std::thread::Builder::new().spawn(move || {
        let _ = sender.send(rustix::fs::statfs(OsStr::from_bytes(
            path.as_os_str().as_bytes(),
        )));
    });
    if asker.is_err() {
        return Health::Failing(Errno::AGAIN);
    }
    match receiver.recv_timeout(patience) {
        Ok(Ok(_)) => Health::Answers,
        Ok(Err(Errno::NOTCONN | Errno::CONNABORTED)) => Health::Stale,
        Ok(Err(error)) => Health::Failing(error),
        Err(_) => Health::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[u8] = b"\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
40 22 0:40 / /w\\040s rw,relatime - fuse.trashfs /w\\040s rw,user_id=1000,group_id=0,default_permissions\n\
41 40 0:41 / /w\\040s rw - tmpfs tmpfs rw\n\
garbage\n";

    #[test]
    fn lines_are_read_and_names_unescaped() {
        let all = parse(SAMPLE);
        assert_eq!(all.len(), 3);
        assert_eq!(all[1].mount_point, Path::new("/w s"));
        assert_eq!((all[1].connection(), all[1].user_id()), (40, Some(1000)));
        assert!(all[1].is_trashfs());
    }

    #[test]
    fn the_topmost_mount_covers_the_others() {
        let all = parse(SAMPLE);
        assert_eq!(topmost_at(&all, Path::new("/w s")).map(|m| m.id), Some(41));
        assert_eq!(topmost_at(&all, Path::new("/w")), None);
    }

    #[test]
    fn the_mount_of_a_directory_is_in_the_table() {
        let dir = tempfile::tempdir().unwrap();
        let id = mount_id_at(dir.path()).unwrap();
        assert!(mounts().unwrap().iter().any(|m| m.id == id));
        let open = std::fs::File::open(dir.path()).unwrap();
        assert!(is_on(&open, id).unwrap());
        assert!(!is_on(std::fs::File::open("/proc").unwrap(), id).unwrap());
        assert_eq!(health(dir.path(), Duration::from_secs(5)), Health::Answers);
    }
}
