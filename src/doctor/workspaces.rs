//! The workspaces of this station: their mounts, their daemons, and what they keep.

use std::time::Duration;

use trashfs_mount::mountinfo::{self, Health, MountEntry};

use crate::control::{self, Request};
use crate::doctor::Check;
use crate::failure::shell_word;
use crate::query::Status;
use crate::reconcile::Report;
use crate::record::Bytes;
use crate::station::{self, Kind, Located, Presence};

const PATIENCE: Duration = Duration::from_secs(3);
/// Files that a check names.
const NAMED: usize = 5;

pub(super) fn examine() -> Vec<Check> {
    let mut checks = dead_mounts();
    let all = match station::all() {
        Ok(all) => all,
        Err(failure) => {
            checks.push(Check::fail("register", failure.what, failure.next));
            return checks;
        }
    };
    if all.is_empty() {
        checks.push(Check::warn(
            "workspaces",
            "no workspace is known yet",
            "trash mount DIR",
        ));
    }
    for located in &all {
        checks.extend(one(located).into_iter().map(|c| c.about(located.path())));
    }
    checks
}

/// Mounts of this user whose daemon is gone or stuck, registered or not.
fn dead_mounts() -> Vec<Check> {
    const NAME: &str = "mounts";
    let mounts = match mountinfo::mounts() {
        Ok(mounts) => mounts,
        Err(error) => {
            return vec![Check::fail(
                NAME,
                format!("/proc/self/mountinfo: {error}"),
                "",
            )];
        }
    };
    let me = rustix::process::geteuid().as_raw();
    let mine = |m: &&MountEntry| m.is_trashfs() && m.user_id() == Some(me);
    let dead = mounts.iter().filter(mine).filter_map(|mount| {
        let path = mount.mount_point.display();
        match mountinfo::health(&mount.mount_point, PATIENCE) {
            Health::Stale => Some(Check::fail(
                NAME,
                format!("the daemon of {path} is dead; the mount gives ENOTCONN"),
                format!("trash mount {}", shell_word(&path)),
            )),
            Health::Silent => Some(Check::fail(
                NAME,
                format!("the daemon of {path} does not answer"),
                format!("trash unmount --lazy {}", shell_word(&path)),
            )),
            Health::Answers | Health::Failing(_) => None,
        }
    });
    let dead: Vec<Check> = dead.collect();
    if dead.is_empty() {
        return vec![Check::ok(NAME, "every mount of this user answers")];
    }
    dead
}

fn one(located: &Located) -> Vec<Check> {
    let mut checks = vec![presence(located)];
    if located.presence == Presence::Stale
        || (located.presence == Presence::Unmounted && !has_staging(located))
    {
        return checks;
    }
    match control::call_for::<Status>(located, Request::Status) {
        Ok(status) => checks.extend(standing(&status)),
        Err(failure) => checks.push(Check::fail("staging", failure.what, failure.next)),
    }
    checks
}

fn has_staging(located: &Located) -> bool {
    located
        .registered
        .source
        .as_path()
        .join(crate::staging::STAGING_NAME)
        .exists()
}

fn presence(located: &Located) -> Check {
    const NAME: &str = "workspace";
    let path = located.path().display();
    match located.presence {
        Presence::Live => daemon(located),
        Presence::Stale => Check::fail(
            NAME,
            "its daemon is dead",
            format!("trash mount {}", shell_word(&path)),
        ),
        Presence::Unmounted if located.registered.kind == Kind::Put => {
            Check::ok(NAME, "for what trash put removes outside of any mount")
        }
        Presence::Unmounted if !located.registered.source.as_path().exists() => {
            Check::warn(NAME, "its directory is gone", "")
        }
        Presence::Unmounted if !has_staging(located) => Check::warn(
            NAME,
            "not mounted, and its staging area is gone",
            format!("trash mount {}", shell_word(&path)),
        ),
        Presence::Unmounted => Check::warn(
            NAME,
            "not mounted: what is removed there is lost",
            format!("trash mount {}", shell_word(&path)),
        ),
    }
}

