//! Makes a tree with every awkward thing that a removal has to bring back.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use super::is_root;

/// A directory too deep for a joined path to name it (some tools cannot remove one).
pub const DEEP: &str = "deep";

/// Makes `dir` and fills it; what a tool with joined paths cannot reach is left out unless
/// `beyond_path_max`.
pub fn awkward(dir: &Path, beyond_path_max: bool) {
    std::fs::create_dir(dir).unwrap();
    modes(dir);
    sparse(&dir.join("holes"));
    links(dir);
    names(dir);
    marked(dir);
    directories(dir);
    special(dir);
    std::fs::write(dir.join("empty"), "").unwrap();
    std::fs::write(dir.join("large"), pattern(3 << 20, 7)).unwrap();
    if beyond_path_max {
        deep(dir, 60);
    }
    times(dir);
}

/// Bytes that no compression shortens much and that differ by seed.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

/// Makes `files` small files in directories of a hundred.
pub fn plain(dir: &Path, files: usize) {
    for i in 0..files {
        let parent = dir.join(format!("d{}", i / 100));
        if i.is_multiple_of(100) {
            std::fs::create_dir_all(&parent).unwrap();
        }
        std::fs::write(parent.join(format!("f{i}")), format!("content of {i}\n")).unwrap();
    }
}

fn modes(dir: &Path) {
    let dir = dir.join("modes");
    std::fs::create_dir(&dir).unwrap();
    for mode in [
        0o644, 0o600, 0o755, 0o444, 0o000, 0o4755, 0o2755, 0o1644, 0o777,
    ] {
        let path = dir.join(format!("{mode:o}"));
        std::fs::write(&path, format!("mode {mode:o}\n")).unwrap();
        if is_root() {
            std::os::unix::fs::chown(&path, Some(1000 + mode), Some(2000 + mode)).unwrap();
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
}

fn sparse(path: &Path) {
    let file = std::fs::File::create(path).unwrap();
    file.write_all_at(&pattern(65_536, 1), 1 << 20).unwrap();
    file.write_all_at(&pattern(65_536, 2), 4 << 20).unwrap();
    file.set_len(8 << 20).unwrap();
}

fn links(dir: &Path) {
    let dir = dir.join("links");
    std::fs::create_dir_all(dir.join("below")).unwrap();
    std::fs::write(dir.join("one"), "three names\n").unwrap();
    std::fs::hard_link(dir.join("one"), dir.join("two")).unwrap();
    std::fs::hard_link(dir.join("one"), dir.join("below/three")).unwrap();
    symlink("one", dir.join("relative")).unwrap();
    symlink("/no/such/file", dir.join("dangling")).unwrap();
    symlink("loop", dir.join("loop")).unwrap();
    symlink("x".repeat(3000), dir.join("long")).unwrap();
    symlink(OsStr::from_bytes(b"\xff\xfe"), dir.join("not-utf8")).unwrap();
    symlink("below", dir.join("to-directory")).unwrap();
    rustix::fs::linkat(
        CWD,
        dir.join("relative"),
        CWD,
        dir.join("linked-symlink"),
        AtFlags::empty(),
    )
    .unwrap();
    if is_root() {
        std::os::unix::fs::lchown(dir.join("dangling"), Some(1234), Some(4321)).unwrap();
    }
}

fn names(dir: &Path) {
    let dir = dir.join("names");
    std::fs::create_dir(&dir).unwrap();
    let longest = "n".repeat(255);
    let names: [&[u8]; 14] = [
        b"\xff\xfe not UTF-8 \x80",
        b"new\nline",
        b"-rf",
        b" leading and trailing ",
        b"quote'\"`$(x)",
        b"back\\slash",
        b"tab\tand\x01control",
        b"*",
        b"~",
        b"...",
        "h\u{e9}\u{1f5d1}".as_bytes(),
        longest.as_bytes(),
        b"a@1",
        b".trashfs",
    ];
    for name in names {
        std::fs::write(dir.join(OsStr::from_bytes(name)), name).unwrap();
    }
    std::fs::create_dir(dir.join(OsStr::from_bytes(b"directory \xc3\x28"))).unwrap();
    std::fs::write(dir.join(OsStr::from_bytes(b"directory \xc3\x28/f")), "x").unwrap();
}

/// Extended attributes and ACLs.
fn marked(dir: &Path) {
    let dir = dir.join("marked");
    std::fs::create_dir(&dir).unwrap();
    let file = dir.join("xattr");
    std::fs::write(&file, "marked\n").unwrap();
    set(&file, "user.colour", b"gr\0n");
    set(&file, "user.empty", b"");
    set(&file, "user.long", &pattern(2000, 3));
    set(&dir, "user.on-directory", b"yes");
    if is_root() {
        set(&file, "trusted.secret", b"root only");
    }
    let guarded = dir.join("acl");
    std::fs::write(&guarded, "guarded\n").unwrap();
    set(&guarded, "system.posix_acl_access", &acl(0o6));
    let inherits = dir.join("default-acl");
    std::fs::create_dir(&inherits).unwrap();
    set(&inherits, "system.posix_acl_default", &acl(0o7));
    std::fs::write(inherits.join("child"), "inherited\n").unwrap();
}

/// Gives a file a mode, an owner, an attribute and a time that no other has.
pub fn mark(path: &Path) {
    if is_root() {
        std::os::unix::fs::chown(path, Some(1357), Some(2468)).unwrap();
    }
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o640)).unwrap();
    set(path, "user.mark", b"marked");
    let time = Timespec {
        tv_sec: 1_234_567_890,
        tv_nsec: 987_654_321,
    };
    let both = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &both, AtFlags::empty()).unwrap();
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
        .unwrap_or_else(|e| panic!("{name} on {}: {e}", path.display()));
}

