//! Taking an operation back: what it removed returns, and what it overwrote returns while the
//! path still holds what the operation left there. Later work is never touched.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::UnixNanos;
use crate::failure::Failure;
use crate::ids::{EntryId, OperationId};
use crate::journal::Filter;
use crate::record::{Cause, Entry, Keep, Left, Root};
use crate::restore::capturing::Captures;
use crate::restore::intent::{Plan, UNDONE};
use crate::restore::plan::{Planner, Prefer};
use crate::restore::report::{Mode, UndoSpec, Undone, UndoneOperation, Why};
use crate::restore::staged::{Candidate, Holding, sort_by_age};
use crate::restore::{carry_out, in_words, refuse_if_in_the_way, select, verify};
use crate::seal::Summary;
use crate::staging::read_record;
use crate::workspace::Workspace;

/// What the entries are called that keep what an undo takes from its path: they are not
/// themselves undone, so that a repeated undo goes further back.
pub(crate) const MADE_BY: &str = "undo";
/// For how long the policy keeps what a process made and removed itself.
const SCRATCH_MAX: Duration = Duration::from_secs(3_600);
/// Rows asked of the journal at once.
const PAGE: u32 = 100;
/// Pages that are looked at for the newest operation, and for later captures.
const PAGES_MAX: usize = 200;

/// Takes back the newest operation that removed something (or what `spec` names).
///
/// # Errors
/// A refusal when there is nothing to take back or something is in the way; then nothing was
/// changed.
pub fn undo(ws: &Workspace, spec: &UndoSpec) -> Result<Undone, Failure> {
    undo_stoppable(ws, spec, &mut || false)
}

