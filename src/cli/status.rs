use serde::Serialize;

use super::output::{FAINT, GOOD, HEADING, WARNING, styled};
use super::{Context, Report};
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::query;
use crate::record::Bytes;
use crate::retention::Room;
use crate::station::{self, Kind, Located, Presence, Station};

/// How the station and its workspaces stand
///
/// Per workspace: whether it is mounted, how much it keeps, how much of its budget that is, what
/// is still unfinished, and what was given up before its time. All workspaces of the station,
/// unless one is named with --workspace.
#[derive(Debug, clap::Args)]
pub struct Args {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Standing {
    station: Option<Station>,
    workspaces: Vec<One>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct One {
    kind: Kind,
    path: Bytes,
    source: Bytes,
    presence: Presence,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<query::Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<Failure>,
}

/// Runs it.
///
/// # Errors
/// When the station's register can't be read.
pub(super) fn run(_args: Args, context: &Context) -> Result<Report, Failure> {
    let located = match &context.workspace {
        Some(named) => vec![named_workspace(&context.absolute(named)?)?],
        None => station::all()?,
    };
    let standing = Standing {
        station: station::load()?,
        workspaces: located.iter().map(one).collect(),
    };
    Report::new(&standing, text(&standing))
}

fn named_workspace(path: &std::path::Path) -> Result<Located, Failure> {
    station::workspace_of(path)?.ok_or_else(|| {
        let what = format!("{} lies in no workspace", path.display());
        Failure::failed("no-workspace", what).next(format!(
            "trash mount {}",
            crate::failure::shell_word(path.display())
        ))
    })
}

fn one(located: &Located) -> One {
    let answer = control::call_for::<query::Status>(located, Request::Status);
    let (status, failure) = match answer {
        Ok(status) => (Some(status), None),
        Err(failure) => (None, Some(failure)),
    };
    One {
        kind: located.registered.kind,
        path: located.registered.path.clone(),
        source: located.registered.source.clone(),
        presence: located.presence,
        status,
        failure,
    }
}

fn text(standing: &Standing) -> String {
    let mut lines = Vec::new();
    match &standing.station {
        Some(station) => lines.push(format!("station {}, local profile", station.station)),
        None => lines.push("this station is not set up: trash setup --local".into()),
    }
    if standing.workspaces.is_empty() {
        lines.push("no workspace yet: trash mount DIR".into());
    }
    for one in &standing.workspaces {
        lines.push(String::new());
        lines.push(heading(one));
        match (&one.status, &one.failure) {
            (Some(status), _) => lines.extend(details(status)),
            (None, Some(failure)) => {
                lines.push(format!("  {}", styled(WARNING, &failure.what)));
                lines.push(format!("  next: {}", failure.next));
            }
            (None, None) => {}
        }
    }
    lines.join("\n")
}

fn heading(one: &One) -> String {
    if one.kind == Kind::Put {
        let place = styled(HEADING, one.source.display());
        return format!(
            "{place}  {}",
            styled(FAINT, "for trash put outside of any mount")
        );
    }
    let presence = match one.presence {
        Presence::Live => styled(GOOD, "mounted"),
        Presence::Stale => styled(WARNING, "daemon dead"),
        Presence::Unmounted => styled(FAINT, "not mounted"),
    };
    format!("{}  {presence}", styled(HEADING, one.path.display()))
}

fn details(status: &query::Status) -> Vec<String> {
    let totals = &status.totals;
    let kept = totals.hosted_bytes + totals.local_bytes;
    let mut lines = vec![format!("  {} entries, {}", totals.entries, bytes(kept))];
    if totals.held + totals.pending + totals.unhashed > 0 {
        lines.push(format!(
            "  {} held, {} unfinished, {} not yet hashed",
            totals.held, totals.pending, totals.unhashed
        ));
    }
    lines.extend(status.rooms.iter().map(room));
    if let Some(problem) = &status.policy_problem {
        let text = format!("the last good rules are in force, since {problem}");
        lines.push(format!("  {}", styled(WARNING, super::text::safe(&text))));
    }
    if totals.deleted_outright > 0 {
        lines.push(format!(
            "  {} deleted outright, as a policy rule or --permanent said",
            totals.deleted_outright
        ));
    }
    if totals.losses > 0 {
        let text = format!("{} entries were given up before their time", totals.losses);
        lines.push(format!("  {}", styled(WARNING, text)));
        lines.extend(status.losses.iter().map(|loss| {
            format!(
                "    {} {} ({}, {:?})",
                loss.at.to_rfc3339(),
                loss.path.display(),
                bytes(loss.bytes),
                loss.reason
            )
        }));
    }
    lines
}

fn room(room: &Room) -> String {
    let staged = room
        .staged_bytes
        .map_or_else(|| "an unknown amount".into(), bytes);
    let place = match room.prefix.as_bytes().is_empty() {
        true => String::new(),
        false => format!("{}: ", room.prefix.display()),
    };
    let text = format!(
        "{place}{staged} staged of {} allowed, {} free of {}",
        bytes(room.budget_bytes),
        bytes(room.free_bytes),
        bytes(room.total_bytes)
    );
    match room.is_short() {
        true => format!("  {}", styled(WARNING, text)),
        false => format!("  {text}"),
    }
}

fn bytes(number: u64) -> String {
    indicatif::BinaryBytes(number).to_string()
}
