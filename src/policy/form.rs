//! The rules as written in TOML. What is wrong is found here, with its line and column.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::value::{SeqAccessDeserializer, StrDeserializer};
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

use crate::policy::error::place;
use crate::policy::glob::Pattern;
use crate::policy::rule::{Rule, Wish};
use crate::policy::{Budget, PolicyError, parse_duration, parse_size};
use crate::record::Cause;

const RETAIN_MAX: Duration = Duration::from_secs(365 * 86_400);
const RETAIN_MIN_HOSTED: Duration = Duration::from_secs(86_400);

/// A rule with its patterns, before they are compiled with those of the others.
#[derive(Clone, Debug)]
pub(super) struct ParsedRule {
    pub(super) rule: Rule,
    pub(super) patterns: Vec<Pattern>,
}

/// What the station's `config.toml` says about keeping: its `[[rule]]`s and its `[budget]`.
/// Other keys of that file are other modules' to check.
#[derive(Clone, Debug, Default)]
pub struct StationPolicy {
    pub(super) rules: Vec<ParsedRule>,
    /// How much of a filesystem staging may take.
    pub budget: Budget,
}

impl StationPolicy {
    /// From the text of `config.toml`; `file` is its name in messages.
    ///
    /// # Errors
    /// Where the text is wrong, and what is expected.
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyError> {
        #[derive(serde::Deserialize)]
        struct StationForm {
            #[serde(default)]
            rule: Vec<toml::Spanned<RuleForm>>,
            #[serde(default)]
            budget: Budget,
        }
        let form: StationForm =
            toml::from_str(text).map_err(|e| PolicyError::of_toml(file, text, &e))?;
        Ok(Self {
            rules: checked(file, text, form.rule)?,
            budget: form.budget,
        })
    }
}

/// The rules of a workspace's policy file.
pub(super) fn workspace_rules(file: &str, text: &str) -> Result<Vec<ParsedRule>, PolicyError> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct WorkspaceForm {
        #[serde(default)]
        rule: Vec<toml::Spanned<RuleForm>>,
    }
    let form: WorkspaceForm =
        toml::from_str(text).map_err(|e| PolicyError::of_toml(file, text, &e))?;
    checked(file, text, form.rule)
}

fn checked(
    file: &str,
    text: &str,
    forms: Vec<toml::Spanned<RuleForm>>,
) -> Result<Vec<ParsedRule>, PolicyError> {
    forms
        .into_iter()
        .map(|form| {
            let at = place(text, form.span().start);
            form.into_inner()
                .check(&format!("{file}:{}", at.0))
                .map_err(|what| PolicyError {
                    file: file.to_owned(),
                    place: Some(at),
                    what,
                })
        })
        .collect()
}

/// A `[[rule]]`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleForm {
    name: Option<String>,
    #[serde(default, rename = "match")]
    patterns: OneOrMany<Pattern>,
    #[serde(default)]
    cause: OneOrMany<Cause>,
    #[serde(default)]
    process: OneOrMany<String>,
    larger_than: Option<Size>,
    smaller_than: Option<Size>,
    older_than: Option<Time>,
    younger_than: Option<Time>,
    keep: Option<Wish>,
    retain: Option<Time>,
    versions: Option<u32>,
}

impl RuleForm {
    /// What each key alone can't tell. `place` names a rule that has no name of its own.
    fn check(self, place: &str) -> Result<ParsedRule, String> {
        let retain = self.retain.as_ref().map(|time| time.0);
        self.check_consequence(retain)?;
        let rule = Rule {
            name: self.name.unwrap_or_else(|| place.to_owned()),
            has_patterns: !self.patterns.0.is_empty(),
            causes: self.cause.0,
            processes: self.process.0,
            larger_than: self.larger_than.map(|size| size.0),
            smaller_than: self.smaller_than.map(|size| size.0),
            older_than_s: self.older_than.map(|time| time.0.as_secs()),
            younger_than_s: self.younger_than.map(|time| time.0.as_secs()),
            wish: self.keep,
            retain,
            versions: self.versions,
        };
        Ok(ParsedRule {
            rule,
            patterns: self.patterns.0,
        })
    }

    fn check_consequence(&self, retain: Option<Duration>) -> Result<(), String> {
        let settles_how_long = retain.is_some() || self.versions.is_some();
        match self.keep {
            None if !settles_how_long => Err(
                "the rule says nothing: it needs keep = \"hosted\", \"local\" or \"none\", or retain, or versions"
                    .to_owned(),
            ),
            Some(Wish::None) if settles_how_long => {
                Err("keep = \"none\" deletes outright, so it goes with neither retain nor versions".to_owned())
            }
            _ if self.versions == Some(0) => {
                Err("versions is at least 1; keep = \"none\" is what keeps nothing".to_owned())
            }
            _ if retain.is_some_and(|r| r.is_zero() || r > RETAIN_MAX) => {
                Err("retain lies between \"1s\" and \"365d\"".to_owned())
            }
            keep if keep != Some(Wish::Local) && retain.is_some_and(|r| r < RETAIN_MIN_HOSTED) => {
                Err("a retain of less than \"1d\" needs keep = \"local\"".to_owned())
            }
            _ => Ok(()),
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(try_from = "String")]
struct Time(Duration);

impl TryFrom<String> for Time {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        parse_duration(&text).map(Self)
    }
}

#[derive(serde::Deserialize)]
#[serde(try_from = "String")]
struct Size(u64);

impl TryFrom<String> for Size {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        parse_size(&text).map(Self)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)
            .and_then(|text| Self::parse(&text).map_err(serde::de::Error::custom))
    }
}

