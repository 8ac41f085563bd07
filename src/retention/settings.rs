//! Hold and retention, as a person sets them. Written beside the entry first, then into the
//! journal: they survive the loss of either.

use std::io;
use std::time::Duration;

use crate::failure::Failure;
use crate::journal::State;
use crate::record::Entry;
use crate::seal::{Settings, expiry_of};
use crate::staging::EntryDir;
use crate::workspace::Workspace;

const DAYS_MAX: i64 = 365;
const DAY: Duration = Duration::from_secs(86_400);

/// Holds an entry, so that nothing ends it, or lets it go again.
///
/// # Errors
/// `unknown-id`, `ambiguous-id`, `ended`; when staging or the journal can't be written.
pub fn hold(ws: &Workspace, id: &str, on: bool) -> Result<Entry, Failure> {
    change(ws, id, |settings, _| settings.hold = on)
}

/// Keeps an entry for `days` days after it was removed, whatever the policy said.
///
/// # Errors
/// `usage` for days outside 1 to 365, and as [`hold`].
pub fn set_days(ws: &Workspace, id: &str, days: i64) -> Result<Entry, Failure> {
    let Some(count) = u32::try_from(days)
        .ok()
        .filter(|_| (1..=DAYS_MAX).contains(&days))
    else {
        return Err(Failure::failed(
            "usage",
            format!("{days} days is no retention: it can be 1 to {DAYS_MAX} days"),
        )
        .state("the entry's retention is unchanged")
        .next(format!("trash retention {id} --days 30")));
    };
    change(ws, id, |settings, entry| {
        settings.retain_until = Some(entry.removed_at.plus(DAY * count));
    })
}

fn change(
    ws: &Workspace,
    id: &str,
    set: impl FnOnce(&mut Settings, &Entry),
) -> Result<Entry, Failure> {
    let mut entry = ws.journal.find(id)?;
    if entry.state.is_end() {
        let state = entry.state.as_str();
        return Err(
            Failure::refused("ended", format!("the entry {} is {state}", entry.id))
                .state("there is nothing left of it to keep")
                .next("trash list"),
        );
    }
    let told = |e: io::Error| Failure::io(format!("writing the settings of {}", entry.id), &e);
    let dir = ws.staging.entry(&entry.id).map_err(told)?;
    let Some(dir) = dir else {
        return Err(missing(&entry));
    };
    let mut settings = Settings::read(&dir).map_err(told)?;
    set(&mut settings, &entry);
    settings.write(&dir).map_err(told)?;
    apply(ws, &dir, &mut entry, settings)?;
    Ok(entry)
}

/// Brings the journal's row in line with the settings beside the entry.
pub(super) fn apply(
    ws: &Workspace,
    dir: &EntryDir,
    entry: &mut Entry,
    settings: Settings,
) -> Result<(), Failure> {
    let told = |e: io::Error| Failure::io(format!("reading the entry {}", dir.id), &e);
    let trees = dir.trees().map_err(told)?;
    let retains = trees.iter().map(|tree| tree.name.retain);
    let (first, last) = expiry_of(entry.removed_at, retains, settings);
    let changed = ws.journal.batch(|rows| {
        let mut now = rows.entry(&entry.id)?.unwrap_or_else(|| entry.clone());
        now.hold = settings.hold;
        if now.state != State::Open {
            now.retain_until = last;
        }
        rows.put(&now)?;
        rows.set_next_expiry(
            &now.id,
            if now.state == State::Open {
                now.retain_until
            } else {
                first
            },
        )?;
        Ok(now)
    })?;
    *entry = changed;
    Ok(())
}

pub(super) fn missing(entry: &Entry) -> Failure {
    Failure::failed(
        "missing",
        format!(
            "the entry {} is in the journal but not in staging",
            entry.id
        ),
    )
    .state("its bytes are not where they were kept")
    .next("trash doctor")
}
