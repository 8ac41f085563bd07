//! From the paths that a person names to what is captured.

use std::path::{Path, PathBuf};

use crate::beneath;
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::record::{Bytes, Entry};
use crate::restore::intent::Intent;
use crate::restore::staged::{Candidate, Holding, sort_by_age};
use crate::seal::Summary;
use crate::workspace::Workspace;

/// Roots that a message lists.
const LISTED_MAX: usize = 10;

/// Opens an entry that can be restored.
pub(crate) fn open(ws: &Workspace, entry: &Entry) -> Result<Holding, Failure> {
    if entry.state.is_end() {
        let what = format!("entry {} is {}", entry.id, entry.state.as_str());
        return Err(Failure::refused("ended", what)
            .state("nothing of it is kept any more")
            .next("trash list --all"));
    }
    let holding = Holding::open(&ws.staging, &entry.id)?;
    if Intent::read(&holding.dir)?.is_some() {
        return Err(interrupted(&entry.id));
    }
    Ok(holding)
}

/// What is said of an entry whose last restore was interrupted.
fn interrupted(id: &EntryId) -> Failure {
    Failure::refused(
        "interrupted",
        format!("a restore of entry {id} was interrupted"),
    )
    .state("nothing is lost: each file is either back or still kept")
    .next(format!("trash recover {id}"))
}

/// All captures that `members` mean; all roots when there are none.
pub(crate) fn candidates(holding: &Holding, members: &[Bytes]) -> Result<Vec<Candidate>, Failure> {
    let staging = |e: std::io::Error| Failure::io(format!("entry {}", holding.dir.id), &e);
    if members.is_empty() {
        let roots = holding.roots().map_err(staging)?;
        if roots.is_empty() {
            let what = format!("entry {} holds nothing", holding.dir.id);
            return Err(Failure::refused("empty", what).next("trash list"));
        }
        return Ok(roots);
    }
    let mut all: Vec<Candidate> = Vec::new();
    for member in members {
        let found = member_at(holding, member.as_path()).map_err(staging)?;
        if found.is_empty() {
            return Err(no_such_member(holding, member));
        }
        all.extend(
            found
                .into_iter()
                .filter(|c| all.iter().all(|known| known.at != c.at))
                .collect::<Vec<_>>(),
        );
    }
    Ok(without_nested(all))
}

/// Captures at a member's path, or its version N for `PATH@N`.
pub(crate) fn member_at(holding: &Holding, member: &Path) -> std::io::Result<Vec<Candidate>> {
    let Ok(names) = beneath::names(member) else {
        return Ok(Vec::new());
    };
    let clean: PathBuf = names.into_iter().collect();
    if clean.as_os_str().is_empty() {
        return holding.roots();
    }
    let literal = holding.at(&clean)?;
    if !literal.is_empty() {
        return Ok(literal);
    }
    let Some((path, version)) = split_version(&clean) else {
        return Ok(Vec::new());
    };
    let found = version_of(holding, &path, version)?;
    Ok(found.into_iter().collect())
}

/// Version `version` of a path, as `trash list --path` numbers it.
pub(crate) fn version_of(
    holding: &Holding,
    path: &Path,
    version: u32,
) -> std::io::Result<Option<Candidate>> {
    let mut all = holding.exactly_at(path)?;
    sort_by_age(&mut all, |c| c);
    let summary = Summary::read(&holding.dir)?;
    let known = summary.as_ref().and_then(|s| {
        let numbered = |r: &crate::record::Root| r.version == version && r.path.as_path() == path;
        s.roots
            .iter()
            .position(numbered)
            .and_then(|at| s.trees.get(at))
    });
    if let Some(tree) = known {
        return Ok(all.into_iter().find(|c| c.at.tree == *tree));
    }
    let at = usize::try_from(version)
        .unwrap_or(usize::MAX)
        .checked_sub(1);
    Ok(at.and_then(|at| all.into_iter().nth(at)))
}

/// `PATH@N`, taken apart.
fn split_version(path: &Path) -> Option<(PathBuf, u32)> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = path.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|b| *b == b'@')?;
    let version = std::str::from_utf8(&bytes[at + 1..]).ok()?.parse().ok()?;
    let path = std::ffi::OsString::from_vec(bytes[..at].to_vec());
    Some((PathBuf::from(path), version))
}

/// A member inside another one of the same tree goes with that.
fn without_nested(all: Vec<Candidate>) -> Vec<Candidate> {
    let inside = |inner: &Candidate, outer: &Candidate| {
        inner.at.tree == outer.at.tree
            && inner.at.area == outer.at.area
            && inner.path() != outer.path()
            && inner.path().starts_with(outer.path())
    };
    let keep: Vec<bool> = all
        .iter()
        .map(|c| !all.iter().any(|o| inside(c, o)))
        .collect();
    let mut keep = keep.into_iter();
    all.into_iter()
        .filter(|_| keep.next().unwrap_or(true))
        .collect()
}

fn no_such_member(holding: &Holding, member: &Bytes) -> Failure {
    let id = &holding.dir.id;
    let failure = Failure::failed(
        "no-such-member",
        format!("entry {id} holds no {}", member.display()),
    )
    .next(format!("trash info {id}"));
    match holding.roots() {
        Ok(roots) => {
            let names: Vec<String> = roots
                .iter()
                .take(LISTED_MAX)
                .map(|c| c.path().display().to_string())
                .collect();
            let more = roots.len().saturating_sub(names.len());
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            failure.state(format!("it holds {}{more}", names.join(", ")))
        }
        Err(_) => failure,
    }
}

/// A workspace-relative path that a person gave, without `.` and never into staging.
pub(crate) fn inside(path: &Path) -> Result<PathBuf, Failure> {
    let outside = || {
        Failure::failed(
            "outside",
            format!("{} is not inside the workspace", path.display()),
        )
    };
    let names = beneath::names(path).map_err(|_| outside())?;
    if names
        .first()
        .is_some_and(|name| *name == crate::staging::STAGING_NAME)
    {
        return Err(outside());
    }
    Ok(names.into_iter().collect())
}
