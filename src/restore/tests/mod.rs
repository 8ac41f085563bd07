//! Rules of restoring and undoing over staging that was made by hand.

mod across;
pub(crate) mod bench;
mod crash;
mod in_place;
mod outside;
mod undoing;

use super::{Mode, RestoreSpec};
use crate::record::{Bytes, Entry};

fn spec(entry: &Entry) -> RestoreSpec {
    RestoreSpec {
        entry: entry.id.to_string(),
        ..RestoreSpec::default()
    }
}

fn with_mode(entry: &Entry, mode: Mode) -> RestoreSpec {
    RestoreSpec {
        mode,
        ..spec(entry)
    }
}

fn members(entry: &Entry, members: &[&str]) -> RestoreSpec {
    RestoreSpec {
        members: members.iter().map(|m| Bytes::from(*m)).collect(),
        ..spec(entry)
    }
}
