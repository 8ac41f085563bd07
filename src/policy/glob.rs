//! Patterns as in gitignore(5), on workspace-relative paths.

use globset::{Glob, GlobBuilder};

/// A checked pattern and the globs that stand for it: the path itself and what lies below.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) globs: [Glob; 2],
}

impl Pattern {
    /// A pattern without a slash (but at its end) matches at every depth; one with a slash is
    /// anchored at the workspace's root. What matches a directory matches all below it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('!') {
            return Err(format!(
                "{text:?}: a pattern can't be negated; put a rule for what is to differ before this one"
            ));
        }
        let body = text.strip_suffix('/').unwrap_or(text);
        let anchored = match body.strip_prefix('/') {
            Some(rest) => rest.to_owned(),
            None if body.contains('/') || body == "**" => body.to_owned(),
            None => format!("**/{body}"),
        };
        if anchored.is_empty() || body.is_empty() {
            return Err(format!(
                "{text:?} matches nothing; \"**\" matches everything"
            ));
        }
        if anchored
            .split('/')
            .any(|name| matches!(name, "" | "." | ".."))
        {
            return Err(format!(
                "{text:?}: a pattern is a path from the workspace's root without empty names, . or .."
            ));
        }
        Ok(Self {
            globs: [
                glob(text, &anchored)?,
                glob(text, &format!("{anchored}/**"))?,
            ],
        })
    }
}

fn glob(text: &str, anchored: &str) -> Result<Glob, String> {
    GlobBuilder::new(anchored)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|e| format!("{text:?}: {}", e.kind()))
}

impl TryFrom<String> for Pattern {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern)
            .unwrap()
            .globs
            .iter()
            .any(|glob| glob.compile_matcher().is_match(path))
    }

    #[test]
    fn patterns_are_those_of_gitignore() {
        for (pattern, path, expected) in [
            ("*.log", "a.log", true),
            ("*.log", "x/y/a.log", true),
            ("*.log", "a.log.txt", false),
            ("*.log", "x.log/inside", true),
            ("build", "a/build/x/y", true),
            ("build/", "build/x", true),
            ("/build", "a/build", false),
            ("a/*.c", "a/x.c", true),
            ("a/*.c", "a/b/x.c", false),
            ("a/**/x", "a/b/c/x", true),
            ("a/**/x", "a/x", true),
            ("**", "any/thing", true),
            ("**", "x", true),
            ("data/**", "data/x/y", true),
            ("[ab].txt", "q/b.txt", true),
            ("*.{o,a}", "lib/x.a", true),
            (r"\*.txt", "*.txt", true),
            (r"\*.txt", "a.txt", false),
            ("*", ".hidden/x", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn a_wrong_pattern_says_what_is_wrong() {
        for pattern in ["", "/", "!x", "../x", "a//b", "./a", "[a", "{a"] {
            let error = Pattern::parse(pattern).unwrap_err();
            assert!(error.contains(&format!("{pattern:?}")), "{error}");
        }
    }
}
