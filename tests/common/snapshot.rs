//! Everything that is to be the same after a file came back, and where it differs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use trashfs::walk::{Flow, Step, When, walk};
use trashfs_mount::{Attr, FileKind};

/// What is compared of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    kind: FileKind,
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, u32),
    size_bytes: u64,
    content: [u8; 32],
    data: Vec<(u64, u64)>,
    target: Vec<u8>,
    rdev: u64,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// First path of the same inode.
    same_as: PathBuf,
}

/// A tree as it is, by path below its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    files: BTreeMap<PathBuf, Facts>,
}

impl Snapshot {
    /// Of everything below `root`, with `root` itself where `with_root`.
    #[track_caller]
    pub fn of(root: &Path) -> Self {
        let fd = open_dir(root);
        let mut first = BTreeMap::new();
        let mut files = BTreeMap::new();
        walk(fd.as_fd(), &mut |step| {
            if step.when != When::Leave {
                files.insert(step.path.to_owned(), facts(step, &mut first));
            }
            Ok(Flow::Continue)
        })
        .unwrap_or_else(|e| panic!("{}: {e}", root.display()));
        Self { files }
    }

    /// Of the named children of `root` and everything below them.
    #[track_caller]
    pub fn of_names(root: &Path, names: &[&str]) -> Self {
        let all = Self::of(root).only(names);
        assert!(!all.files.is_empty(), "none of {names:?} in {root:?}");
        all
    }

    /// Without what is below these names.
    #[must_use]
    pub fn without(mut self, names: &[&str]) -> Self {
        self.files
            .retain(|path, _| !names.iter().any(|name| path.starts_with(name)));
        self
    }

    /// Only what is below these names.
    #[must_use]
    pub fn only(mut self, names: &[&str]) -> Self {
        self.files
            .retain(|path, _| names.iter().any(|name| path.starts_with(name)));
        self
    }

    /// What is at `from` and below it, as if it were at `to`.
    #[must_use]
    pub fn moved(self, from: &Path, to: &Path) -> Self {
        let there = |path: &Path| path.strip_prefix(from).ok().map(|rest| join(to, rest));
        let files = self.files.into_iter().filter_map(|(path, mut facts)| {
            facts.same_as = there(&facts.same_as).unwrap_or(facts.same_as);
            there(&path).map(|path| (path, facts))
        });
        Self {
            files: files.collect(),
        }
    }

    /// With all that is in `other`.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.files.extend(other.files);
        self
    }

    /// Without this one directory, but with what is in it.
    #[must_use]
    pub fn without_top(mut self, name: &str) -> Self {
        self.files.remove(Path::new(name));
        self
    }

    /// Without directories.
    #[must_use]
    pub fn files_only(mut self) -> Self {
        self.files.retain(|_, f| f.kind != FileKind::Directory);
        self
    }

    /// All of them.
    pub fn files(&self) -> impl Iterator<Item = (&PathBuf, &Facts)> {
        self.files.iter()
    }

    /// All of them, by value.
    pub fn into_files(self) -> BTreeMap<PathBuf, Facts> {
        self.files
    }

    /// One of them.
    pub fn get(&self, path: &Path) -> Option<&Facts> {
        self.files.get(path)
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The differences as text, at most some twenty.
    pub fn differences(&self, other: &Self) -> String {
        let mut text = String::new();
        let mut count = 0;
        let mut note = |line: String| {
            count += 1;
            if count <= 20 {
                let _ = writeln!(text, "  {line}");
            }
        };
        for (path, facts) in &self.files {
            match other.files.get(path) {
                None => note(format!("{} is missing", shown(path))),
                Some(now) if now != facts => {
                    note(format!("{} {}", shown(path), facts.against(now)));
                }
                Some(_) => {}
            }
        }
        for path in other.files.keys() {
            if !self.files.contains_key(path) {
                note(format!("{} was not there", shown(path)));
            }
        }
        if count > 20 {
            let _ = writeln!(text, "  and {} more", count - 20);
        }
        text
    }
}

impl Facts {
    /// Whether this is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// The same but for the path and for which other names there are.
    pub fn same_file_as(&self, other: &Self) -> bool {
        let same_as = PathBuf::new();
        Self {
            same_as: same_as.clone(),
            ..self.clone()
        } == Self {
            same_as,
            ..other.clone()
        }
    }

    fn against(&self, now: &Self) -> String {
        let mut text = String::new();
        macro_rules! compare {
            ($($field:ident),*) => {$(
                if self.$field != now.$field {
                    let _ = write!(text, "{}: {:?} -> {:?}; ", stringify!($field), self.$field, now.$field);
                }
            )*};
        }
        compare!(
            kind, mode, owner, mtime, size_bytes, data, target, rdev, xattrs, same_as
        );
        if self.content != now.content {
            text.push_str("content differs; ");
        }
        text
    }
}

