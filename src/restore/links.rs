//! Telling a live mount that hard-linked files entered or left staging: it reports link counts
//! without the staged ones.

use std::io;
use std::os::fd::AsFd;

use trashfs_mount::Attr;

use crate::beneath;
use crate::replica::Spot;
use crate::seal::into;
use crate::walk::{When, walk};
use crate::workspace::Workspace;

/// Announces all hard-linked files at and below `spot`, where the workspace is mounted.
pub(crate) fn announce(ws: &Workspace, spot: Spot<'_>, attr: &Attr, by: i32) {
    let Some(live) = ws.live.get() else { return };
    if !attr.is_dir() {
        if concerns(attr, by) {
            live.staged_links_changed(attr.dev, attr.ino, by);
        }
        return;
    }
    if by < 0 && !live.has_staged_links() {
        return;
    }
    let announced = beneath::open_dir_at(spot.dir, spot.name)
        .map_err(io::Error::from)
        .and_then(|dir| {
            walk(dir.as_fd(), &mut |step| {
                if step.when == When::Leaf && concerns(step.attr, by) {
                    live.staged_links_changed(step.attr.dev, step.attr.ino, by);
                }
                Ok(into(step))
            })
        });
    if let Err(e) = announced
        && e.kind() != io::ErrorKind::PermissionDenied
    {
        tracing::warn!(error = %e, "link counts of restored files may be off until the next mount");
    }
}

/// A file that left staging may have lost its other links meanwhile: it counts all the same.
fn concerns(attr: &Attr, by: i32) -> bool {
    by < 0 || attr.nlink > 1
}
