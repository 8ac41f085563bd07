//! What is told to a person when something can't be done: what happened, in what state things
//! are, and what to type next. The one place that turns errors into exit codes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a command ends when it does not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// Usage or service failure: exit code 1.
    Failed,
    /// Refused; nothing was lost or changed: exit code 2.
    Refused,
}

impl Ending {
    /// The process's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Refused => 2,
        }
    }
}

/// An error for people and for scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Decides the exit code.
    pub ending: Ending,
    /// Stable word for scripts, e.g. `occupied`, `unknown-id`, `not-mounted`.
    pub code: String,
    /// What happened, naming the thing.
    pub what: String,
    /// What state things are in; empty when there is nothing to add.
    #[serde(default)]
    pub state: String,
    /// The next command to type; empty when there is none.
    #[serde(default)]
    pub next: String,
}

impl Failure {
    /// Usage or service failure.
    pub fn failed(code: &str, what: impl Into<String>) -> Self {
        Self {
            ending: Ending::Failed,
            code: code.into(),
            what: what.into(),
            state: String::new(),
            next: String::new(),
        }
    }

    /// A refusal: nothing was lost.
    pub fn refused(code: &str, what: impl Into<String>) -> Self {
        Self {
            ending: Ending::Refused,
            ..Self::failed(code, what)
        }
    }

    /// Adds the state of things.
    #[must_use]
    pub fn state(mut self, state: impl Into<String>) -> Self {
        self.state = state.into();
        self
    }

    /// Adds the next command.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// An operating-system error on a named thing.
    pub fn io(what: impl Into<String>, error: &std::io::Error) -> Self {
        Self::failed("io", format!("{}: {}", what.into(), plain(error)))
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        self.ending.exit_code()
    }
}

/// The system's text for an error, without Rust's `(os error N)`.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// A word for use in a shell: quoted where it needs it.
pub fn shell_word(text: impl fmt::Display) -> String {
    let text = text.to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.state.is_empty() {
            write!(f, "\n  {}", self.state)?;
        }
        if !self.next.is_empty() {
            write!(f, "\n  next: {}", self.next)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_words_are_quoted_where_they_need_it() {
        assert_eq!(shell_word("src/a.c"), "src/a.c");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
