//! Whether two files or trees agree.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use trashfs_mount::{Attr, FileKind};

use super::Spot;
use super::content::{CHUNK_BYTES, for_each_chunk, open_readable};
use crate::beneath;
use crate::walk::{Flow, When, walk};

/// Whether two files or trees agree in names, kinds, modes, lengths, times and content.
///
/// # Errors
/// Those of reading either.
pub fn same(a: Spot<'_>, b: Spot<'_>) -> io::Result<bool> {
    let (attr_a, attr_b) = (Attr::at(a.dir, a.name)?, Attr::at(b.dir, b.name)?);
    if !same_leaf(a, &attr_a, b, &attr_b)? {
        return Ok(false);
    }
    if !attr_a.is_dir() {
        return Ok(true);
    }
    let root_a = beneath::open_dir_at(a.dir, a.name)?;
    let root_b = beneath::open_dir_at(b.dir, b.name)?;
    let (mut agree, mut count) = (true, 0u64);
    walk(root_a.as_fd(), &mut |step| {
        count += u64::from(step.when != When::Leave);
        if step.when != When::Leave {
            agree = beneath::open_parent(root_b.as_fd(), step.path)
                .and_then(|(dir, name)| {
                    Attr::at(&dir, name).map(|attr| (dir, name.to_owned(), attr))
                })
                .map_or(Ok(false), |(dir, name, attr)| {
                    let from = Spot {
                        dir: step.dir,
                        name: step.name,
                    };
                    same_leaf(
                        from,
                        step.attr,
                        Spot {
                            dir: dir.as_fd(),
                            name: &name,
                        },
                        &attr,
                    )
                })?;
        }
        Ok(if agree { Flow::Continue } else { Flow::Stop })
    })?;
    let mut others = 0u64;
    walk(root_b.as_fd(), &mut |step| {
        others += u64::from(step.when != When::Leave);
        Ok(Flow::Continue)
    })?;
    Ok(agree && count == others)
}

/// Whether two regular files of one length have the same bytes.
///
/// # Errors
/// Those of reading either.
pub fn same_bytes(a: Spot<'_>, b: Spot<'_>) -> io::Result<bool> {
    same_content(&open_readable(a)?, &open_readable(b)?)
}

fn same_leaf(a: Spot<'_>, attr_a: &Attr, b: Spot<'_>, attr_b: &Attr) -> io::Result<bool> {
    let key = |attr: &Attr| (attr.kind(), attr.permissions(), attr.mtime);
    if key(attr_a) != key(attr_b) {
        return Ok(false);
    }
    match attr_a.kind() {
        FileKind::Regular if attr_a.size_bytes != attr_b.size_bytes => Ok(false),
        FileKind::Regular => same_bytes(a, b),
        FileKind::Symlink => {
            let target = |s: Spot<'_>| rustix::fs::readlinkat(s.dir, s.name, Vec::new());
            Ok(target(a)? == target(b)?)
        }
        _ => Ok(true),
    }
}

fn same_content(a: &File, b: &File) -> io::Result<bool> {
    let size = a.metadata()?.len();
    let mut other = vec![0; CHUNK_BYTES];
    let mut agree = true;
    for_each_chunk(a, &[(0, size)], |offset, bytes| {
        b.read_exact_at(&mut other[..bytes.len()], offset)?;
        agree &= other[..bytes.len()] == *bytes;
        Ok(())
    })?;
    Ok(agree)
}
