//! Which rule decides about a path, and why the others don't.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::policy::builtin::{BUILTINS, Marks, decide};
use crate::policy::rule::{Outcome, Rule};
use crate::policy::rules::{Deciders, Rules};
use crate::policy::{PolicyError, Subject, duration_text, is_cache};
use crate::record::{Bytes, Cause};
use crate::workspace::Workspace;

/// Whose rule it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The station's `config.toml`.
    Station,
    /// The workspace's `.trashfs.toml`.
    Workspace,
    /// A default.
    Builtin,
}

/// A rule that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Considered {
    /// Whose it is.
    pub source: Source,
    /// Its name, or file and line.
    pub rule: String,
    /// Whether it had a part in the decision.
    pub decides: bool,
    /// Why, or why not.
    pub why: String,
}

/// The decision about a path, and how it came about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The path.
    pub path: Bytes,
    /// The cause that was asked about.
    pub cause: Cause,
    /// `hosted`, `local` or `none`.
    pub keep: String,
    /// For how long, as in a policy file; none where nothing is kept.
    pub retain: Option<String>,
    /// At most so many captures of the path.
    pub versions: Option<u32>,
    /// Every rule, in the order in which they are looked at.
    pub considered: Vec<Considered>,
    /// What is wrong with the policy file: the last good rules are in force.
    pub problem: Option<String>,
}

pub(super) fn by_rules(
    rules: &Rules,
    subject: &Subject<'_>,
    problem: Option<PolicyError>,
) -> Explanation {
    let deciders = rules.deciders(subject);
    let outcome = rules.outcome(deciders, subject);
    let (keep, retain, versions) = match outcome {
        Outcome::Delete => ("none", None, None),
        Outcome::Keep(kept) => (
            kept.keep.as_str(),
            Some(duration_text(kept.retain)),
            kept.versions_max,
        ),
    };
    Explanation {
        path: subject.path.into(),
        cause: subject.cause,
        keep: keep.to_owned(),
        retain,
        versions,
        considered: considered(rules, deciders, subject),
        problem: problem.map(|p| p.to_string()),
    }
}

fn considered(rules: &Rules, deciders: Deciders, subject: &Subject<'_>) -> Vec<Considered> {
    let matching = rules.matching(subject.path);
    let by_user = rules.iter().enumerate().map(|(at, (source, rule))| {
        let decides = Some(at) == deciders.station || Some(at) == deciders.workspace;
        Considered {
            source,
            rule: rule.name.clone(),
            decides,
            why: why(rule, source, matching[at], decides, deciders, subject).to_owned(),
        }
    });
    let mut considered: Vec<_> = by_user.collect();
    considered.extend(builtins(
        subject,
        deciders.station.or(deciders.workspace).is_some(),
    ));
    considered
}

fn why(
    rule: &Rule,
    source: Source,
    matches: bool,
    decides: bool,
    deciders: Deciders,
    subject: &Subject<'_>,
) -> &'static str {
    if !matches {
        return "its patterns do not match";
    }
    if let Some(misfit) = rule.misfit(subject) {
        return misfit;
    }
    match (decides, source, deciders.station) {
        (false, ..) => "it matches, but one before it decides",
        (true, Source::Workspace, Some(_)) => {
            "it matches, and may only strengthen what the station's rule says"
        }
        (true, ..) => "it matches",
    }
}

fn builtins(subject: &Subject<'_>, user_decided: bool) -> Vec<Considered> {
    let marks = Marks::of(subject.path);
    let decider = decide(subject).0.name;
    let mut considered = Vec::new();
    for builtin in &BUILTINS {
        let fits = (builtin.fits)(subject, marks);
        let is_it = builtin.name == decider;
        let why = match (fits, is_it, user_decided) {
            (false, ..) => format!("it is for {}", builtin.about),
            (true, true, false) => format!("it matches: {}", builtin.about),
            (true, true, true) => {
                format!(
                    "it is for {}, and gives what the rules above do not mention",
                    builtin.about
                )
            }
            (true, false, _) => "it matches, but one before it decides".to_owned(),
        };
        considered.push(Considered {
            source: Source::Builtin,
            rule: builtin.name.to_owned(),
            decides: is_it && !user_decided,
            why,
        });
    }
    considered
}

/// What `trash policy explain` asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// Workspace-relative path; it need not exist.
    pub path: Bytes,
    /// Why it would be destroyed.
    pub cause: Cause,
    /// Name of the process that would.
    pub process: String,
    /// Length, where it is not to be that of the file.
    pub size_bytes: Option<u64>,
    /// Age in seconds, where it is not to be that of the file.
    pub age_s: Option<u64>,
}

/// Answers with the rules that are in force now.
///
/// # Errors
/// When the path leaves the workspace.
pub fn explain(workspace: &Workspace, question: &Question) -> Result<Explanation, Failure> {
    let path: PathBuf = question.path.as_path().components().collect();
    crate::beneath::names(&path).map_err(|_| {
        Failure::failed(
            "outside-workspace",
            format!("{} is not below the workspace", path.display()),
        )
    })?;
    workspace.policy.reload();
    let (size_bytes, age_s, cache) = workspace.with_root(|root| {
        let (size, age) = size_and_age(root, &path);
        (size, age, is_cache(root, &path))
    });
    Ok(workspace.policy.explain(&Subject {
        path: &path,
        cause: question.cause,
        comm: &question.process,
        asked_to_remove: false,
        size_bytes: question.size_bytes.unwrap_or(size_bytes),
        age_s: question.age_s.unwrap_or(age_s),
        scratch: false,
        cache,
    }))
}

/// Of the file as it is; zero for one that is not there.
fn size_and_age(root: std::os::fd::BorrowedFd<'_>, path: &std::path::Path) -> (u64, u64) {
    use rustix::fs::{AtFlags, StatxFlags};
    let Ok((dir, name)) = crate::beneath::open_parent(root, path) else {
        return (0, 0);
    };
    let mask = StatxFlags::SIZE | StatxFlags::BTIME | StatxFlags::MTIME;
    let Ok(stat) = rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, mask) else {
        return (0, 0);
    };
    let born = if stat.stx_mask & StatxFlags::BTIME.bits() != 0 {
        stat.stx_btime
    } else {
        stat.stx_mtime
    };
    let now_s = crate::clock::now().0 / 1_000_000_000;
    let age_s = u64::try_from(now_s.saturating_sub(born.tv_sec)).unwrap_or(0);
    (stat.stx_size, age_s)
}
