//! Whether what lies in staging is still what was captured.

use crate::failure::Failure;
use crate::record::{Bytes, Entry};
use crate::restore::report::{Restored, Verified};
use crate::restore::staged::Holding;
use crate::seal::manifest::{Depth, verify_entry};

/// Beyond so many members the fingerprints are not looked at before a restore that moves no
/// byte: it would cost more than the restore.
const FINGERPRINTED_MAX: u64 = 20_000;
/// Members that a message lists.
const LISTED_MAX: usize = 5;

/// What the check came to.
pub(crate) struct Checked {
    verified: Verified,
    notes: Vec<String>,
}

impl Checked {
    /// Adds the outcome to what is reported.
    pub(crate) fn told_in(self, mut restored: Restored) -> Restored {
        restored.verified = self.verified;
        restored.notes.extend(self.notes);
        restored
    }
}

/// Compares an entry with its manifest: fingerprints, or with `fully` every byte.
///
/// A file that was written to through a handle from before its removal differs from its
/// fingerprint and is still the user's own: that is noted. Only asked for in full, a difference
/// refuses.
pub(crate) fn check(entry: &Entry, holding: &Holding, fully: bool) -> Result<Checked, Failure> {
    if !fully && (!entry.hashed || entry.members > FINGERPRINTED_MAX) {
        return Ok(Checked {
            verified: Verified::NeverMoved,
            notes: Vec::new(),
        });
    }
    let depth = if fully {
        Depth::Content
    } else {
        Depth::Fingerprint
    };
    let verdict = verify_entry(&holding.dir, depth)
        .map_err(|e| Failure::io(format!("verifying entry {}", entry.id), &e))?;
    let id = &entry.id;
    if fully && !verdict.manifest {
        let what = format!("entry {id} has no hashes to verify against yet");
        return Err(Failure::refused("not-hashed", what)
            .state("nothing was changed")
            .next(format!("trash restore {id}")));
    }
    if fully && !verdict.changed.is_empty() {
        let what = format!(
            "{} of entry {id} differ from their hashes",
            listed(&verdict.changed)
        );
        return Err(Failure::refused("differs", what)
            .state("nothing was changed")
            .next(format!("trash restore {id} --to DIR")));
    }
    let verified = match (verdict.manifest && verdict.changed.is_empty(), fully) {
        (false, _) => Verified::NeverMoved,
        (true, false) => Verified::Fingerprints,
        (true, true) => Verified::Hashes,
    };
    let notes = match verdict.changed.as_slice() {
        [] => Vec::new(),
        changed => vec![format!(
            "written to since they were captured: {}",
            listed(changed)
        )],
    };
    Ok(Checked { verified, notes })
}

fn listed(paths: &[Bytes]) -> String {
    let names: Vec<_> = paths.iter().take(LISTED_MAX).map(Bytes::display).collect();
    match paths.len().saturating_sub(names.len()) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
