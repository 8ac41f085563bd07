//! Bringing journal and staging into agreement at each start, whatever happened before: both
//! ways, as often as one likes, and interrupted anywhere.
//!
//! Staging is right about bytes, the journal about ends. So what lies in staging and is unknown
//! is adopted; what is open is sealed, for its mount is gone; what ended is discarded if
//! something of it is left; what the journal has and staging has not is reported.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd as _;

use serde::{Deserialize, Serialize};

use crate::capture::take_back_unsettled;
use crate::clock;
use crate::discard;
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::journal::{Event, Journal, Loss, LossReason, State};
use crate::record::{Bytes, Entry, Failed};
use crate::restore::Holding;
use crate::retention::purge;
use crate::seal::{self, Present, Sealed, Settings, Shape, Summary};
use crate::staging::{AREAS_RECORD, Area, EntryDir, MANIFEST, STAGING_NAME, Unreachable};
use crate::walk::names_in;
use crate::workspace::Workspace;
use trashfs_mount::Attr;

/// Under which the last report lies in the journal.
const NOTE: &str = "reconciled";
/// Places that a report names.
const NAMED_MAX: usize = 100;
/// Entries that are written to the journal together.
const BATCH: usize = 256;
/// Names in a staging area that are the product's own.
const OWN_NAMES: [&str; 11] = [
    ".gitignore",
    "CACHEDIR.TAG",
    "area.json",
    AREAS_RECORD,
    ".areas.json.new",
    "lock",
    "ops",
    "purge",
    "scratch",
    "reserve",
    "spare",
];

/// What reconciliation found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// When, in RFC 3339.
    pub at: String,
    /// Entries that only staging had.
    pub adopted: Vec<EntryId>,
    /// Entries that were still open.
    pub resealed: Vec<EntryId>,
    /// Entries that only the journal has: their bytes are not where they were kept.
    pub missing: Vec<EntryId>,
    /// Files in staging that are none of ours, from the workspace's root: left alone.
    pub foreign: Vec<Bytes>,
    /// Entries of which a rest was discarded.
    pub purged: Vec<EntryId>,
    /// Entries and places that could not be read or written, and why: looked at again next time.
    pub troubled: Vec<String>,
    /// The damaged journal that had been set aside before.
    pub journal_set_aside: Option<String>,
}

impl Report {
    /// The last one that is noted in a journal.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub fn last(journal: &Journal) -> Result<Option<Self>, Failure> {
        let text = journal.note(NOTE)?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Whether everything agreed.
    pub fn is_clean(&self) -> bool {
        let Self {
            at: _,
            adopted,
            resealed,
            missing,
            foreign,
            purged,
            troubled,
            journal_set_aside,
        } = self;
        adopted.is_empty()
            && resealed.is_empty()
            && missing.is_empty()
            && foreign.is_empty()
            && purged.is_empty()
            && troubled.is_empty()
            && journal_set_aside.is_none()
    }

    fn trouble(&mut self, what: &str, error: &dyn std::fmt::Display) {
        tracing::warn!(%what, %error, "left for the next reconciliation");
        if self.troubled.len() < NAMED_MAX {
            self.troubled.push(format!("{what}: {error}"));
        }
    }
}

/// Brings journal and staging into agreement. Call it before anything is captured.
///
/// # Errors
/// When staging can't be listed or the journal can't be written. What one entry's own files do
/// wrong is in the report.
pub fn reconcile(ws: &Workspace) -> Result<Report, Failure> {
    let told = |e: io::Error| Failure::io("reading the staging area", &e);
    let mut report = Report {
        at: clock::now().to_rfc3339(),
        journal_set_aside: ws.journal.set_aside_now().map(str::to_owned),
        ..Report::default()
    };
    let unreachable = ws.staging.reopen_areas().map_err(told)?;
    for area in &unreachable {
        report.trouble("not reachable", area);
    }
    finish_purges(ws, &mut report)?;
    for area in ws.staging.areas() {
        empty_scratch(&area, &mut report);
        find_foreign(&area, &mut report).map_err(told)?;
    }
    let staged: HashSet<EntryId> = ws.staging.entries().map_err(told)?.into_iter().collect();
    take_in(ws, &staged, &mut report)?;
    find_missing(ws, &staged, &unreachable, &mut report)?;
    let text = serde_json::to_string(&report).unwrap_or_default();
    ws.journal.batch(|rows| rows.note(NOTE, &text))?;
    tell(&report);
    Ok(report)
}

fn tell(report: &Report) {
    if report.is_clean() {
        return;
    }
    tracing::warn!(
        adopted = report.adopted.len(),
        resealed = report.resealed.len(),
        missing = report.missing.len(),
        foreign = report.foreign.len(),
        purged = report.purged.len(),
        troubled = report.troubled.len(),
        "journal and staging did not agree"
    );
}

