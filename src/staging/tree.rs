//! One tree of captured files: its name says why, how long and which version.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::record::Cause;
use crate::staging::Area;

/// Permission bits of a staged directory that stands for one left in place. A removed directory
/// that really had this mode is noted in the entry's `exceptions.jsonl`.
pub const CONTAINER_MODE: u32 = 0o1700;

/// `<cause>-<retain>-<n>`, e.g. `remove-365d-1`: `n` counts captures of the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeName {
    /// Why.
    pub cause: Cause,
    /// How long after the operation's start; whole seconds.
    pub retain: Duration,
    /// From 1.
    pub slot: u32,
}

impl fmt::Display for TreeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.retain.as_secs();
        let (number, unit) = [(86_400, "d"), (3_600, "h"), (60, "m")]
            .into_iter()
            .find(|(size, _)| secs > 0 && secs.is_multiple_of(*size))
            .map_or((secs, "s"), |(size, unit)| (secs / size, unit));
        write!(f, "{}-{number}{unit}-{}", self.cause, self.slot)
    }
}

impl FromStr for TreeName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no tree of captures");
        let mut parts = text.split('-');
        let (Some(cause), Some(retain), Some(slot), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let unit = match retain.chars().last() {
            Some('d') => 86_400,
            Some('h') => 3_600,
            Some('m') => 60,
            Some('s') => 1,
            _ => return Err(wrong()),
        };
        let number: u64 = retain[..retain.len() - 1].parse().map_err(|_| wrong())?;
        Ok(Self {
            cause: cause.parse()?,
            retain: Duration::from_secs(number.checked_mul(unit).ok_or_else(wrong)?),
            slot: slot.parse().map_err(|_| wrong())?,
        })
    }
}

/// A tree that was found on disk.
#[derive(Debug)]
pub struct Tree {
    /// What its name says.
    pub name: TreeName,
    /// The tree's directory, `O_PATH`.
    pub fd: OwnedFd,
    /// The area that it lies in.
    pub area: Arc<Area>,
    /// Its path below the area's root.
    pub place: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (secs, text) in [
            (365 * 86_400, "remove-365d-1"),
            (3_600, "remove-1h-1"),
            (90, "remove-90s-1"),
            (0, "remove-0s-1"),
        ] {
            let name = TreeName {
                cause: Cause::Remove,
                retain: Duration::from_secs(secs),
                slot: 1,
            };
            assert_eq!(name.to_string(), text);
            assert_eq!(text.parse(), Ok(name));
        }
        for text in [
            "",
            "remove",
            "remove-1d",
            "remove-d-1",
            "x-1d-1",
            "remove-1d-1-1",
            "remove-99999999999999999999d-1",
            "remove-1é-1",
        ] {
            assert!(text.parse::<TreeName>().is_err(), "{text}");
        }
    }
}
