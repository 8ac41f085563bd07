//! From a request to the function that does it.

use std::os::fd::OwnedFd;

use crate::control::protocol::{Answer, Request};
use crate::failure::Failure;
use crate::workspace::Workspace;

/// Does what was asked. The same in the daemon and in a command.
///
/// # Errors
/// The verb's own.
pub fn execute(
    workspace: &Workspace,
    request: Request,
    fds: Vec<OwnedFd>,
) -> Result<Answer, Failure> {
    let _ = fds;
    match request {
        Request::Ping | Request::Unmount { .. } => Err(not_mounted(workspace)),
        Request::Flush => {
            workspace.close_operations();
            Ok(Answer::default())
        }
        Request::List(filter) => {
            workspace.close_operations();
            Answer::of(workspace.journal.list(&filter)?)
        }
        Request::Restore { .. } | Request::Undo(_) => {
            Err(Failure::failed("unavailable", "not wired yet"))
        }
    }
}

fn not_mounted(workspace: &Workspace) -> Failure {
    let path = workspace.path.display();
    Failure::failed("not-mounted", format!("{path} is not mounted"))
        .state("nothing was changed")
        .next(format!("trash mount {path}"))
}