fn daemon(located: &Located) -> Check {
    const NAME: &str = "workspace";
    let path = located.path().display();
    match control::ping(&located.registered.id, PATIENCE) {
        Ok(pong) if pong.version != env!("CARGO_PKG_VERSION") => Check::warn(
            NAME,
            format!(
                "its daemon (process {}) is version {}, this is {}",
                pong.pid,
                pong.version,
                env!("CARGO_PKG_VERSION")
            ),
            format!("trash unmount {0} && trash mount {0}", shell_word(&path)),
        ),
        Ok(pong) => Check::ok(NAME, format!("mounted, daemon {} answers", pong.pid)),
        Err(error) => Check::fail(
            NAME,
            format!("mounted, but its daemon does not answer: {error}"),
            format!("trash unmount --lazy {}", shell_word(&path)),
        ),
    }
}

fn standing(status: &Status) -> Vec<Check> {
    vec![
        staging(status),
        restores(status),
        journal(status),
        losses(status),
        disk(status),
        policy(status),
    ]
}

fn policy(status: &Status) -> Check {
    const NAME: &str = "policy";
    match &status.policy_problem {
        None => Check::ok(NAME, "its rules are in force"),
        Some(problem) => Check::warn(
            NAME,
            format!("the last good rules are in force, since {problem}"),
            "correct the file (see docs/policy.md)",
        ),
    }
}

/// Whether staging and journal agreed at the last start.
fn staging(status: &Status) -> Check {
    const NAME: &str = "staging";
    let Some(report) = &status.reconciled else {
        return Check::ok(NAME, "nothing was ever found amiss");
    };
    let mut amiss = Vec::new();
    let mut count = |number: usize, what: &str| {
        if number > 0 {
            amiss.push(format!("{number} {what}"));
        }
    };
    count(
        report.missing.len(),
        "entries of the journal have no bytes in staging",
    );
    count(report.foreign.len(), &foreign(report));
    count(report.troubled.len(), "places could not be read or written");
    if amiss.is_empty() {
        return Check::ok(NAME, "staging and journal agree");
    }
    let next = match report.missing.is_empty() {
        true => "trash status --json",
        false => "trash pending",
    };
    Check::warn(NAME, amiss.join("; "), next)
}

fn foreign(report: &Report) -> String {
    let names: Vec<_> = report
        .foreign
        .iter()
        .take(NAMED)
        .map(Bytes::display)
        .collect();
    format!("foreign files lie in staging: {}", names.join(", "))
}

/// Restores that were killed halfway.
fn restores(status: &Status) -> Check {
    const NAME: &str = "restores";
    match status.interrupted.first() {
        None => Check::ok(NAME, "none was interrupted"),
        Some(id) => Check::warn(
            NAME,
            format!("{} were interrupted", status.interrupted.len()),
            format!("trash recover {id}"),
        ),
    }
}

fn journal(status: &Status) -> Check {
    const NAME: &str = "journal";
    if status.damaged_journals.is_empty() {
        return Check::ok(NAME, format!("{} entries", status.totals.entries));
    }
    let found = format!(
        "a damaged journal was set aside and made anew from staging: {}",
        status.damaged_journals.join(", ")
    );
    Check::warn(NAME, found, "")
}

fn losses(status: &Status) -> Check {
    const NAME: &str = "losses";
    match status.totals.losses {
        0 => Check::ok(NAME, "nothing was given up before its time"),
        number => Check::warn(
            NAME,
            format!("{number} entries were given up before their time, for want of room"),
            "trash status",
        ),
    }
}

fn disk(status: &Status) -> Check {
    const NAME: &str = "disk";
    match status.rooms.iter().find(|room| room.is_short()) {
        None => Check::ok(NAME, "staging is within its budget"),
        Some(room) => Check::warn(
            NAME,
            format!(
                "room is short: {} bytes free, {} bytes staged of {} allowed",
                room.free_bytes,
                room.staged_bytes.unwrap_or_default(),
                room.budget_bytes
            ),
            "trash empty --older-than 7",
        ),
    }
}
