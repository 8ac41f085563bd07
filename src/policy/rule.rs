//! One rule: what it matches and what it says.

use std::time::Duration;

use crate::policy::Subject;
use crate::policy::builtin;
use crate::record::{Cause, Keep, Kept};

/// The way of keeping that a rule asks for, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Wish {
    None,
    Local,
    Hosted,
}

impl Wish {
    fn keep(self) -> Option<Keep> {
        match self {
            Self::None => None,
            Self::Local => Some(Keep::Local),
            Self::Hosted => Some(Keep::Hosted),
        }
    }
}

/// A rule as it is in force. Its patterns are compiled with those of all others, in
/// [`Rules`](super::rules::Rules).
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) has_patterns: bool,
    pub(super) causes: Vec<Cause>,
    pub(super) processes: Vec<String>,
    pub(super) larger_than: Option<u64>,
    pub(super) smaller_than: Option<u64>,
    pub(super) older_than_s: Option<u64>,
    pub(super) younger_than_s: Option<u64>,
    pub(super) wish: Option<Wish>,
    pub(super) retain: Option<Duration>,
    pub(super) versions: Option<u32>,
}

impl Rule {
    /// The condition, patterns aside, that `subject` does not meet.
    pub(super) fn misfit(&self, subject: &Subject<'_>) -> Option<&'static str> {
        let empty_or = |empty: bool, has: bool| empty || has;
        let checks = [
            (
                "its cause is another",
                empty_or(self.causes.is_empty(), self.causes.contains(&subject.cause)),
            ),
            (
                "it is for other processes",
                empty_or(
                    self.processes.is_empty(),
                    self.processes.iter().any(|p| p == subject.comm),
                ),
            ),
            (
                "it is for larger files",
                self.larger_than.is_none_or(|n| subject.size_bytes > n),
            ),
            (
                "it is for smaller files",
                self.smaller_than.is_none_or(|n| subject.size_bytes < n),
            ),
            (
                "it is for older files",
                self.older_than_s.is_none_or(|s| subject.age_s > s),
            ),
            (
                "it is for younger files",
                self.younger_than_s.is_none_or(|s| subject.age_s < s),
            ),
        ];
        checks.into_iter().find(|(_, met)| !met).map(|(why, _)| why)
    }

    /// What it says where the default is `base`: what it does not mention is the default's; a
    /// way of keeping of its own brings that way's retention.
    pub(super) fn outcome(&self, base: Kept) -> Outcome {
        let keep = match self.wish {
            Some(wish) => match wish.keep() {
                Some(keep) => keep,
                None => return Outcome::Delete,
            },
            None => base.keep,
        };
        let usual = if keep == base.keep {
            base.retain
        } else {
            builtin::retain_of(keep)
        };
        Outcome::Keep(Kept {
            keep,
            retain: self.retain.unwrap_or(usual),
            versions_max: self.versions.or(base.versions_max),
        })
    }
}

/// A decision, without the rule that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Delete,
    Keep(Kept),
}

impl Outcome {
    /// The stronger of both in each respect: hosted over local over none, the longer retention,
    /// more versions.
    pub(super) fn strengthened_by(self, other: Self) -> Self {
        let (a, b) = match (self, other) {
            (Self::Delete, other) | (other, Self::Delete) => return other,
            (Self::Keep(a), Self::Keep(b)) => (a, b),
        };
        let hosted = a.keep == Keep::Hosted || b.keep == Keep::Hosted;
        Self::Keep(Kept {
            keep: if hosted { Keep::Hosted } else { Keep::Local },
            retain: a.retain.max(b.retain),
            versions_max: a.versions_max.zip(b.versions_max).map(|(a, b)| a.max(b)),
        })
    }

    /// Whether it keeps at least as strongly as `other`, in each respect.
    #[cfg(test)]
    pub(super) fn at_least(self, other: Self) -> bool {
        self.strengthened_by(other) == self
    }
}