/// What lies in `purge/` had been given up: its end is recorded if that was still to do.
fn finish_purges(ws: &Workspace, report: &mut Report) -> Result<(), Failure> {
    let told = |e: io::Error| Failure::io("reading the staging area", &e);
    for (id, outgoing) in purge::lying(&ws.staging).map_err(told)? {
        let Some(id) = id else {
            report.foreign.push(outgoing.place().into());
            continue;
        };
        let mut all = vec![outgoing];
        if all[0].is_whole_entry() {
            // Its parts in other areas may not have been moved out yet.
            all.extend(purge::take_out(&ws.staging, &id).map_err(told)?);
            record_end(ws, &id)?;
        }
        if let Err(error) = purge::discard(ws, all) {
            report.trouble(&format!("discarding the rest of {id}"), &error);
        }
        if !report.purged.contains(&id) {
            report.purged.push(id);
        }
    }
    Ok(())
}

fn record_end(ws: &Workspace, id: &EntryId) -> Result<(), Failure> {
    let Some(entry) = ws.journal.entry(id)?.filter(|e| !e.state.is_end()) else {
        return Ok(());
    };
    let now = clock::now();
    ws.journal.batch(|rows| {
        if entry.state == State::Open {
            // It was empty: every capture had been taken back.
            return rows.forget(id);
        }
        rows.apply(id, Event::Expire, |e| e.resident = false)?;
        if entry.retain_until <= now {
            return Ok(());
        }
        rows.loss(&Loss {
            at: now,
            entry: id.clone(),
            path: entry.path.clone(),
            removed_at: entry.removed_at,
            retain_until: entry.retain_until,
            members: entry.members,
            bytes: entry.bytes,
            reason: LossReason::Interrupted,
        })
    })
}

/// Half-made copies are nobody's: what they were made from is still in place.
fn empty_scratch(area: &Area, report: &mut Report) {
    let emptied = crate::beneath::open_dir_at(&area.staging, "scratch".as_ref())
        .map_err(io::Error::from)
        .and_then(|scratch| {
            for (name, _) in names_in(scratch.as_fd())? {
                discard::tree(scratch.as_fd(), &name)?;
            }
            Ok(())
        });
    if let Err(error) = emptied {
        report.trouble("emptying scratch", &error);
    }
}

fn find_foreign(area: &Area, report: &mut Report) -> io::Result<()> {
    let here = area.prefix.join(STAGING_NAME);
    for (name, _) in names_in(area.staging.as_fd())? {
        if !OWN_NAMES.iter().any(|own| name == *own) {
            report.foreign.push(here.join(name).into());
        }
    }
    for (name, _) in names_in(area.ops.as_fd())? {
        if name
            .to_str()
            .is_none_or(|text| text.parse::<EntryId>().is_err())
        {
            report.foreign.push(here.join("ops").join(name).into());
        }
    }
    report.foreign.truncate(NAMED_MAX);
    Ok(())
}

/// What to do with one entry that lies in staging.
enum Taken {
    Known,
    Adopted(Box<Shape>),
    Resealed(Box<Shape>),
    Settled {
        id: EntryId,
        settings: Settings,
        hashed: bool,
    },
    Nothing,
}

fn take_in(ws: &Workspace, staged: &HashSet<EntryId>, report: &mut Report) -> Result<(), Failure> {
    let mut ids: Vec<&EntryId> = staged.iter().collect();
    ids.sort();
    for some in ids.chunks(BATCH) {
        let mut taken = Vec::new();
        for id in some {
            match take_one(ws, id) {
                Ok(Taken::Nothing) => discard_rest(ws, id, report)?,
                Ok(Taken::Known) => {}
                Ok(other) => taken.push(other),
                Err(error) => report.trouble(&format!("the entry {id}"), &error.what),
            }
        }
        ws.journal
            .batch(|rows| taken.iter().try_for_each(|t| write(rows, t)))?;
        for one in taken {
            match one {
                Taken::Adopted(shape) => report.adopted.push(shape.entry.id),
                Taken::Resealed(shape) => report.resealed.push(shape.entry.id),
                Taken::Settled { .. } | Taken::Known | Taken::Nothing => {}
            }
        }
    }
    Ok(())
}

fn write(rows: &crate::journal::Batch<'_>, taken: &Taken) -> Result<(), Failure> {
    match taken {
        Taken::Adopted(shape) | Taken::Resealed(shape) => seal::record(rows, shape),
        Taken::Settled {
            id,
            settings,
            hashed,
        } => {
            let Some(mut entry) = rows.entry(id)? else {
                return Ok(());
            };
            entry.hold = settings.hold;
            entry.retain_until = settings.retain_until.unwrap_or(entry.retain_until);
            entry.hashed = *hashed;
            entry.failed = None;
            entry.resident = true;
            rows.put(&entry)?;
            match settings.retain_until {
                Some(until) => rows.set_next_expiry(id, until),
                None => Ok(()),
            }
        }
        Taken::Known | Taken::Nothing => Ok(()),
    }
}