/// [`undo`], with a closure that can stop it between any two changes as a crash would.
pub(crate) fn undo_stoppable(
    ws: &Workspace,
    spec: &UndoSpec,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Undone, Failure> {
    ws.close_operations();
    let operations = pick(ws, spec)?;
    let entries: Vec<&Entry> = operations.iter().flatten().collect();
    let pins: Result<Vec<_>, _> = entries
        .iter()
        .map(|e| ws.staging.pin_or_busy(&e.id))
        .collect();
    let _pins = pins?;
    let holdings: Result<Vec<_>, _> = entries.iter().map(|e| select::open(ws, e)).collect();
    let holdings = holdings?;
    let plan = plan(ws, &entries, &holdings)?;
    refuse_if_removed_is_blocked(&entries, &plan)?;
    let checked: Result<Vec<_>, _> = entries
        .iter()
        .zip(&holdings)
        .map(|(entry, holding)| verify::check(entry, holding, false))
        .collect();
    let mut restored = carry_out(ws, plan, spec.dry_run, stop)?;
    for checked in checked? {
        restored = checked.told_in(restored);
    }
    let operations = operations
        .iter()
        .filter_map(|entries| told(entries))
        .collect();
    Ok(Undone {
        operations,
        restored,
    })
}

fn told(entries: &[Entry]) -> Option<UndoneOperation> {
    let first = entries.first()?;
    Some(UndoneOperation {
        operation: first.operation.clone(),
        entries: entries.iter().map(|e| e.id.clone()).collect(),
        command: entries.iter().find_map(|e| e.command.clone()),
        removed_at: first.removed_at,
    })
}

/// The operations to take back, newest first, each with its entries.
fn pick(ws: &Workspace, spec: &UndoSpec) -> Result<Vec<Vec<Entry>>, Failure> {
    if let Some(prefix) = &spec.entry {
        let entry = ws.journal.find(prefix)?;
        let entries = takeable(ws, ws.journal.of_operation(&entry.operation)?, true)?;
        return if entries.is_empty() {
            Err(nothing(spec))
        } else {
            Ok(vec![entries])
        };
    }
    let many = spec.session.is_some() || spec.since.is_some();
    let cause = spec.cause.or((!many).then_some(Cause::Remove));
    // People call both overwriting: another file in its place, and other content in it.
    let overwriting = matches!(cause, Some(Cause::Replace | Cause::Truncate));
    let mut filter = Filter {
        session: spec.session.clone(),
        since: spec.since,
        cause: cause.filter(|_| !overwriting),
        all: true,
        limit: PAGE,
        ..Filter::default()
    };
    let mut operations: Vec<Vec<Entry>> = Vec::new();
    let mut known: HashSet<OperationId> = HashSet::new();
    for _ in 0..PAGES_MAX {
        let page = ws.journal.list(&filter)?;
        for entry in page.entries {
            let passing = spec.cause.is_none() && !many && entry.passing;
            let repository = overwriting && !many && is_of_git(&entry);
            if passing || repository || (overwriting && !overwrote(&entry)) {
                continue;
            }
            if !known.insert(entry.operation.clone())
                || takeable(ws, vec![entry.clone()], false)?.is_empty()
            {
                continue;
            }
            operations.push(takeable(
                ws,
                ws.journal.of_operation(&entry.operation)?,
                false,
            )?);
            if !many {
                return Ok(operations);
            }
        }
        match page.next_cursor {
            Some(cursor) => filter.cursor = Some(cursor),
            None => break,
        }
    }
    if operations.is_empty() {
        Err(nothing(spec))
    } else {
        Ok(operations)
    }
}

/// Whether all that an entry holds was overwritten inside `.git`: a commit, a checkout. Taking
/// that back is git's business; by its id it can still be had.
fn is_of_git(entry: &Entry) -> bool {
    let inside = |path: &Path| path.iter().any(|name| name == ".git");
    let mut roots = entry.roots.iter();
    !entry.roots.is_empty() && roots.all(|root| inside(root.path.as_path()))
}

fn overwrote(entry: &Entry) -> bool {
    entry.causes.iter().any(|cause| *cause != Cause::Remove)
}

/// Entries that can be taken back: whole or still open for a writer, here, and, unless named,
/// not undone already and not made by an undo.
fn takeable(ws: &Workspace, entries: Vec<Entry>, named: bool) -> Result<Vec<Entry>, Failure> {
    let mut able = Vec::new();
    for entry in entries {
        let own = entry.made_by.as_deref() == Some(MADE_BY);
        if entry.state.is_end() || (own && !named) {
            continue;
        }
        let dir = ws
            .staging
            .entry(&entry.id)
            .map_err(|e| Failure::io("staging", &e))?;
        let Some(dir) = dir else { continue };
        let undone = read_record(dir.records(), UNDONE).map_err(|e| Failure::io("staging", &e))?;
        if named || undone.is_none() {
            able.push(entry);
        }
    }
    Ok(able)
}

fn nothing(spec: &UndoSpec) -> Failure {
    let what = match (&spec.entry, &spec.session, spec.since, spec.cause) {
        (Some(id), ..) => format!("nothing of the operation of entry {id} is kept any more"),
        (_, Some(session), ..) => format!("nothing of session {session} is left to take back"),
        (_, _, Some(_), _) => "nothing since then is left to take back".to_owned(),
        (.., Some(Cause::Replace | Cause::Truncate)) => {
            "no overwriting is left to take back".to_owned()
        }
        _ => "no removal is left to take back".to_owned(),
    };
    Failure::refused("nothing-to-undo", what)
        .state("nothing was changed")
        .next("trash list --all")
}

/// What is known of a captured path.
struct Known {
    candidate: Candidate,
    keep: Keep,
    cause: Cause,
    left: Option<Left>,
    compared_at: Option<UnixNanos>,
    removed_at: UnixNanos,
}

fn plan(ws: &Workspace, entries: &[&Entry], holdings: &[Holding]) -> Result<Plan, Failure> {
    let mut by_path: BTreeMap<PathBuf, Vec<Known>> = BTreeMap::new();
    for (entry, holding) in entries.iter().zip(holdings) {
        for known in known_roots(entry, holding)? {
            by_path
                .entry(known.candidate.path().to_owned())
                .or_default()
                .push(known);
        }
    }
    let later = Later::of(ws, entries)?;
    let mut paths: Vec<(PathBuf, Vec<Known>)> = by_path.into_iter().collect();
    paths.sort_by_key(|(path, _)| path.components().count());
    let mut planner = Planner::new(
        ws,
        holdings,
        (Prefer::Oldest, Mode::Refuse),
        Captures::by(MADE_BY),
    )?;
    for (_, versions) in &mut paths {
        sort_by_age(versions, |known| &known.candidate);
        versions.sort_by_key(|known| known.removed_at);
    }
    // Asked for nothing but what a command made and removed itself, that is what is meant.
    if paths
        .iter()
        .any(|(path, versions)| !is_fleeting(path, versions))
    {
        paths.retain(|(path, versions)| !is_fleeting(path, versions));
    }
    for (path, versions) in paths {
        let [oldest, .., newest] = versions.as_slice() else {
            plan_path(&mut planner, &later, &path, (&versions[0], &versions[0]))?;
            continue;
        };
        plan_path(&mut planner, &later, &path, (oldest, newest))?;
        for other in &versions[1..] {
            planner.leave(&other.candidate.at, &path, Why::OtherVersion, None);
        }
    }
    Ok(planner.finish())
}

/// What a command made for itself and removed again was not there before it: a lock file that
/// came back would keep others out.
fn is_fleeting(path: &Path, versions: &[Known]) -> bool {
    let Some(oldest) = versions.first() else {
        return false;
    };
    let tree = oldest.candidate.tree;
    let in_git = path.components().any(|name| name.as_os_str() == ".git");
    let lock = in_git && path.extension().is_some_and(|ending| ending == "lock");
    oldest.keep == Keep::Local
        && tree.cause == Cause::Remove
        && (tree.retain <= SCRATCH_MAX || lock)
}

/// The oldest version goes back if the path is as the newest capture left it.
fn plan_path(
    planner: &mut Planner<'_>,
    later: &Later,
    path: &Path,
    (oldest, newest): (&Known, &Known),
) -> Result<(), Failure> {
    let Candidate { at, attr, .. } = &oldest.candidate;
    if newest.cause == Cause::Remove || planner.provides(path) {
        return planner.place(at, attr, path);
    }
    let Some(there) = planner.present(path)? else {
        planner.leave(at, path, Why::GoneSince, None);
        return Ok(());
    };
    let left_so = newest.left == Some(Left::of(&there))
        && !later.captured(path, newest.removed_at)
        && (!there.is_dir() || planner.untouched_since(path, newest.compared_at)?);
    if left_so {
        planner.swap(at, attr, path, &there);
    } else {
        planner.leave(at, path, Why::ChangedSince, Some(&there));
    }
    Ok(())
}

fn known_roots(entry: &Entry, holding: &Holding) -> Result<Vec<Known>, Failure> {
    let what = || format!("entry {}", entry.id);
    let roots = holding.roots().map_err(|e| Failure::io(what(), &e))?;
    let summary = Summary::read(&holding.dir).map_err(|e| Failure::io(what(), &e))?;
    let facts: HashMap<(&str, &Path), &Root> = summary
        .iter()
        .flat_map(|s| s.trees.iter().zip(&s.roots))
        .map(|(tree, root)| ((tree.as_str(), root.path.as_path()), root))
        .collect();
    let known = roots.into_iter().map(|candidate| {
        let fact = facts.get(&(candidate.at.tree.as_str(), candidate.path()));
        Known {
            cause: fact.map_or(candidate.tree.cause, |root| root.cause),
            left: fact.and_then(|root| root.left),
            compared_at: summary.as_ref().and_then(|s| s.compared_at),
            removed_at: entry.removed_at,
            keep: entry.keep,
            candidate,
        }
    });
    Ok(known.collect())
}

/// Paths that entries after the undone ones captured.
struct Later(HashMap<PathBuf, UnixNanos>);

impl Later {
    fn of(ws: &Workspace, entries: &[&Entry]) -> Result<Self, Failure> {
        let mut paths = HashMap::new();
        let own: HashSet<&EntryId> = entries.iter().map(|e| &e.id).collect();
        let Some(oldest) = entries.iter().map(|e| e.removed_at).min() else {
            return Ok(Self(paths));
        };
        let mut filter = Filter {
            since: Some(oldest),
            all: true,
            limit: PAGE,
            ..Filter::default()
        };
        for _ in 0..PAGES_MAX {
            let page = ws.journal.list(&filter)?;
            let entries: Vec<Entry> = page
                .entries
                .into_iter()
                .filter(|e| !own.contains(&e.id))
                .collect();
            for entry in takeable(ws, entries, false)? {
                for root in entry.roots {
                    let when: &mut UnixNanos = paths
                        .entry(PathBuf::from(root.path.0))
                        .or_insert(entry.removed_at);
                    *when = entry.removed_at.max(*when);
                }
            }
            match page.next_cursor {
                Some(cursor) => filter.cursor = Some(cursor),
                None => break,
            }
        }
        Ok(Self(paths))
    }

    fn captured(&self, path: &Path, since: UnixNanos) -> bool {
        self.0.get(path).is_some_and(|when| *when > since)
    }
}

/// What was removed goes back as a whole or not at all; what was overwritten and has changed
/// since is left alone, unless that is all there is.
fn refuse_if_removed_is_blocked(entries: &[&Entry], plan: &Plan) -> Result<(), Failure> {
    let hard = |why: Why| matches!(why, Why::Occupied | Why::NoDirectory);
    let blocked = plan.left_alone.iter().any(|left| hard(left.why));
    if !blocked && !plan.intent.steps.is_empty() {
        return Ok(());
    }
    let Some(first) = entries.first() else {
        return Ok(());
    };
    if blocked {
        return refuse_if_in_the_way(first, plan);
    }
    let Some(left) = plan
        .left_alone
        .iter()
        .find(|left| left.why != Why::OtherVersion)
    else {
        return Ok(());
    };
    Err(Failure::refused("changed-since", in_words(left))
        .state("nothing was changed; what was there before is still kept")
        .next(left.next.clone()))
}
