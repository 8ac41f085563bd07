//! The one place that reads the wall clock.

use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Nanoseconds since the epoch, as the system's clock had them: it may jump.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixNanos(pub i64);

impl UnixNanos {
    /// Later by `by`; saturates.
    pub fn plus(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)),
        )
    }

    /// Time from `earlier` to this; zero when the clock went backwards.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// RFC 3339 in UTC with milliseconds, as in JSON output.
    pub fn to_rfc3339(self) -> String {
        jiff::Timestamp::from_nanosecond(i128::from(self.0))
            .map(|t| format!("{t:.3}"))
            .unwrap_or_else(|_| self.0.to_string())
    }
}

/// Now.
pub fn now() -> UnixNanos {
    #[expect(clippy::disallowed_methods, reason = "this is the clock's home")]
    let since = std::time::SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UnixNanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// Serialises [`UnixNanos`] as RFC 3339 in UTC with nanoseconds.
pub mod rfc3339 {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::UnixNanos;

    /// As text.
    ///
    /// # Errors
    /// The serialiser's.
    pub fn serialize<S: Serializer>(time: &UnixNanos, serializer: S) -> Result<S::Ok, S::Error> {
        match jiff::Timestamp::from_nanosecond(i128::from(time.0)) {
            Ok(t) => serializer.collect_str(&format_args!("{t:.9}")),
            Err(e) => Err(serde::ser::Error::custom(e)),
        }
    }

    /// From text.
    ///
    /// # Errors
    /// For text that is no RFC 3339 time between 1678 and 2262.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UnixNanos, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        i64::try_from(time.as_nanosecond())
            .map(UnixNanos)
            .map_err(D::Error::custom)
    }
}
