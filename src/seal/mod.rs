//! Sealing: when nothing more is added to an entry, what it holds is written down once, beside
//! it, and from then on read instead of walked.

pub mod manifest;
pub(crate) mod order;
mod shape;
mod survey;

pub use shape::{Settings, Shape, entry_of, expiry_of, open_entry, quoted};
pub use survey::{Counts, Present, occupied, survey};
pub(crate) use survey::{into, is_container};

use std::collections::HashMap;
use std::io;

use serde::{Deserialize, Serialize};

use crate::clock::UnixNanos;
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::journal::{Batch, Event, State};
use crate::record::{Bytes, Cause, Entry, Kind, Root};
use crate::staging::{EntryDir, SUMMARY, damaged_is_none, read_record};
use crate::workspace::Workspace;

/// Version of `summary.json`.
pub const SUMMARY_FORMAT: u32 = 1;

/// `summary.json`: what an entry holds. Made anew when part of it is restored or expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// [`SUMMARY_FORMAT`].
    pub format: u32,
    /// The entry.
    pub entry: EntryId,
    /// Kind of its roots.
    pub kind: Kind,
    /// The root's path, or the directory that all roots have in common.
    pub path: Bytes,
    /// Effective causes, sorted, each once.
    pub causes: Vec<Cause>,
    /// Every root, by path and version.
    pub roots: Vec<Root>,
    /// The name of the tree that each of `roots` lies in.
    pub trees: Vec<String>,
    /// Members of all kinds.
    pub members: u64,
    /// Length of all regular files.
    pub bytes: u64,
    /// When what the operation left at its paths was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_at: Option<UnixNanos>,
}

impl Summary {
    /// As it lies beside the entry; none when it is missing, damaged or of a later format.
    ///
    /// # Errors
    /// Those of reading a file that exists.
    pub fn read(dir: &EntryDir) -> io::Result<Option<Self>> {
        Ok(damaged_is_none(read_record(dir.records(), SUMMARY))?
            .and_then(|text| serde_json::from_slice::<Self>(&text).ok())
            .filter(|summary| summary.format <= SUMMARY_FORMAT))
    }

    /// Writes it beside the entry by one rename, without waiting for the disk: one that a power
    /// cut damages is made anew by walking.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn write(&self, dir: &EntryDir) -> io::Result<()> {
        use rustix::fs::{Mode, OFlags};
        let text = serde_json::to_vec(self)?;
        let fresh = format!(".{SUMMARY}.new");
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = rustix::fs::openat(dir.records(), fresh.as_str(), flags, mode)?;
        io::Write::write_all(&mut std::fs::File::from(fd), &text)?;
        Ok(crate::relocate::replace_record(
            dir.records(),
            fresh.as_str(),
            SUMMARY,
        )?)
    }
}

/// What sealing an entry came to.
#[derive(Debug)]
pub enum Sealed {
    /// It holds something: the entry for the journal.
    Whole(Box<Shape>),
    /// It holds nothing: every capture was taken back. Its directory can go.
    Empty,
}

/// Surveys an entry, writes its summary, and says what the journal has to be told.
///
/// With [`Present::Compared`], what stands at the captured paths now counts as left there by the
/// operation itself; say so only while that is certain.
///
/// # Errors
/// Those of reading staging and of writing the summary.
pub fn seal(
    ws: &Workspace,
    dir: &EntryDir,
    counts: Option<Counts>,
    present: Present,
) -> io::Result<Sealed> {
    let summary = ws.with_root(|root| survey(root, dir, counts, present))?;
    finish(ws, dir, summary)
}

/// Seals an entry whose operation has just ended, or ended before a file in it was no longer open
/// for writing: what it left at its paths is then known since.
///
/// # Errors
/// As of [`seal`].
pub fn seal_over(ws: &Workspace, dir: &EntryDir, counts: Counts) -> io::Result<Sealed> {
    match Summary::read(dir)? {
        Some(known) => reseal(ws, dir, &known),
        None => seal(ws, dir, Some(counts), Present::Compared),
    }
}

/// Surveys an entry of which a part went: what was known of the rest stays as it was.
fn reseal(ws: &Workspace, dir: &EntryDir, known: &Summary) -> io::Result<Sealed> {
    let mut summary = ws.with_root(|root| survey(root, dir, None, Present::Unknown))?;
    let by_place: HashMap<_, _> = known
        .trees
        .iter()
        .zip(&known.roots)
        .map(|(tree, root)| ((tree, &root.path), root))
        .collect();
    for (root, tree) in summary.roots.iter_mut().zip(&summary.trees) {
        if let Some(before) = by_place.get(&(tree, &root.path)) {
            *root = (*before).clone();
        }
    }
    summary.causes = causes_of(&summary.roots);
    summary.compared_at = known.compared_at;
    finish(ws, dir, summary)
}

fn causes_of(roots: &[Root]) -> Vec<Cause> {
    let mut causes: Vec<Cause> = roots.iter().map(|r| r.cause).collect();
    causes.sort_unstable();
    causes.dedup();
    causes
}

fn finish(ws: &Workspace, dir: &EntryDir, summary: Summary) -> io::Result<Sealed> {
    if summary.roots.is_empty() {
        return Ok(Sealed::Empty);
    }
    if let Err(error) = summary.write(dir) {
        // A full disk costs the shortcut, not the bytes.
        tracing::warn!(entry = %dir.id, %error, "the summary could not be written");
    }
    Ok(Sealed::Whole(Box::new(Shape::new(ws, dir, summary)?)))
}

/// Tells the journal of a sealed entry, new or known.
///
/// # Errors
/// When the journal can't be written.
pub fn record(rows: &Batch<'_>, shape: &Shape) -> Result<(), Failure> {
    let mut entry = shape.entry.clone();
    if let Some(known) = rows.entry(&entry.id)? {
        entry.state = match known.state {
            State::Open => State::Open.after(Event::Seal).unwrap_or(State::Sealed),
            other => other,
        };
        entry.hashed = known.hashed && known.roots == entry.roots;
    }
    rows.put(&entry)?;
    rows.set_next_expiry(&entry.id, shape.next_expiry)?;
    if let Some(bytes) = shape.disk_bytes {
        rows.set_disk_bytes(&entry.id, bytes)?;
    }
    crate::retention::versions::note(rows, &entry, &shape.overwritten)
}

/// Seals an entry that the product's own verbs have just made (`put`, `swap`) or of which they
/// took a part (it was restored, or it expired), and tells the journal at once. `None`: nothing
/// is left in it, and the caller decides what that means.
///
/// # Errors
/// When staging can't be read or the journal can't be written.
pub fn seal_now(ws: &Workspace, id: &EntryId) -> Result<Option<Entry>, Failure> {
    let staging = |e: io::Error| Failure::io(format!("sealing the entry {id}"), &e);
    let Some(dir) = ws.staging.entry(id).map_err(staging)? else {
        return Ok(None);
    };
    let known = Summary::read(&dir).map_err(staging)?;
    let sealed = match &known {
        Some(known) => reseal(ws, &dir, known),
        None => seal(ws, &dir, None, Present::Compared),
    };
    match sealed.map_err(staging)? {
        Sealed::Empty => Ok(None),
        Sealed::Whole(shape) => {
            ws.journal.batch(|rows| record(rows, &shape))?;
            Ok(Some(shape.entry))
        }
    }
}

#[cfg(test)]
mod tests;
