//! Why a policy file can't be used.

use std::fmt;

use crate::failure::Failure;

/// A policy file that can't be used: where, and what is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// The file, as users know it.
    pub file: String,
    /// Line and column of the fault, from 1, where it has a place.
    pub place: Option<(usize, usize)>,
    /// What is wrong and what is expected.
    pub what: String,
}

impl PolicyError {
    pub(super) fn whole(file: &str, what: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            place: None,
            what: what.into(),
        }
    }

    pub(super) fn of_toml(file: &str, text: &str, error: &toml::de::Error) -> Self {
        Self {
            file: file.to_owned(),
            place: error.span().map(|span| place(text, span.start)),
            what: error.message().trim().replace('\n', ", "),
        }
    }
}

/// Line and column, from 1, of a byte offset.
pub(super) fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    let line = before.iter().filter(|b| **b == b'\n').count() + 1;
    let column = String::from_utf8_lossy(&before[line_start..])
        .chars()
        .count()
        + 1;
    (line, column)
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for PolicyError {}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        Failure::refused("garbled-policy", error.to_string())
            .state("its rules can't be followed, so nothing was mounted or changed")
            .next(format!("correct {} (see docs/policy.md)", error.file))
    }
}
