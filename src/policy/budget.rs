//! How much of a filesystem staging may take.

use serde::{Deserialize, Serialize};

/// A part of a filesystem: a percentage or an absolute size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Share {
    /// Percent of the filesystem, 0 to 100.
    Percent(u8),
    /// So many bytes.
    Bytes(u64),
}

impl Share {
    /// In bytes of a filesystem of `total_bytes`.
    pub fn of(self, total_bytes: u64) -> u64 {
        match self {
            Self::Percent(percent) => {
                let bytes = u128::from(total_bytes) * u128::from(percent) / 100;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl TryFrom<String> for Share {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let Some(number) = text.trim().strip_suffix('%') else {
            return super::parse_size(&text)
                .map(Self::Bytes)
                .map_err(|_| wrong(&text));
        };
        match number.trim_end().parse::<u8>() {
            Ok(percent) if percent <= 100 => Ok(Self::Percent(percent)),
            _ => Err(wrong(&text)),
        }
    }
}

fn wrong(text: &str) -> String {
    format!("{text:?} is no share of a filesystem: \"20%\" (0 to 100), or a size as in \"50GiB\"")
}

impl From<Share> for String {
    fn from(share: Share) -> Self {
        match share {
            Share::Percent(percent) => format!("{percent}%"),
            Share::Bytes(bytes) => format!("{bytes}B"),
        }
    }
}

/// The `[budget]` of the station's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// At most this much for what is staged.
    pub staging: Share,
    /// At least this much kept free.
    pub free: Share,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            staging: Share::Percent(20),
            free: Share::Percent(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percent_or_bytes() {
        let share = |text: &str| Share::try_from(text.to_owned());
        assert_eq!(share("20%").unwrap().of(1_000), 200);
        assert_eq!(share("100%").unwrap().of(u64::MAX), u64::MAX);
        assert_eq!(share("1KiB").unwrap().of(5), 1024);
        for text in ["101%", "-1%", "%", "x", "20"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
