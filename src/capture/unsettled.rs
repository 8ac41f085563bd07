//! After a crash: captures whose system call never happened.
//!
//! A capture that waits for its system call lies in staging already. When the daemon dies between
//! the two, the original is still in place, and what is staged must not pass for a removal.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use trashfs_mount::Attr;

use super::attributes::{clear_xattrs, magic_path, set_mode, set_owner};
use crate::clock::UnixNanos;
use crate::staging::{CONTAINER_MODE, EntryDir, Tree};
use crate::walk::{self, Flow, Step, When, names_in};
use crate::{beneath, discard};

/// Takes back what was captured in an entry that was never closed and still is where it was: of a
/// file the second name, of a directory the attributes, so that it is a container again. To be
/// called before anything is mounted; says how many. Doing it again changes nothing.
///
/// # Errors
/// Those of reading the staging area. What can't be taken back stays and is logged.
pub fn take_back_unsettled(root: BorrowedFd<'_>, entry: &EntryDir) -> io::Result<u64> {
    let Some(record) = entry.op_record()? else {
        return Ok(0);
    };
    let exceptions = entry.exceptions()?;
    let mut taken_back = 0;
    for tree in entry.trees()? {
        let genuine = exceptions.of(tree.name);
        walk::walk(tree.fd.as_fd(), &mut |step| {
            let container = step.attr.is_dir()
                && step.attr.permissions() == CONTAINER_MODE
                && !genuine.contains(step.path);
            if step.when == When::Leave || container {
                return Ok(Flow::Continue);
            }
            match take_back(root, &tree, step, record.started) {
                Ok(false) => {}
                Ok(true) => taken_back += 1,
                Err(error) => {
                    tracing::warn!(entry = %entry.id, path = %step.path.display(), %error,
                    "what was not removed stays in staging too");
                }
            }
            // What lies below a removed directory was removed before it.
            Ok(Flow::Skip)
        })?;
    }
    Ok(taken_back)
}

fn take_back(
    root: BorrowedFd<'_>,
    tree: &Tree,
    step: &Step<'_>,
    started: UnixNanos,
) -> Result<bool, Errno> {
    let found = beneath::open_parent(root, step.path)
        .and_then(|(dir, name)| Ok((Attr::at(&dir, name)?, dir)));
    let (now, dir) = match found {
        Ok(found) => found,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        Err(error) => return Err(error),
    };
    if !step.attr.is_dir() {
        let same = now.same_file(step.attr) && now.nlink > 1;
        return if same {
            discard::file(step.dir, step.name).map(|()| true)
        } else {
            Ok(false)
        };
    }
    if !is_the_old_one(&now, started) || !is_empty(dir.as_fd(), step.name) {
        return Ok(false);
    }
    become_container(step, &Attr::of(&tree.fd)?).map(|()| true)
}

/// A directory that is older than the operation and empty is the one that it was about to
/// remove; one that took its place is younger, or has something in it.
fn is_the_old_one(now: &Attr, started: UnixNanos) -> bool {
    let born = |t: trashfs_mount::Timestamp| {
        t.secs
            .saturating_mul(1_000_000_000)
            .saturating_add(t.nanos.into())
    };
    now.is_dir() && now.btime.is_some_and(|t| born(t) < started.0)
}

fn is_empty(parent: BorrowedFd<'_>, name: &OsStr) -> bool {
    beneath::open_dir_at(parent, name)
        .map_err(io::Error::from)
        .and_then(|dir| names_in(dir.as_fd()))
        .is_ok_and(|names| names.is_empty())
}

/// The mode comes last: only with it the directory is a container.
fn become_container(step: &Step<'_>, tree: &Attr) -> Result<(), Errno> {
    clear_xattrs(&magic_path(step.dir, step.name)?)?;
    let owner = Attr {
        uid: tree.uid,
        gid: tree.gid,
        ..*step.attr
    };
    set_owner(step.dir, step.name, &owner)?;
    set_mode(step.dir, step.name, CONTAINER_MODE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::tests::world::World;

    fn recover(world: &World) -> u64 {
        let root = std::fs::File::open(world.dir.path()).unwrap();
        let ids = world.staging.entries().unwrap();
        let entries = ids
            .iter()
            .map(|id| world.staging.entry(id).unwrap().unwrap());
        entries
            .map(|entry| take_back_unsettled(root.as_fd(), &entry).unwrap())
            .sum()
    }

    #[test]
    fn a_directory_that_was_not_removed_is_a_container_again() {
        let world = World::new();
        world.write("d/sub/x", "1");
        world.unlink("d/sub/x").unwrap();
        world.rmdir("d/sub").unwrap();
        let _died = world.prepare_rmdir("d");
        assert!(world.staged().contains(&"remove-365d-1/d/".to_owned()));
        assert_eq!((recover(&world), recover(&world)), (1, 0));
        assert_eq!(
            world.staged(),
            [
                "(remove-365d-1/d)",
                "remove-365d-1/d/sub/",
                "remove-365d-1/d/sub/x=1"
            ]
        );
    }

    #[test]
    fn a_file_that_was_not_replaced_loses_its_second_name() {
        let world = World::new();
        world.write("f", "1");
        let _died = world.prepare_replace("f", 0);
        assert_eq!(world.attr("f").nlink, 2);
        assert_eq!((recover(&world), recover(&world)), (1, 0));
        assert_eq!(world.attr("f").nlink, 1);
        assert!(world.staged().is_empty());
    }

    #[test]
    fn what_was_removed_and_made_anew_stays_captured() {
        let world = World::new();
        world.write("d/x", "1");
        world.write("f", "1");
        std::fs::hard_link(world.path("f"), world.path("g")).unwrap();
        world.remove_all("d").unwrap();
        world.unlink("f").unwrap();
        world.write("f", "2");
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::create_dir(world.path("d")).unwrap();
        let before = world.staged();
        assert_eq!(recover(&world), 0);
        assert_eq!(world.staged(), before);
    }
}
