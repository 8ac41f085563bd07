//! From what lies in staging to what users see: the entry.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trashfs_mount::Attr;

use crate::clock::UnixNanos;
use crate::failure::shell_word;
use crate::ids::OperationId;
use crate::journal::State;
use crate::record::{
    Attribution, Bytes, Cause, Entry, Keep, Kind, OP_FORMAT, OpRecord, Process, ROOTS_SHOWN,
};
use crate::seal::Summary;
use crate::staging::{EntryDir, SETTINGS, TreeName, read_record};
use crate::workspace::Workspace;

/// `settings.json`: what a person decided. It lies beside the entry, so that it survives a lost
/// journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Nothing ends it.
    pub hold: bool,
    /// Kept until then, all of it, whatever the policy said.
    pub retain_until: Option<UnixNanos>,
}

impl Settings {
    /// As they lie beside the entry; those of one that was never touched when there are none.
    ///
    /// # Errors
    /// Those of reading a file that exists. Settings that can't be understood count as a hold:
    /// whoever wrote them wanted the entry to differ, and holding loses nothing.
    pub fn read(dir: &EntryDir) -> io::Result<Self> {
        Ok(match read_record(dir.records(), SETTINGS)? {
            None => Self::default(),
            Some(text) => serde_json::from_slice(&text).unwrap_or(Self {
                hold: true,
                retain_until: None,
            }),
        })
    }

    /// Writes them, durable on return.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn write(self, dir: &EntryDir) -> io::Result<()> {
        let text = serde_json::to_vec(&self)?;
        crate::staging::write_record(dir.records(), SETTINGS, &text)
    }
}

/// When an entry's trees expire: the first of them and the last.
pub fn expiry_of(
    started: UnixNanos,
    retains: impl Iterator<Item = Duration>,
    settings: Settings,
) -> (UnixNanos, UnixNanos) {
    if let Some(until) = settings.retain_until {
        return (until, until);
    }
    let ends = retains.map(|retain| started.plus(retain));
    let (first, last) = ends.fold((UnixNanos(i64::MAX), started), |(first, last), end| {
        (first.min(end), last.max(end))
    });
    (first.min(last), last)
}

/// An entry for the journal, with what only the keeper needs.
#[derive(Clone, Debug)]
pub struct Shape {
    /// As users see it.
    pub entry: Entry,
    /// When the first of its trees expires.
    pub next_expiry: UnixNanos,
    /// Paths of all roots that were overwritten rather than removed.
    pub overwritten: Vec<Bytes>,
    /// What its files occupy, where that was measured.
    pub disk_bytes: Option<u64>,
}

impl Shape {
    /// Of a sealed entry.
    pub(crate) fn new(ws: &Workspace, dir: &EntryDir, summary: Summary) -> io::Result<Self> {
        let settings = Settings::read(dir)?;
        let op = op_record(ws, dir)?;
        let trees = dir.trees()?;
        let retains = trees.iter().map(|tree| tree.name.retain);
        let (next_expiry, retain_until) = expiry_of(op.started, retains, settings);
        let overwritten = summary
            .roots
            .iter()
            .filter(|root| root.cause != Cause::Remove)
            .map(|root| root.path.clone())
            .collect();
        let mut entry = entry_of(ws, &op, summary);
        entry.retain_until = retain_until;
        entry.hold = settings.hold;
        Ok(Self {
            entry,
            next_expiry,
            overwritten,
            disk_bytes: None,
        })
    }
}

/// Who and when; where that was lost, what the directory itself tells.
fn op_record(ws: &Workspace, dir: &EntryDir) -> io::Result<OpRecord> {
    if let Some(op) = dir.op_record()? {
        return Ok(op);
    }
    let attr = Attr::of(dir.records())?;
    let made = attr.btime.unwrap_or(attr.ctime);
    let operation: OperationId = dir
        .id
        .as_str()
        .parse()
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    Ok(OpRecord {
        format: OP_FORMAT,
        entry: dir.id.clone(),
        operation,
        workspace: ws.id.clone(),
        keep: Keep::Hosted,
        started: UnixNanos(made.secs.saturating_mul(1_000_000_000) + i64::from(made.nanos)),
        process: Process::default(),
        attribution: Attribution::default(),
        made_by: None,
    })
}

/// An entry whose operation goes on: nothing is known yet but who and when.
pub fn open_entry(ws: &Workspace, op: &OpRecord) -> Entry {
    let nothing = Summary {
        format: super::SUMMARY_FORMAT,
        entry: op.entry.clone(),
        kind: Kind::Mixed,
        path: Bytes::default(),
        causes: Vec::new(),
        roots: Vec::new(),
        trees: Vec::new(),
        members: 0,
        bytes: 0,
        compared_at: None,
    };
    let mut entry = entry_of(ws, op, nothing);
    entry.state = State::Open;
    // Until it is sealed nothing expires it; a day is what any capture gets at the least.
    entry.retain_until = op.started.plus(Duration::from_secs(365 * 86_400));
    entry
}

/// What is kept no longer than this, and only here, is a tool's own: nobody looks for it.
const PASSING_MAX: Duration = Duration::from_secs(86_400);

/// Whether something was removed and all that was is kept only in passing.
fn is_passing(keep: Keep, summary: &Summary) -> bool {
    let mut removed = summary
        .trees
        .iter()
        .zip(&summary.roots)
        .filter(|(_, root)| root.cause == Cause::Remove)
        .peekable();
    let brief = |tree: &str| {
        tree.parse::<TreeName>()
            .is_ok_and(|name| name.retain <= PASSING_MAX)
    };
    keep == Keep::Local && removed.peek().is_some() && removed.all(|(tree, _)| brief(tree))
}

/// A sealed entry under the retention of its trees' names (set by the caller).
pub fn entry_of(ws: &Workspace, op: &OpRecord, mut summary: Summary) -> Entry {
    let roots_total = summary.roots.len() as u64;
    let passing = is_passing(op.keep, &summary);
    summary.roots.truncate(ROOTS_SHOWN);
    Entry {
        id: op.entry.clone(),
        operation: op.operation.clone(),
        state: State::Sealed,
        failed: None,
        causes: summary.causes,
        keep: op.keep,
        kind: summary.kind,
        path: summary.path,
        roots: summary.roots,
        roots_total,
        members: summary.members,
        bytes: summary.bytes,
        station: ws.station.clone(),
        workspace: Bytes::from(ws.path.as_path()),
        agent: op.attribution.agent.clone(),
        harness: op.attribution.harness.clone(),
        session: op.attribution.session.clone(),
        command: quoted(&op.process.argv),
        pid: op.process.pid,
        removed_at: op.started,
        resident: true,
        retain_until: op.started,
        hold: false,
        hashed: false,
        passing,
        made_by: op.made_by.clone(),
    }
}

/// A command as it could be typed in a shell; none for no arguments.
pub fn quoted(argv: &[Bytes]) -> Option<String> {
    if argv.is_empty() {
        return None;
    }
    let words: Vec<String> = argv.iter().map(|arg| shell_word(arg.display())).collect();
    Some(words.join(" "))
}
