//! From a request to the function that does it.

use std::os::fd::OwnedFd;

use crate::control::protocol::{Answer, Request};
use crate::failure::{Failure, shell_word};
use crate::record::Bytes;
use crate::restore::Target;
use crate::workspace::Workspace;
use crate::{diff, policy, put, query, restore, retention, show};

/// Does what was asked. The same in the daemon and in a command.
///
/// # Errors
/// The verb's own.
pub fn execute(
    workspace: &Workspace,
    request: Request,
    fds: Vec<OwnedFd>,
) -> Result<Answer, Failure> {
    let only_asks = !request.changes();
    perform(workspace, request, fds).map_err(|failure| {
        if only_asks && failure.state.is_empty() {
            return failure.state("nothing was changed");
        }
        failure
    })
}

fn perform(workspace: &Workspace, request: Request, fds: Vec<OwnedFd>) -> Result<Answer, Failure> {
    let ws = workspace;
    match request {
        Request::Ping | Request::Unmount { .. } => Err(not_mounted(ws)),
        Request::Flush => {
            ws.close_operations();
            Ok(Answer::default())
        }
        Request::List(filter) => Answer::of(query::list(ws, &filter)?),
        Request::Info {
            entry,
            cursor,
            limit,
        } => Answer::of(query::info(ws, &entry, cursor.as_deref(), limit)?),
        Request::Pending => Answer::of(query::pending(ws)?),
        Request::Status => {
            ws.close_operations();
            Answer::of(query::status(ws)?)
        }
        Request::Hold { entry, on } => Answer::of(retention::hold(ws, &entry, on)?),
        Request::Retention { entry, days } => Answer::of(retention::set_days(ws, &entry, days)?),
        Request::Empty {
            older_than_days,
            dry_run,
        } => Answer::of(retention::empty(ws, older_than_days, dry_run)?),
        Request::Release {
            entry,
            discard_incomplete,
            dry_run,
        } => Answer::of(retention::release(
            ws,
            entry.as_deref(),
            discard_incomplete,
            dry_run,
        )?),
        Request::Explain(question) => Answer::of(policy::explain(ws, &question)?),
        Request::Restore {
            mut spec,
            inside,
            outside,
        } => {
            spec.to = target(inside, outside, fds)?;
            Answer::of(restore::restore(ws, &spec)?)
        }
        Request::Undo(spec) => Answer::of(restore::undo(ws, &spec)?),
        Request::Put(spec) => Answer::of(put::put_inside(ws, &spec)?),
        Request::Show { entry, member } => {
            let member = member.as_ref().map(Bytes::as_path);
            let (shown, file) = show::show(ws, &entry, member)?;
            let mut answer = Answer::of(shown)?;
            answer.fds.extend(file);
            Ok(answer)
        }
        Request::Diff { entry, member } => {
            Answer::of(diff::diff(ws, &entry, member.as_ref().map(Bytes::as_path))?)
        }
        Request::Recover {
            entry,
            inside,
            outside,
        } => {
            let to = target(inside, outside, fds)?;
            Answer::of(restore::recover(ws, &entry, to.as_ref())?)
        }
    }
}

/// Where copies go, from the parts in which it travels.
fn target(
    inside: Option<Bytes>,
    outside: Option<Bytes>,
    fds: Vec<OwnedFd>,
) -> Result<Option<Target>, Failure> {
    match (inside, outside, fds.into_iter().next()) {
        (Some(path), ..) => Ok(Some(Target::Inside(path.as_path().to_owned()))),
        (None, Some(display), Some(dir)) => Ok(Some(Target::Outside {
            dir,
            display: display.as_path().to_owned(),
        })),
        (None, Some(display), None) => {
            let what = format!("the directory {} did not arrive", display.display());
            Err(Failure::failed("internal", what).state("nothing was changed"))
        }
        (None, None, _) => Ok(None),
    }
}

fn not_mounted(workspace: &Workspace) -> Failure {
    let path = workspace.path.display();
    Failure::failed("not-mounted", format!("{path} is not mounted"))
        .state("nothing was changed")
        .next(format!("trash mount {}", shell_word(&path)))
}
