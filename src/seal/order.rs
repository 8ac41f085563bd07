//! In which order the captures of one path were made.
//!
//! A capture sets the change time of what it captures, and that is what tells. But it moves on
//! when another link of the file is touched, when somebody writes through a handle from before,
//! or when a part of a staged directory is restored. The slots then tell: those of one series
//! are taken in turn, and the first is never taken again.

use std::collections::BTreeMap;

use trashfs_mount::{Attr, Timestamp};

use crate::ids::EntryId;
use crate::record::Cause;
use crate::staging::TreeName;

/// One capture: whose, into which tree, and what lies there.
pub(crate) type Made<'a> = (&'a EntryId, TreeName, &'a Attr);

/// When each of these captures of one path was made, as far as it matters for their order.
pub(crate) fn when_made(captures: &[Made<'_>]) -> Vec<Timestamp> {
    let mut times: Vec<Timestamp> = captures.iter().map(|(_, _, attr)| attr.ctime).collect();
    let mut series: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (at, (entry, tree, _)) in captures.iter().enumerate() {
        let key = (entry.as_str(), tree.cause, tree.retain);
        series.entry(key).or_default().push(at);
    }
    for ((_, cause, _), mut members) in series {
        members.sort_by_key(|at| std::cmp::Reverse(captures[*at].1.slot));
        let mut earliest: Option<Timestamp> = None;
        for at in members {
            let (_, tree, attr) = captures[at];
            // Only what is removed has slots without end; others come round.
            let by_slot = tree.slot == 1 || (cause == Cause::Remove && may_have_moved(attr));
            if let Some(next) = earliest.filter(|next| by_slot && *next < times[at]) {
                times[at] = next;
            }
            earliest = Some(earliest.map_or(times[at], |known| known.min(times[at])));
        }
    }
    times
}

fn may_have_moved(attr: &Attr) -> bool {
    attr.is_dir() || attr.nlink > 1 || attr.mtime >= attr.ctime
}
