//! Entries that somebody is working on: what restores an entry and what ends it exclude each other.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::ids::EntryId;
use crate::staging::Staging;

/// Entries in work.
#[derive(Debug, Default)]
pub(super) struct Pins(Arc<Mutex<HashSet<EntryId>>>);

/// While it lives, nobody else moves anything of the entry.
#[must_use]
#[derive(Debug)]
pub struct Pin {
    pins: Arc<Mutex<HashSet<EntryId>>>,
    id: EntryId,
}

impl Staging {
    /// Claims an entry for restoring, ending or changing it; `None` while somebody else has it.
    pub fn pin(&self, id: &EntryId) -> Option<Pin> {
        self.pins.0.lock().insert(id.clone()).then(|| Pin {
            pins: self.pins.0.clone(),
            id: id.clone(),
        })
    }

    /// Like [`Staging::pin`], as a failure for people.
    ///
    /// # Errors
    /// `busy`.
    pub fn pin_or_busy(&self, id: &EntryId) -> Result<Pin, crate::failure::Failure> {
        self.pin(id).ok_or_else(|| {
            crate::failure::Failure::refused(
                "busy",
                format!("the entry {id} is being restored or ended just now"),
            )
            .state("nothing was changed")
            .next("the same command again in a moment")
        })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.pins.lock().remove(&self.id);
    }
}
