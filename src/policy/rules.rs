//! All rules of users, compiled for one look at a path.

use std::path::Path;

use globset::{GlobSet, GlobSetBuilder};

use crate::policy::form::ParsedRule;
use crate::policy::rule::{Outcome, Rule};
use crate::policy::{Decision, Source, Subject, builtin};

/// The rules in force: the station's, then the workspace's.
#[derive(Debug)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// How many of them are the station's.
    stations: usize,
    globs: GlobSet,
    /// Which rule each glob belongs to.
    rule_of_glob: Vec<usize>,
}

/// Which rules decided, if any of users' did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Deciders {
    pub(super) station: Option<usize>,
    pub(super) workspace: Option<usize>,
}

impl Rules {
    /// # Errors
    /// When the patterns together are too large to be compiled.
    pub(super) fn new(station: &[ParsedRule], workspace: &[ParsedRule]) -> Result<Self, String> {
        let mut builder = GlobSetBuilder::new();
        let mut rule_of_glob = Vec::new();
        let mut rules = Vec::new();
        for parsed in station.iter().chain(workspace) {
            for glob in parsed.patterns.iter().flat_map(|p| &p.globs) {
                builder.add(glob.clone());
                rule_of_glob.push(rules.len());
            }
            rules.push(parsed.rule.clone());
        }
        let globs = builder
            .build()
            .map_err(|e| format!("the patterns together can't be compiled: {e}"))?;
        Ok(Self {
            rules,
            stations: station.len(),
            globs,
            rule_of_glob,
        })
    }

    pub(super) fn none() -> Self {
        Self {
            rules: Vec::new(),
            stations: 0,
            globs: GlobSet::empty(),
            rule_of_glob: Vec::new(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Source, &Rule)> {
        let source = |at| {
            if at < self.stations {
                Source::Station
            } else {
                Source::Workspace
            }
        };
        self.rules
            .iter()
            .enumerate()
            .map(move |(at, rule)| (source(at), rule))
    }

    /// Which rules' patterns match `path`; a rule without patterns matches every path.
    pub(super) fn matching(&self, path: &Path) -> Vec<bool> {
        let mut matching: Vec<bool> = self.rules.iter().map(|r| !r.has_patterns).collect();
        for glob in self.globs.matches(path) {
            matching[self.rule_of_glob[glob]] = true;
        }
        matching
    }

    /// The first rule of the station's and the first of the workspace's that match.
    pub(super) fn deciders(&self, subject: &Subject<'_>) -> Deciders {
        if self.rules.iter().all(|r| r.misfit(subject).is_some()) {
            return Deciders::default();
        }
        let matching = self.matching(subject.path);
        let first = |from: usize, to: usize| {
            (from..to).find(|at| matching[*at] && self.rules[*at].misfit(subject).is_none())
        };
        Deciders {
            station: first(0, self.stations),
            workspace: first(self.stations, self.rules.len()),
        }
    }

    pub(super) fn name(&self, at: usize) -> &str {
        &self.rules[at].name
    }

    /// The outcome that `deciders` have for `subject`: a workspace rule decides alone where no
    /// station rule matches, else it can only strengthen what that says.
    pub(super) fn outcome(&self, deciders: Deciders, subject: &Subject<'_>) -> Outcome {
        let default = builtin::decide(subject).1;
        let of = |at: Option<usize>, base| at.map(|at| self.rules[at].outcome(base));
        let station = of(deciders.station, default);
        let base = match station {
            Some(Outcome::Keep(kept)) => kept,
            Some(Outcome::Delete) | None => default,
        };
        match (station, of(deciders.workspace, base)) {
            (None, None) => Outcome::Keep(default),
            (Some(only), None) | (None, Some(only)) => only,
            (Some(station), Some(workspace)) => station.strengthened_by(workspace),
        }
    }

    pub(super) fn decide(&self, subject: &Subject<'_>) -> Decision {
        if self.rules.is_empty() {
            return Decision::Keep(builtin::decide(subject).1);
        }
        let deciders = self.deciders(subject);
        match self.outcome(deciders, subject) {
            Outcome::Keep(kept) => Decision::Keep(kept),
            Outcome::Delete => Decision::Delete {
                rule: deciders
                    .station
                    .or(deciders.workspace)
                    .map_or_else(String::new, |at| self.name(at).to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests;
