//! `trash put`: removing on purpose, with the same keeping as any other removal. A path goes
//! into staging by one rename or it stays where it is; nothing is ever copied and deleted.

mod elsewhere;
mod inside;
mod resolve;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use inside::put_inside;

use crate::control::{self, Request};
use crate::failure::Failure;
use crate::ids::{EntryId, WorkspaceId};
use crate::record::{Attribution, Bytes, Kind, Process};
use crate::station::{self, Located};

/// Days that an entry may be kept for.
const DAYS: std::ops::RangeInclusive<u32> = 1..=365;

/// What is to be put away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PutSpec {
    /// Workspace-relative paths.
    pub paths: Vec<Bytes>,
    /// Days to keep it, 1 to 365; as the policy says when nothing is said.
    pub retention_days: Option<u32>,
    /// Delete outright.
    pub permanent: bool,
    /// Who asks.
    pub process: Process,
    /// On whose behalf.
    pub attribution: Attribution,
}

impl PutSpec {
    /// By this very process.
    pub fn by_caller(retention_days: Option<u32>, permanent: bool) -> Self {
        let (mut process, attribution) = crate::capture::who(std::process::id());
        process.argv = std::env::args_os().map(Bytes).collect();
        Self {
            paths: Vec::new(),
            retention_days,
            permanent,
            process,
            attribution,
        }
    }

    fn check(&self) -> Result<(), Failure> {
        match self.retention_days {
            Some(days) if !DAYS.contains(&days) => {
                let what = format!("a retention of {days} days is not possible; 1 to 365 are");
                Err(Failure::failed("retention", what).state("nothing was removed"))
            }
            _ => Ok(()),
        }
    }
}

/// One path that was put away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Away {
    /// Where it was, absolute.
    pub path: Bytes,
    /// Kind.
    pub kind: Kind,
    /// The entry that keeps it; none when it was deleted outright.
    pub entry: Option<EntryId>,
}

/// What was put away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Put {
    /// Each path.
    pub put: Vec<Away>,
}

/// Puts away paths as they were typed in the directory `cwd`: each in the workspace that it
/// lies in, or in the staging area of its filesystem.
///
/// # Errors
/// Before anything is removed, for a path that can't or must not be; otherwise what went wrong
/// and what was put away until then.
pub fn put(cwd: &Path, typed: &[PathBuf], spec: &PutSpec) -> Result<Put, Failure> {
    spec.check()?;
    let known = station::all()?;
    let resolved: Result<Vec<_>, _> = typed
        .iter()
        .map(|path| resolve::resolve(cwd, path, &known))
        .collect();
    let mut by_workspace: BTreeMap<WorkspaceId, (Located, PutSpec)> = BTreeMap::new();
    let mut outside = Vec::new();
    for path in outermost(resolved?) {
        match station::workspace_of(path.parent().unwrap_or(Path::new("/")))? {
            Some(located) => {
                let relative = relative_to(&located, &path)?;
                let (_, spec) = by_workspace
                    .entry(located.registered.id.clone())
                    .or_insert_with(|| {
                        (
                            located,
                            PutSpec {
                                paths: Vec::new(),
                                ..spec.clone()
                            },
                        )
                    });
                spec.paths.push(relative);
            }
            None => outside.push(path),
        }
    }
    let mut done = Put::default();
    for (located, spec) in by_workspace.into_values() {
        let answer = control::call_for::<Put>(&located, Request::Put(spec));
        done.put.extend(after(&done, answer)?.put);
    }
    let answer = elsewhere::put(&outside, spec);
    done.put.extend(after(&done, answer)?.put);
    Ok(done)
}

/// A failure after something was put away says so.
fn after<T>(done: &Put, result: Result<T, Failure>) -> Result<T, Failure> {
    result.map_err(|failure| {
        if done.put.is_empty() {
            return failure;
        }
        let paths: Vec<_> = done.put.iter().map(|away| away.path.display()).collect();
        let state = format!("{}; already put away: {}", failure.state, paths.join(", "));
        failure.state(state.trim_start_matches("; "))
    })
}

/// A path inside another one goes with that, and the same one twice is one.
fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in paths {
        if !kept.last().is_some_and(|outer| path.starts_with(outer)) {
            kept.push(path);
        }
    }
    kept
}

fn relative_to(located: &Located, path: &Path) -> Result<Bytes, Failure> {
    let record = &located.registered;
    [record.path.as_path(), record.source.as_path()]
        .iter()
        .find_map(|root| path.strip_prefix(root).ok())
        .map(Bytes::from)
        .ok_or_else(|| {
            Failure::failed(
                "outside",
                format!("{} is not inside the workspace", path.display()),
            )
        })
}

#[cfg(test)]
mod tests;
