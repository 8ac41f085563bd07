//! Finding room in the trees of an entry for one capture.

use std::ffi::OsStr;
use std::sync::Arc;

use rustix::io::Errno;
use trashfs_mount::{Attr, Dir, FileKind};

use super::Capture;
use super::dirs::Place;
use super::operation::{DirTimes, InUse, OpenEntry};
use super::reserve::with_room;
use super::slots::Series;
use super::trees::{Obstacle, StagedDir};
use crate::discard;
use crate::record::{Cause, Kept};
use crate::staging::TreeName;

/// More captures of one path in one operation than this are refused.
const SLOTS_MAX: u32 = 1 << 24;

/// One capture on its way: into which entry, by which rule, out of which directory.
pub(super) struct Capturing<'a> {
    pub(super) operation: InUse,
    pub(super) entry: Arc<OpenEntry>,
    pub(super) series: Series,
    pub(super) versions_max: Option<u32>,
    pub(super) place: &'a Place,
}

impl<'a> Capturing<'a> {
    pub(super) fn new(operation: InUse, cause: Cause, kept: &Kept, place: &'a Place) -> Self {
        Self {
            entry: operation.entry(kept.keep).clone(),
            operation,
            series: Series {
                keep: kept.keep,
                cause,
                retain: kept.retain,
            },
            versions_max: kept.versions_max.filter(|max| *max > 0),
            place,
        }
    }

    fn tree(&self, slot: u32) -> TreeName {
        TreeName {
            cause: self.series.cause,
            retain: self.series.retain,
            slot,
        }
    }
}

/// Which slot to try: counts on, and comes round where the number of versions is bounded. The
/// first one, which is what was there before the operation, has its slot for good; the others
/// share a ring in which one slot is always free, so that the oldest goes only after a newer one
/// has come.
struct Turn {
    number: u32,
    versions_max: Option<u32>,
    tried: u32,
}

impl Turn {
    /// The first slot of the ring, and how many it has.
    fn ring(&self) -> Option<(u32, u32)> {
        self.versions_max
            .map(|max| if max == 1 { (1, 2) } else { (2, max) })
    }

    fn slot_of(&self, number: u32) -> u32 {
        match self.ring() {
            Some((start, length)) if number >= start && self.tried <= length => {
                (number - start) % length + start
            }
            _ => number,
        }
    }

    fn slot(&self) -> u32 {
        self.slot_of(self.number)
    }

    /// Whether the slot was used before.
    fn is_round(&self) -> bool {
        self.slot() != self.number
    }

    /// The slot of the oldest version, where there are too many now.
    fn oldest(&self) -> Option<u32> {
        let slot = self.slot_of(self.number + 1);
        (slot != self.number + 1).then_some(slot)
    }

    fn next(&mut self) -> Result<(), Errno> {
        self.number += 1;
        self.tried += 1;
        if self.number > SLOTS_MAX {
            return Err(Errno::NOSPC);
        }
        Ok(())
    }
}

impl Capture {
    /// Performs `act` with the first staged directory in which `name` is free: `act` answers
    /// `EEXIST` where it isn't.
    pub(super) fn put(
        &self,
        capturing: &Capturing<'_>,
        from: Option<&Dir<'_>>,
        name: &OsStr,
        mut act: impl FnMut(&StagedDir) -> Result<(), Errno>,
    ) -> Result<Arc<StagedDir>, Errno> {
        let Capturing { place, series, .. } = capturing;
        let slots = &capturing.operation.slots;
        let mut turn = Turn {
            number: slots.first(series, &place.path, name),
            versions_max: capturing.versions_max,
            tried: 0,
        };
        let mut directory_taken = false;
        loop {
            let tree = capturing.tree(turn.slot());
            match self.trees.dir(&capturing.entry, tree, place) {
                Ok((dir, first_use)) => {
                    if first_use && let Some(from) = from {
                        remember_times(&capturing.operation, from)?;
                    }
                    match with_room(&dir.area, || act(&dir)) {
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error),
                        Ok(()) => {
                            self.note_slot(capturing, name, &turn, directory_taken);
                            if let Some(slot) = turn.oldest() {
                                self.drop_oldest(capturing, slot, name);
                            }
                            return Ok(dir);
                        }
                    }
                }
                Err(Obstacle::Taken) => directory_taken = true,
                Err(Obstacle::Failed(error)) => return Err(error),
            }
            turn.next()?;
        }
    }

    fn note_slot(
        &self,
        capturing: &Capturing<'_>,
        name: &OsStr,
        turn: &Turn,
        directory_taken: bool,
    ) {
        let Capturing { place, series, .. } = capturing;
        let slots = &capturing.operation.slots;
        if turn.number > 1 {
            slots.taken_below(series, place.path.join(name), turn.number + 1);
        }
        if directory_taken && !turn.is_round() {
            slots.taken_below(series, place.path.to_path_buf(), turn.number);
        }
    }

    /// Gives up the oldest version after a new one; a directory stays. What can't be given up
    /// is kept.
    fn drop_oldest(&self, capturing: &Capturing<'_>, slot: u32, name: &OsStr) {
        let tree = capturing.tree(slot);
        let Ok((dir, _)) = self.trees.dir(&capturing.entry, tree, capturing.place) else {
            return;
        };
        let dropped = Attr::at(&dir.fd, name).and_then(|attr| {
            if attr.is_dir() {
                return Ok(());
            }
            discard::file(&dir.fd, name)?;
            capturing.entry.discount(content_bytes(&attr));
            self.links.change((attr.dev, attr.ino), -1);
            Ok(())
        });
        match dropped {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => tracing::warn!(%error, "an older version stays beyond the bound"),
        }
    }
}

/// The directory's times are remembered before the first capture out of it moves them.
fn remember_times(operation: &InUse, dir: &Dir<'_>) -> Result<(), Errno> {
    let attr = Attr::of(dir.fd)?;
    operation.remember_times(
        dir.id,
        DirTimes {
            atime: attr.atime,
            mtime: attr.mtime,
            btime: attr.btime,
        },
    );
    Ok(())
}

/// What a member adds to the bytes of its entry.
pub(super) fn content_bytes(attr: &Attr) -> u64 {
    if attr.kind() == FileKind::Regular {
        attr.size_bytes
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_version_stays_and_the_oldest_of_the_others_goes() {
        for max in [1, 2, 3, 10] {
            let mut turn = Turn {
                number: 1,
                versions_max: Some(max),
                tried: 0,
            };
            let mut kept = std::collections::BTreeMap::new();
            for number in 1..=50 {
                turn.number = number;
                assert!(kept.insert(turn.slot(), number).is_none(), "it was free");
                if let Some(slot) = turn.oldest() {
                    kept.remove(&slot);
                }
                let mut left: Vec<u32> = kept.values().copied().collect();
                left.sort_unstable();
                let mut expected: Vec<u32> = (1..=number)
                    .skip(number.saturating_sub(max) as usize)
                    .collect();
                if max > 1 {
                    expected[0] = 1;
                }
                assert_eq!(left, expected);
            }
        }
    }
}