/// A value, or a list of values.
struct OneOrMany<T>(Vec<T>);

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrManyVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrManyVisitor<T> {
            type Value = OneOrMany<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                T::deserialize(StrDeserializer::new(text)).map(|one| OneOrMany(vec![one]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                let many = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                if many.is_empty() {
                    return Err(serde::de::Error::custom("an empty list matches nothing"));
                }
                Ok(OneOrMany(many))
            }
        }
        deserializer.deserialize_any(OneOrManyVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_rule_is_read() {
        let text = r#"
            profile = "local"
            [budget]
            staging = "30%"
            [[rule]]
            name = "logs"
            match = ["*.log", "/var/**"]
            cause = "remove"
            process = ["rm", "find"]
            larger_than = "10MiB"
            smaller_than = "1GiB"
            older_than = "1h"
            younger_than = "2d"
            keep = "local"
            retain = "12h"
            versions = 3
        "#;
        let policy = StationPolicy::parse("config.toml", text).unwrap();
        let rule = &policy.rules[0].rule;
        assert_eq!(rule.name, "logs");
        assert_eq!(policy.rules[0].patterns.len(), 2);
        assert_eq!(rule.causes, [Cause::Remove]);
        assert_eq!(rule.retain, Some(Duration::from_secs(12 * 3600)));
        assert_eq!(policy.budget.staging, crate::policy::Share::Percent(30));
    }

    /// Each fault with its place and the words that tell what is expected.
    #[test]
    fn every_fault_has_its_place_and_what_is_expected() {
        for (text, place, expected) in [
            (
                "[[rule]]\nmach = \"x\"\nkeep = \"none\"",
                (2, 1),
                "unknown field `mach`, expected one of `name`, `match`",
            ),
            (
                "rules = 1",
                (1, 1),
                "unknown field `rules`, expected `rule`",
            ),
            (
                "[budget]\nstaging = \"5%\"",
                (1, 2),
                "unknown field `budget`",
            ),
            (
                "[[rule]]\nkeep = \"forever\"",
                (2, 8),
                "expected one of `none`, `local`, `hosted`",
            ),
            ("[[rule]]\nkeep = ", (2, 8), "string values must be quoted"),
            (
                "[[rule]]\nmatch = 5\nkeep = \"none\"",
                (2, 9),
                "expected a string or a list of strings",
            ),
            (
                "[[rule]]\nmatch = \"!x\"\nkeep = \"none\"",
                (2, 9),
                "can't be negated",
            ),
            (
                "[[rule]]\nmatch = []\nkeep = \"none\"",
                (2, 9),
                "an empty list matches nothing",
            ),
            (
                "[[rule]]\ncause = [\"remove\", \"move\"]\nkeep = \"none\"",
                (2, 20),
                "expected one of `remove`, `replace`, `truncate`",
            ),
            ("[[rule]]\nretain = \"7 days\"", (2, 10), "as in \"7d\""),
            (
                "[[rule]]\nlarger_than = \"10\"\nkeep = \"local\"",
                (2, 15),
                "as in \"10MiB\"",
            ),
            ("\n[[rule]]\nmatch = \"x\"", (2, 1), "the rule says nothing"),
            (
                "[[rule]]\nkeep = \"none\"\nretain = \"7d\"",
                (1, 1),
                "neither retain nor versions",
            ),
            (
                "[[rule]]\nkeep = \"hosted\"\nretain = \"366d\"",
                (1, 1),
                "between \"1s\" and \"365d\"",
            ),
            (
                "[[rule]]\nkeep = \"hosted\"\nretain = \"0d\"",
                (1, 1),
                "between \"1s\" and \"365d\"",
            ),
            (
                "[[rule]]\nretain = \"1h\"",
                (1, 1),
                "needs keep = \"local\"",
            ),
            ("[[rule]]\nversions = 0", (1, 1), "at least 1"),
        ] {
            let error = workspace_rules(".trashfs.toml", text).unwrap_err();
            assert!(error.what.contains(expected), "{text:?}: {error}");
            assert_eq!(error.place, Some(place), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_examples_of_the_description_are_valid() {
        let mut examples = 0;
        for block in include_str!("../../docs/policy.md")
            .split("```toml\n")
            .skip(1)
        {
            let text = block.split("```").next().unwrap();
            let wrong = match text.starts_with("# .trashfs.toml") {
                true => workspace_rules(".trashfs.toml", text).err(),
                false => StationPolicy::parse("config.toml", text).err(),
            };
            assert_eq!(wrong, None, "{text}");
            examples += 1;
        }
        assert!(examples >= 3);
    }
}