fn take_one(ws: &Workspace, id: &EntryId) -> Result<Taken, Failure> {
    let told = |e: io::Error| Failure::io("reading", &e);
    let known = ws.journal.entry(id)?;
    if known.as_ref().is_some_and(|entry| entry.state.is_end()) {
        return Ok(Taken::Nothing);
    }
    let Some(dir) = ws.staging.entry(id).map_err(told)? else {
        return Ok(Taken::Known);
    };
    let open = known.as_ref().is_some_and(|e| e.state == State::Open);
    if let Some(entry) = known.filter(|_| !open) {
        return agree(&dir, &entry).map_err(told);
    }
    match shape(ws, &dir).map_err(told)? {
        Sealed::Empty => Ok(Taken::Nothing),
        Sealed::Whole(shape) if open => Ok(Taken::Resealed(shape)),
        Sealed::Whole(shape) => Ok(Taken::Adopted(shape)),
    }
}

/// Settings count as they lie beside the entry; and what had been missing may be back.
fn agree(dir: &EntryDir, entry: &Entry) -> io::Result<Taken> {
    let settings = Settings::read(dir)?;
    let until = settings.retain_until.unwrap_or(entry.retain_until);
    let was_missing = !entry.resident;
    let hashed = entry.hashed && Attr::at(dir.records(), MANIFEST).is_ok_and(|a| a.size_bytes > 0);
    if settings.hold == entry.hold
        && until == entry.retain_until
        && hashed == entry.hashed
        && !was_missing
    {
        return Ok(Taken::Known);
    }
    Ok(Taken::Settled {
        id: entry.id.clone(),
        settings,
        hashed,
    })
}

/// As its summary says, if it was sealed; else by walking. What stands at the captured paths now
/// may be anybody's: no fingerprint is taken of it.
fn shape(ws: &Workspace, dir: &EntryDir) -> io::Result<Sealed> {
    match Summary::read(dir)? {
        Some(summary) if !summary.roots.is_empty() => {
            Ok(Sealed::Whole(Box::new(Shape::new(ws, dir, summary)?)))
        }
        _ => {
            ws.with_root(|root| take_back_unsettled(root, dir))?;
            seal::seal(ws, dir, None, Present::Unknown)
        }
    }
}

/// An entry that ended, or that holds nothing: its directory goes.
fn discard_rest(ws: &Workspace, id: &EntryId, report: &mut Report) -> Result<(), Failure> {
    let told = |e: io::Error| Failure::io("reading the staging area", &e);
    let foreign = match ws.staging.entry(id).map_err(told)? {
        Some(dir) => dir.foreign().map_err(told)?,
        None => Vec::new(),
    };
    if !foreign.is_empty() {
        report.foreign.extend(foreign.into_iter().map(Bytes::from));
        return Ok(());
    }
    if was_restored_and_holds(ws, id)? {
        report.trouble(
            &format!("the restored entry {id}"),
            &"it still holds files; they stay",
        );
        return Ok(());
    }
    let discarded = purge::clear(ws, id);
    if let Err(error) = discarded {
        report.trouble(&format!("discarding the rest of {id}"), &error);
        return Ok(());
    }
    if ws
        .journal
        .entry(id)?
        .is_some_and(|e| e.state == State::Open)
    {
        ws.journal.batch(|rows| rows.forget(id))?;
    }
    report.purged.push(id.clone());
    Ok(())
}

/// A restore is on the disk before the journal says so. Should a filesystem break that order in a
/// power cut, what lies here is all there is.
fn was_restored_and_holds(ws: &Workspace, id: &EntryId) -> Result<bool, Failure> {
    let restored = ws
        .journal
        .entry(id)?
        .is_some_and(|e| e.state == State::Restored);
    Ok(restored && !Holding::open(&ws.staging, id)?.is_empty()?)
}

fn find_missing(
    ws: &Workspace,
    staged: &HashSet<EntryId>,
    unreachable: &[Unreachable],
    report: &mut Report,
) -> Result<(), Failure> {
    let failed = Failed {
        // They may lie where we could not look.
        retryable: !unreachable.is_empty(),
        reason: match unreachable.first() {
            Some(area) => format!("its bytes are in no area that could be opened; {area}"),
            None => "its bytes are not in staging any more".into(),
        },
    };
    for entry in ws.journal.unended()? {
        if staged.contains(&entry.id) || entry.state.is_released() {
            continue;
        }
        report.missing.push(entry.id.clone());
        if entry.state == State::Open {
            // The journal heard of it before staging kept anything: a power cut took it back.
            ws.journal.batch(|rows| rows.forget(&entry.id))?;
            report.missing.pop();
        } else if entry.failed.as_ref() != Some(&failed) || entry.resident {
            ws.journal.put(&Entry {
                resident: false,
                failed: Some(failed.clone()),
                ..entry
            })?;
        }
    }
    report.missing.truncate(NAMED_MAX);
    Ok(())
}

#[cfg(test)]
mod tests;
