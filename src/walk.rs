//! A depth-first walk by descriptors: any depth, any path length, few descriptors, no symbolic
//! link followed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use trashfs_mount::Attr;

use crate::beneath;

/// Open directories at once; those above are reopened on the way back.
const OPEN_DIRS_MAX: usize = 32;

/// When a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A directory, before its content.
    Enter,
    /// A directory, after its content.
    Leave,
    /// Anything else.
    Leaf,
}

/// One file met on the walk.
pub struct Step<'a> {
    /// The directory that holds it.
    pub dir: BorrowedFd<'a>,
    /// Its name there.
    pub name: &'a OsStr,
    /// Its path below the walk's root.
    pub path: &'a Path,
    /// Its attributes (on `Leave` as they were on `Enter`).
    pub attr: &'a Attr,
    /// Before, after or neither.
    pub when: When,
}

/// What the visitor wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// On `Enter`: pass over the directory's content (and its `Leave`).
    Skip,
    /// End the walk.
    Stop,
}

struct Level {
    fd: Option<OwnedFd>,
    name: OsString,
    attr: Option<Attr>,
    left: Vec<OsString>,
}

/// Visits all below `root` (not `root` itself). Names are taken in one reading of each
/// directory, in byte order; one that vanishes meanwhile is passed over.
///
/// # Errors
/// The visitor's first, or one that reading gives.
pub fn walk(
    root: BorrowedFd<'_>,
    visit: &mut dyn FnMut(&Step<'_>) -> io::Result<Flow>,
) -> io::Result<()> {
    let root = beneath::open_dir(root, Path::new(""))?;
    let left = list(root.as_fd())?;
    let mut path = PathBuf::new();
    let mut levels = vec![Level {
        fd: Some(root),
        name: OsString::new(),
        attr: None,
        left,
    }];
    while let Some(top) = levels.last_mut() {
        let Some(name) = top.left.pop() else {
            if leave(&mut levels, &mut path, visit)? == Flow::Stop {
                return Ok(());
            }
            continue;
        };
        let dir = top.fd.as_ref().expect("the deepest directory is open");
        let attr = match Attr::at(dir, name.as_os_str()) {
            Ok(attr) => attr,
            Err(Errno::NOENT) => continue,
            Err(e) => return Err(e.into()),
        };
        path.push(&name);
        let when = if attr.is_dir() {
            When::Enter
        } else {
            When::Leaf
        };
        let step = Step {
            dir: dir.as_fd(),
            name: &name,
            path: &path,
            attr: &attr,
            when,
        };
        match (visit(&step)?, when) {
            (Flow::Stop, _) => return Ok(()),
            (Flow::Continue, When::Enter) => {
                let fd = beneath::open_dir_at(dir, &name)?;
                let left = list(fd.as_fd())?;
                levels.push(Level {
                    fd: Some(fd),
                    name,
                    attr: Some(attr),
                    left,
                });
                if levels.len() > OPEN_DIRS_MAX {
                    let above = levels.len() - OPEN_DIRS_MAX;
                    if above > 0 {
                        levels[above].fd = None;
                    }
                }
            }
            _ => {
                path.pop();
            }
        }
    }
    Ok(())
}

/// Closes the deepest directory and tells the visitor.
fn leave(
    levels: &mut Vec<Level>,
    path: &mut PathBuf,
    visit: &mut dyn FnMut(&Step<'_>) -> io::Result<Flow>,
) -> io::Result<Flow> {
    let done = levels.pop().expect("called with a level");
    let Some(attr) = done.attr else {
        return Ok(Flow::Continue);
    };
    reopen_last(levels)?;
    let parent = levels
        .last()
        .and_then(|l| l.fd.as_ref())
        .expect("just reopened");
    let step = Step {
        dir: parent.as_fd(),
        name: &done.name,
        path,
        attr: &attr,
        when: When::Leave,
    };
    let flow = visit(&step)?;
    path.pop();
    Ok(flow)
}

fn reopen_last(levels: &mut [Level]) -> io::Result<()> {
    let Some(missing) = levels.last().map(|l| l.fd.is_none()) else {
        return Ok(());
    };
    if !missing {
        return Ok(());
    }
    let root = levels[0].fd.as_ref().expect("the walk's root stays open");
    let mut fd = beneath::open_dir(root.as_fd(), Path::new(""))?;
    for level in &levels[1..] {
        fd = beneath::open_dir_at(&fd, &level.name)?;
    }
    if let Some(last) = levels.last_mut() {
        last.fd = Some(fd);
    }
    Ok(())
}

/// The names in a directory, in reverse byte order (popped from the end), without `.` and `..`.
fn list(dir: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut names: Vec<OsString> = names_in(dir)?.into_iter().map(|(name, _)| name).collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// The names in a directory with their types as readdir(3) gives them, in the filesystem's order.
///
/// # Errors
/// Those of open(2) and getdents(2).
pub fn names_in(dir: BorrowedFd<'_>) -> io::Result<Vec<(OsString, FileType)>> {
    let readable = beneath::open_dir_readable(dir, c".")?;
    let mut names = Vec::new();
    for item in Dir::new(readable)? {
        let item = item?;
        let name = OsStr::from_bytes(item.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push((name.to_owned(), item.file_type()));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;

    #[test]
    fn a_tree_deeper_than_the_open_limit_is_walked_and_left_in_order() {
        let scratch = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(scratch.path()).unwrap();
        let deep: PathBuf = std::iter::repeat_n("d".repeat(100), 90).collect();
        let last = beneath::make_dirs(root.as_fd(), &deep, Mode::RWXU).unwrap();
        rustix::fs::mkdirat(&last, "side", Mode::RWXU).unwrap();
        let (mut entered, mut left) = (0, 0);
        walk(root.as_fd(), &mut |step| {
            match step.when {
                When::Enter => entered += 1,
                When::Leave => {
                    left += 1;
                    assert!(Attr::at(step.dir, step.name).unwrap().same_file(step.attr));
                }
                When::Leaf => unreachable!(),
            }
            Ok(Flow::Continue)
        })
        .unwrap();
        assert_eq!((entered, left), (91, 91));
        crate::discard::tree(root.as_fd(), OsStr::new(&"d".repeat(100))).unwrap();
        assert!(names_in(root.as_fd()).unwrap().is_empty());
    }
}
