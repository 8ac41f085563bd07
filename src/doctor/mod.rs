//! Looks for what keeps the product from doing its work, and says what to type about it.
//! Changes nothing.

mod surroundings;
mod workspaces;

use serde::Serialize;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it should be.
    Ok,
    /// Works, but somebody should know.
    Warn,
    /// Does not work.
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// What was looked at: a stable word.
    pub name: &'static str,
    /// The workspace that it is about, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// How it came out.
    pub outcome: Outcome,
    /// What was found.
    pub found: String,
    /// The next command to type; empty when there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next: String,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Outcome::Ok, found, "")
    }

    fn warn(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(name, Outcome::Warn, found, next)
    }

    fn fail(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self::new(name, Outcome::Fail, found, next)
    }

    fn new(
        name: &'static str,
        outcome: Outcome,
        found: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self {
            name,
            workspace: None,
            outcome,
            found: found.into(),
            next: next.into(),
        }
    }

    fn about(mut self, workspace: &std::path::Path) -> Self {
        self.workspace = Some(workspace.display().to_string());
        self
    }
}

/// Every check, in the order in which they build upon each other.
pub fn examine() -> Vec<Check> {
    let mut checks = surroundings::examine();
    checks.extend(workspaces::examine());
    checks
}