/// An ACL that gives user 1234 `permissions` (acl(5), version 2 of its attribute's form).
fn acl(permissions: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let mut bytes = 2u32.to_le_bytes().to_vec();
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 6, NOBODY),
        (0x02, permissions, 1234),
        (0x04, 4, NOBODY),
        (0x10, 7, NOBODY),
        (0x20, 0, NOBODY),
    ];
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn directories(dir: &Path) {
    let dir = dir.join("directories");
    for name in [
        "empty",
        "sticky",
        "setgid",
        "01700",
        "read-only",
        "a/b/c/empty",
    ] {
        std::fs::create_dir_all(dir.join(name)).unwrap();
    }
    // Nobody else could remove it from there.
    if is_root() {
        std::fs::write(dir.join("read-only/f"), "in a directory without w\n").unwrap();
    }
    std::fs::write(dir.join("01700/f"), "in a directory of mode 01700\n").unwrap();
    let many = dir.join("many");
    std::fs::create_dir(&many).unwrap();
    for i in 0..300 {
        std::fs::write(many.join(format!("f{i}")), [i as u8]).unwrap();
    }
    if is_root() {
        std::os::unix::fs::chown(dir.join("empty"), Some(1111), Some(2222)).unwrap();
    }
    for (name, mode) in [
        ("empty", 0o711),
        ("sticky", 0o1777),
        ("setgid", 0o2755),
        ("01700", 0o1700),
        ("read-only", 0o555),
    ] {
        std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
}

fn special(dir: &Path) {
    let dir = dir.join("special");
    std::fs::create_dir(&dir).unwrap();
    let make = |name: &str, kind, dev| {
        rustix::fs::mknodat(CWD, dir.join(name), kind, Mode::from(0o640), dev)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
    };
    make("fifo", FileType::Fifo, 0);
    make("socket", FileType::Socket, 0);
    if is_root() {
        make("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
        make("block", FileType::BlockDevice, rustix::fs::makedev(7, 200));
    }
}

/// A chain of directories whose path is longer than PATH_MAX, a file in each tenth.
fn deep(dir: &Path, levels: usize) {
    let mut fd: OwnedFd = std::fs::File::open(dir).unwrap().into();
    let name = format!("{DEEP}{}", "-".repeat(90));
    for level in 0..levels {
        fd = trashfs::beneath::make_dirs(fd.as_fd(), Path::new(&name), Mode::from(0o755)).unwrap();
        if level.is_multiple_of(10) || level == levels - 1 {
            let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CREATE;
            let file = rustix::fs::openat(&fd, "leaf", flags, Mode::from(0o644)).unwrap();
            rustix::io::write(&file, format!("level {level}\n").as_bytes()).unwrap();
        }
    }
}

/// Times with nanoseconds, past and far; directories last, children before parents.
fn times(dir: &Path) {
    let set = |path: PathBuf, secs, nanos| {
        let time = Timespec {
            tv_sec: secs,
            tv_nsec: nanos,
        };
        let both = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, &path, &both, AtFlags::SYMLINK_NOFOLLOW)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    };
    set(dir.join("links/one"), 1_000_000_000, 123_456_789);
    set(dir.join("links/dangling"), 1_100_000_000, 1);
    set(dir.join("large"), 1, 999_999_999);
    set(dir.join("empty"), -1, 500_000_000);
    set(dir.join("special/fifo"), 1_200_000_000, 42);
    set(dir.join("directories/a/b/c/empty"), 1_300_000_000, 7);
    set(dir.join("directories/a/b/c"), 1_300_000_001, 8);
    set(dir.join("directories/a/b"), 1_300_000_002, 9);
    set(dir.join("directories"), 1_400_000_000, 10);
    set(dir.join("names"), 1_500_000_000, 11);
    set(dir.to_owned(), 1_600_000_000, 12);
}
