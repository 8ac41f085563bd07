//! `manifest.jsonl`: each member of an entry with its attributes and the hash of its content, so
//! that what is given back can be shown to be what was taken.
//!
//! A line is a JSON object. The last line is [`End`]: the number of the lines before it and the
//! SHA-256 of their bytes, newlines included; a manifest without it was cut off and says nothing.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use trashfs_mount::{Attr, FileKind, Timestamp};

use crate::record::{Bytes, Kind};
use crate::relocate;
use crate::seal::{into, is_container};
use crate::staging::{EntryDir, MANIFEST, damaged_is_none, open_record};
use crate::walk::{Flow, Step, When, walk};

/// Bytes read at a time.
const CHUNK: usize = 256 * 1024;

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// Workspace-relative path.
    pub path: Bytes,
    /// Name of the tree that it lies in.
    pub tree: String,
    /// Kind; none for a directory that only holds a place.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kind: Option<Kind>,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Last modification.
    pub mtime_ns: i64,
    /// Last change of the inode while staged: whatever touches the bytes moves it.
    pub ctime_ns: i64,
    /// Inode number in staging.
    pub ino: u64,
    /// Device number of a device node.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub rdev: u64,
    /// SHA-256 of a regular file's content, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<String>,
    /// Target of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<Bytes>,
    /// Members with the same number are links to one file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub links: Option<u64>,
    /// Extended attributes: name and the SHA-256 of the value.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub xattrs: Vec<(Bytes, String)>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Lines before this one.
    pub lines: u64,
    /// SHA-256 of their bytes, in hexadecimal.
    pub sha256: String,
}

fn hex(digest: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(digest)
}

fn nanos(time: Timestamp) -> i64 {
    time.secs
        .saturating_mul(1_000_000_000)
        .saturating_add(i64::from(time.nanos))
}

/// Writes lines and hashes them as they go.
struct Lines {
    out: BufWriter<std::fs::File>,
    digest: Sha256,
    count: u64,
}

impl Lines {
    fn add(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.digest.update(&text);
        self.count += 1;
        self.out.write_all(&text)
    }

    fn finish(mut self) -> io::Result<()> {
        let end = End {
            lines: self.count,
            sha256: hex(&self.digest.finalize()),
        };
        self.out.write_all(&serde_json::to_vec(&end)?)?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }
}

/// Hashes all members of an entry and writes its manifest, without waiting for the disk. `pause` is called between members and
/// between chunks of large ones: it may wait, or end the work with an error.
///
/// # Errors
/// Those of reading and writing, `pause`'s, and `InvalidData` when a file changed meanwhile. No
/// manifest is left then.
pub fn write(dir: &EntryDir, pause: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
    let fresh = format!(".{MANIFEST}.new");
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(
        dir.records(),
        fresh.as_str(),
        flags,
        Mode::RUSR | Mode::WUSR,
    )?;
    let mut lines = Lines {
        out: BufWriter::new(fd.into()),
        digest: Sha256::new(),
        count: 0,
    };
    let exceptions = dir.exceptions()?;
    let mut groups: HashMap<(u64, u64), u64> = HashMap::new();
    for tree in dir.trees()? {
        let name = tree.name.to_string();
        let exceptions = exceptions.of(tree.name);
        walk(tree.fd.as_fd(), &mut |step| {
            if step.when == When::Leave {
                return Ok(Flow::Continue);
            }
            pause()?;
            let kind = (!is_container(step, &exceptions)).then(|| Kind::from(step.attr.kind()));
            let mut line = line(step, &name, kind);
            if kind.is_some() {
                add_content(&mut line, step, pause)?;
            }
            if step.attr.nlink > 1 && !step.attr.is_dir() {
                let next = groups.len() as u64;
                line.links = Some(*groups.entry((step.attr.dev, step.attr.ino)).or_insert(next));
            }
            lines.add(&line)?;
            Ok(into(step))
        })?;
    }
    lines.finish()?;
    Ok(relocate::replace_record(
        dir.records(),
        fresh.as_str(),
        MANIFEST,
    )?)
}

fn line(step: &Step<'_>, tree: &str, kind: Option<Kind>) -> Line {
    let attr = step.attr;
    Line {
        path: Bytes::from(step.path),
        tree: tree.to_owned(),
        kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        size: if attr.is_dir() { 0 } else { attr.size_bytes },
        mtime_ns: nanos(attr.mtime),
        ctime_ns: nanos(attr.ctime),
        ino: attr.ino,
        rdev: attr.rdev,
        sha256: None,
        target: None,
        links: None,
        xattrs: Vec::new(),
    }
}

