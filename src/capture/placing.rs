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

/// Which slot to try: counts on, and comes round where the number of versions is bounded.
struct Turn {
    number: u32,
    versions_max: Option<u32>,
    tried: u32,
}

impl Turn {
    fn slot(&self) -> u32 {
        match self.versions_max {
            Some(max) if self.tried <= max => (self.number - 1) % max + 1,
            _ => self.number,
        }
    }

    /// Whether the slot was used before, by the oldest version.
    fn is_round(&self) -> bool {
        self.slot() != self.number
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
                    if turn.is_round() {
                        self.drop_oldest(&capturing.entry, &dir, name)?;
                    }
                    match with_room(&dir.area, || act(&dir)) {
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(error),
                        Ok(()) => {
                            self.note_slot(capturing, name, &turn, directory_taken);
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

    /// Makes room for a new version by giving up the oldest; a directory stays.
    fn drop_oldest(&self, entry: &OpenEntry, dir: &StagedDir, name: &OsStr) -> Result<(), Errno> {
        let attr = match Attr::at(&dir.fd, name) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        if attr.is_dir() {
            return Ok(());
        }
        discard::file(&dir.fd, name)?;
        entry.discount(content_bytes(&attr));
        self.links.change((attr.dev, attr.ino), -1);
        Ok(())
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
