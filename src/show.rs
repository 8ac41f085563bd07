//! Looking at what is kept, without restoring it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use trashfs_mount::FileKind;

use crate::beneath;
use crate::clock::{self, UnixNanos};
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::record::{Bytes, Kind, Left};
use crate::replica::{self, Spot};
use crate::restore::{Candidate, Holding, Prefer, choose, member_at};
use crate::walk::names_in;
use crate::workspace::Workspace;

/// Names of a directory that are told; further ones are only counted.
const NAMES_MAX: usize = 10_000;
/// Paths that a message lists.
const LISTED_MAX: usize = 10;

/// A kept file as it can be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// The entry.
    pub entry: EntryId,
    /// Workspace-relative path where it was.
    pub path: Bytes,
    /// Kind.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Last modification.
    #[serde(with = "clock::rfc3339")]
    pub mtime: UnixNanos,
    /// Names in a directory, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Bytes>,
    /// Names that were left out.
    #[serde(default)]
    pub more_names: u64,
    /// Target of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Bytes>,
}

/// What an entry keeps of `member` (`PATH@N` for version N; the only root where none is named),
/// and for a file a descriptor to read it by.
///
/// # Errors
/// `unknown-id`, `no-such-member`, `which-member`, and those of reading.
pub fn show(
    ws: &Workspace,
    entry: &str,
    member: Option<&Path>,
) -> Result<(Shown, Option<OwnedFd>), Failure> {
    ws.close_operations();
    let (holding, candidate) = find(ws, entry, member)?;
    let what = candidate.path().display().to_string();
    let failed = |e: Errno| Failure::io(&what, &e.into());
    let (dir, name) = candidate.at.open_parent(&ws.staging).map_err(failed)?;
    let spot = Spot {
        dir: dir.as_fd(),
        name,
    };
    let attr = candidate.attr;
    let mut shown = Shown {
        entry: holding.dir.id.clone(),
        path: candidate.path().into(),
        kind: attr.kind().into(),
        mode: attr.permissions(),
        size_bytes: attr.size_bytes,
        mtime: UnixNanos(i64::try_from(Left::of(&attr).mtime_ns).unwrap_or(i64::MAX)),
        names: Vec::new(),
        more_names: 0,
        target: None,
    };
    match attr.kind() {
        FileKind::Regular => {
            let file = replica::open_readable(spot).map_err(failed)?;
            return Ok((shown, Some(file.into())));
        }
        FileKind::Directory => {
            let inner = beneath::open_dir_at(&dir, name).map_err(failed)?;
            let names = names_in(inner.as_fd()).map_err(|e| Failure::io(&what, &e))?;
            shown.more_names = names.len().saturating_sub(NAMES_MAX) as u64;
            shown.names = names
                .into_iter()
                .map(|(name, _)| name.as_os_str().into())
                .collect();
            shown.names.sort();
            shown.names.truncate(NAMES_MAX);
        }
        FileKind::Symlink => {
            let target = rustix::fs::readlinkat(&dir, name, Vec::new()).map_err(failed)?;
            shown.target = Some(OsStr::from_bytes(target.to_bytes()).into());
        }
        _ => {}
    }
    Ok((shown, None))
}

/// The one capture that is meant: of several versions the newest.
pub(crate) fn find(
    ws: &Workspace,
    entry: &str,
    member: Option<&Path>,
) -> Result<(Holding, Candidate), Failure> {
    let entry = ws.journal.find(entry)?;
    if entry.state.is_end() {
        let what = format!("entry {} is {}", entry.id, entry.state.as_str());
        return Err(Failure::refused("ended", what).next("trash list --all"));
    }
    let holding = Holding::open(&ws.staging, &entry.id)?;
    let found = member_at(&holding, member.unwrap_or(Path::new("")))
        .map_err(|e| Failure::io(format!("entry {}", entry.id), &e))?;
    let (mut chosen, _) = choose(found, Prefer::Newest);
    match (chosen.len(), member) {
        (0, Some(member)) => {
            let what = format!("entry {} holds no {}", entry.id, member.display());
            Err(Failure::failed("no-such-member", what).next(format!("trash info {}", entry.id)))
        }
        (0, None) => Err(Failure::refused(
            "empty",
            format!("entry {} holds nothing", entry.id),
        )),
        (1, _) => Ok((holding, chosen.swap_remove(0))),
        _ => Err(which(&entry.id, &chosen)),
    }
}

fn which(id: &EntryId, chosen: &[Candidate]) -> Failure {
    let names: Vec<_> = chosen
        .iter()
        .take(LISTED_MAX)
        .map(|c| c.path().display().to_string())
        .collect();
    let more = match chosen.len().saturating_sub(names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Failure::failed(
        "which-member",
        format!("entry {id} holds {} paths", chosen.len()),
    )
    .state(format!("{}{more}", names.join(", ")))
    .next(format!("trash show {id} PATH"))
}