/// Demands that both trees are the same.
#[track_caller]
pub fn assert_same(before: &Snapshot, after: &Snapshot, what: &str) {
    let differences = before.differences(after);
    assert!(differences.is_empty(), "{what}:\n{differences}");
}

/// `Path::join` gives a slash at the end for an empty second part.
fn join(dir: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        dir.to_owned()
    } else {
        dir.join(rest)
    }
}

/// A path as one line of moderate length.
fn shown(path: &Path) -> String {
    const SHOWN: usize = 100;
    let text: Vec<char> = format!("{path:?}").chars().collect();
    if text.len() <= 2 * SHOWN {
        return text.into_iter().collect();
    }
    let (start, end) = (&text[..SHOWN], &text[text.len() - SHOWN..]);
    start.iter().chain(&['.', '.', '.']).chain(end).collect()
}

fn open_dir(path: &Path) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn facts(step: &Step<'_>, first: &mut BTreeMap<(u64, u64), PathBuf>) -> Facts {
    let attr: &Attr = step.attr;
    let same_as = if attr.is_dir() {
        step.path.to_owned()
    } else {
        first
            .entry((attr.dev, attr.ino))
            .or_insert_with(|| step.path.to_owned())
            .clone()
    };
    let regular = attr.kind() == FileKind::Regular;
    let (content, data) = if regular {
        content(step, attr.size_bytes)
    } else {
        ([0; 32], Vec::new())
    };
    Facts {
        kind: attr.kind(),
        mode: attr.permissions(),
        owner: (attr.uid, attr.gid),
        mtime: (attr.mtime.secs, attr.mtime.nanos),
        size_bytes: if regular { attr.size_bytes } else { 0 },
        content,
        data,
        target: target(step),
        rdev: attr.rdev,
        xattrs: xattrs(step),
        same_as,
    }
}

fn target(step: &Step<'_>) -> Vec<u8> {
    if step.attr.kind() != FileKind::Symlink {
        return Vec::new();
    }
    rustix::fs::readlinkat(step.dir, step.name, Vec::new())
        .unwrap()
        .into_bytes()
}

/// What an ordinary user has closed to himself, open to look at.
struct Readable<'a>(&'a Step<'a>);

impl<'a> Readable<'a> {
    fn for_now(step: &'a Step<'a>) -> Option<Self> {
        let closed = step.attr.kind() == FileKind::Regular && step.attr.permissions() & 0o400 == 0;
        (closed && !super::is_root()).then(|| {
            let readable = Self(step);
            readable.set_mode(step.attr.permissions() | 0o400);
            readable
        })
    }

    fn set_mode(&self, mode: u32) {
        let mode = Mode::from_raw_mode(mode);
        rustix::fs::chmodat(self.0.dir, self.0.name, mode, AtFlags::empty()).unwrap();
    }
}

impl Drop for Readable<'_> {
    fn drop(&mut self) {
        self.set_mode(self.0.attr.permissions());
    }
}

/// Hash of the bytes, and where there is data rather than a hole.
fn content(step: &Step<'_>, size_bytes: u64) -> ([u8; 32], Vec<(u64, u64)>) {
    let _readable = Readable::for_now(step);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(step.dir, step.name, flags, Mode::empty())
        .unwrap_or_else(|e| panic!("{:?}: {e}", step.path));
    let data = segments(&fd, size_bytes);
    rustix::fs::seek(&fd, SeekFrom::Start(0)).unwrap();
    let mut hash = Sha256::new();
    std::io::copy(&mut std::fs::File::from(fd), &mut hash)
        .unwrap_or_else(|e| panic!("{:?}: {e}", step.path));
    (hash.finalize().into(), data)
}

fn segments(fd: &OwnedFd, size_bytes: u64) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < size_bytes {
        let Ok(start) = rustix::fs::seek(fd, SeekFrom::Data(at)) else {
            break;
        };
        let Ok(end) = rustix::fs::seek(fd, SeekFrom::Hole(start)) else {
            break;
        };
        found.push((start, end));
        at = end;
    }
    found
}

fn xattrs(step: &Step<'_>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let _readable = Readable::for_now(step);
    let mut place = PathBuf::from(format!("/proc/self/fd/{}", step.dir.as_raw_fd()));
    place.push(step.name);
    let mut names = vec![0; 65_536];
    let length = match rustix::fs::llistxattr(&place, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(e) => panic!("{:?}: {e}", step.path),
    };
    let mut found = BTreeMap::new();
    for name in names[..length].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0; 65_536];
        let length = rustix::fs::lgetxattr(&place, OsStr::from_bytes(name), &mut value[..])
            .unwrap_or_else(|e| panic!("{:?}: {e}", step.path));
        value.truncate(length);
        found.insert(name.to_vec(), value);
    }
    found
}
