//! Cache directories by the Cache Directory Tagging Specification.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::beneath;

/// The tag's name.
pub const CACHEDIR_TAG: &str = "CACHEDIR.TAG";

const SIGNATURE: &[u8; 43] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// Whether the directory `dir` holds a valid tag: a regular file that begins with the signature.
/// What can't be read is no tag.
pub fn is_tagged(dir: impl AsFd) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(tag) = rustix::fs::openat(dir, CACHEDIR_TAG, flags, Mode::empty()) else {
        return false;
    };
    let mut start = [0u8; SIGNATURE.len()];
    matches!(rustix::io::pread(&tag, &mut start, 0), Ok(read) if read == start.len())
        && &start == SIGNATURE
}

/// Whether `path` below `root` lies in a tree with a valid tag. The root itself does not count:
/// nobody's workspace is a cache as a whole.
pub fn is_cache(root: BorrowedFd<'_>, path: &Path) -> bool {
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.pop();
    ancestors
        .iter()
        .any(|dir| beneath::open_dir(root, dir).is_ok_and(|fd| is_tagged(&fd)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_signed_tag_below_the_root_counts() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("target/debug")).unwrap();
        std::fs::create_dir(dir.path().join("fake")).unwrap();
        let tag = |at: &str, text: &str| {
            std::fs::write(dir.path().join(at).join(CACHEDIR_TAG), text).unwrap();
        };
        let signed = "Signature: 8a477f597d28d172789f06886806bc55\n# cargo\n";
        tag("target", signed);
        tag("fake", "Signature: 0000");
        tag("", signed);
        let root = std::fs::File::open(dir.path()).unwrap();
        let is = |path: &str| is_cache(root.as_fd(), Path::new(path));
        assert!(is("target") && is("target/debug") && is("target/debug/gone"));
        assert!(!is("fake/x") && !is("src/x") && !is("x"));
    }
}