fn add_content(
    line: &mut Line,
    step: &Step<'_>,
    pause: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    match step.attr.kind() {
        FileKind::Regular => {
            line.sha256 = match hash_file(step, pause) {
                // An ordinary user's own file that even he may not read: its times must do.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
                hashed => Some(hashed?),
            };
            let now = Attr::at(step.dir, step.name)?;
            if !unchanged(line, &now) {
                let what = format!("{} changed while it was hashed", step.path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        FileKind::Symlink => {
            let target = rustix::fs::readlinkat(step.dir, step.name, Vec::new())?;
            line.target = Some(Bytes::from(OsStr::from_bytes(target.to_bytes())));
        }
        _ => {}
    }
    line.xattrs = xattrs(step)?;
    Ok(())
}

/// Opens without moving the time of last access, where that is allowed.
fn open_quietly(step: &Step<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match rustix::fs::openat(step.dir, step.name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::openat(step.dir, step.name, flags, Mode::empty()),
        other => other,
    }
}

fn hash_file(step: &Step<'_>, pause: &mut dyn FnMut() -> io::Result<()>) -> io::Result<String> {
    let mut file = std::fs::File::from(open_quietly(step)?);
    let mut digest = Sha256::new();
    let mut chunk = vec![0; CHUNK.min(usize::try_from(step.attr.size_bytes).unwrap_or(CHUNK) + 1)];
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            n => digest.update(&chunk[..n]),
        }
        pause()?;
    }
    if step.attr.nlink == 1 {
        // Nobody will want it in memory soon. Advice may fail; nothing depends on it.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
    Ok(hex(&digest.finalize()))
}

/// Extended attributes, by way of procfs: a symbolic link can have some, and cannot be opened.
fn xattrs(step: &Step<'_>) -> io::Result<Vec<(Bytes, String)>> {
    let mut path = format!("/proc/self/fd/{}/", step.dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(step.name.as_bytes());
    let path = CString::new(path)?;
    let mut names = vec![0; 65_536];
    let length = match rustix::fs::llistxattr(&path, &mut names) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS | Errno::NOENT) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    let mut value = vec![0; 65_536];
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|n| !n.is_empty())
    {
        match rustix::fs::lgetxattr(&path, name, &mut value) {
            Ok(n) => found.push((
                Bytes::from(OsStr::from_bytes(name)),
                hex(&Sha256::digest(&value[..n])),
            )),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a file is, by everything but its content, what the line says.
fn unchanged(line: &Line, now: &Attr) -> bool {
    line.ino == now.ino
        && line.mode == now.mode
        && (now.is_dir() || line.size == now.size_bytes)
        && line.mtime_ns == nanos(now.mtime)
        && (now.is_dir() || line.ctime_ns == nanos(now.ctime))
}

/// How thoroughly to verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// Inode number, length and times.
    Fingerprint,
    /// The content, too, read again.
    Content,
}

/// What verifying came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Verdict {
    /// Whether there is an intact manifest to verify against.
    pub manifest: bool,
    /// Members that are what they were.
    pub intact: u64,
    /// Members that are there and differ.
    pub changed: Vec<Bytes>,
    /// Members that are not there: lost, or restored since.
    pub absent: Vec<Bytes>,
}

/// More than any line of ours has.
const LINE_MAX_BYTES: u64 = 64 << 20;

/// Reads a manifest; `None` when there is none or it was cut off or altered.
///
/// # Errors
/// Those of reading.
pub fn read(dir: &EntryDir) -> io::Result<Option<Vec<Line>>> {
    let Some(file) = damaged_is_none(open_record(dir.records(), MANIFEST))? else {
        return Ok(None);
    };
    let mut input = BufReader::new(file);
    let (mut lines, mut digest, mut text) = (Vec::new(), Sha256::new(), Vec::new());
    loop {
        text.clear();
        let mut begun = (&mut input).take(LINE_MAX_BYTES);
        if begun.read_until(b'\n', &mut text)? == 0 {
            return Ok(None);
        }
        if let Ok(line) = serde_json::from_slice::<Line>(&text) {
            digest.update(&text);
            lines.push(line);
            continue;
        }
        let Ok(end) = serde_json::from_slice::<End>(&text) else {
            return Ok(None);
        };
        let whole = end.lines == lines.len() as u64 && end.sha256 == hex(&digest.finalize());
        return Ok(whole.then_some(lines));
    }
}

/// Checks what lies in staging against the manifest.
///
/// # Errors
/// Those of reading staging.
pub fn verify_entry(dir: &EntryDir, depth: Depth) -> io::Result<Verdict> {
    let Some(lines) = read(dir)? else {
        return Ok(Verdict::default());
    };
    let mut trees: HashMap<String, HashMap<Bytes, Line>> = HashMap::new();
    for line in lines {
        let tree = trees.entry(line.tree.clone()).or_default();
        tree.insert(line.path.clone(), line);
    }
    let mut verdict = Verdict {
        manifest: true,
        ..Verdict::default()
    };
    for tree in dir.trees()? {
        let mut none = HashMap::new();
        let expected = trees.get_mut(&tree.name.to_string()).unwrap_or(&mut none);
        walk(tree.fd.as_fd(), &mut |step| {
            if step.when == When::Leave {
                return Ok(Flow::Continue);
            }
            let path = Bytes::from(step.path);
            match expected.remove(&path) {
                Some(line) if is_as(&line, step, depth)? => verdict.intact += 1,
                // A place-holder changes with what is taken out of it.
                Some(line) if line.kind.is_none() => verdict.intact += 1,
                _ => verdict.changed.push(path),
            }
            Ok(into(step))
        })?;
    }
    verdict.absent = trees
        .into_values()
        .flat_map(HashMap::into_values)
        .filter(|line| line.kind.is_some())
        .map(|line| line.path)
        .collect();
    verdict.absent.sort();
    Ok(verdict)
}

fn is_as(line: &Line, step: &Step<'_>, depth: Depth) -> io::Result<bool> {
    if !unchanged(line, step.attr) {
        return Ok(false);
    }
    match (&line.sha256, depth) {
        (Some(hash), Depth::Content) => Ok(*hash == hash_file(step, &mut || Ok(()))?),
        _ => Ok(true),
    }
}
