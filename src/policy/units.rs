//! Durations and sizes as people write them.

use std::time::Duration;

const DURATION_UNITS: [(&str, u64); 5] = [
    ("w", 7 * 86_400),
    ("d", 86_400),
    ("h", 3_600),
    ("m", 60),
    ("s", 1),
];

const SIZE_UNITS: [(&str, u64); 9] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
];

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))?;
    number.trim_end().parse::<u64>().ok()?.checked_mul(factor)
}

/// A duration such as `10s`, `30m`, `2h`, `7d` or `4w`.
///
/// # Errors
/// What was expected, for any other text.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    scaled(text, &DURATION_UNITS)
        .map(Duration::from_secs)
        .ok_or_else(|| {
            format!("{text:?} is no duration: a whole number with s, m, h, d or w, as in \"7d\"")
        })
}

/// A size such as `512B`, `10MiB` or `2GB`.
///
/// # Errors
/// What was expected, for any other text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    scaled(text, &SIZE_UNITS).ok_or_else(|| {
        format!(
            "{text:?} is no size: a whole number with B, KiB, MiB, GiB or TiB (or kB, MB, GB, TB), as in \"10MiB\""
        )
    })
}

/// The shortest text that [`parse_duration`] reads as `duration` (whole seconds, weeks as days).
pub fn duration_text(duration: Duration) -> String {
    let secs = duration.as_secs();
    let (unit, factor) = DURATION_UNITS[1..]
        .iter()
        .find(|(_, factor)| secs > 0 && secs.is_multiple_of(*factor))
        .unwrap_or(&("s", 1));
    format!("{}{unit}", secs / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        for text in ["0s", "90s", "30m", "2h", "7d", "365d"] {
            assert_eq!(duration_text(parse_duration(text).unwrap()), text);
        }
        assert_eq!(parse_duration("2w"), parse_duration("14d"));
        for text in [
            "",
            "7",
            "d",
            "-1d",
            "1.5h",
            "7 days",
            "1y",
            "99999999999999999999d",
            "9999999999999999999d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("10MiB"), Ok(10 << 20));
        assert_eq!(parse_size("2 GB"), Ok(2_000_000_000));
        assert_eq!(parse_size("0B"), Ok(0));
        for text in ["", "10", "MiB", "-1B", "1.5GiB", "10M", "99999999999TiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
