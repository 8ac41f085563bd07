//! The command's side of the socket, and the way round it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::control::protocol::{Answer, Pong, Request, WireAnswer};
use crate::control::{execute, wire};
use crate::failure::{Failure, shell_word};
use crate::ids::WorkspaceId;
use crate::station::{Located, Presence, RuntimeDir};
use crate::workspace::open;

/// Whether a daemon takes connections for this workspace.
pub fn answers(id: &WorkspaceId) -> bool {
    connect(id).is_ok()
}

/// Who answers for a workspace, within `patience`.
///
/// # Errors
/// Those of connecting and of the exchange.
pub fn ping(id: &WorkspaceId, patience: Duration) -> io::Result<Pong> {
    let stream = connect(id)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let (value, _) = exchange(&stream, &Request::Ping, &[])?;
    let value = value.map_err(|failure| io::Error::other(failure.what))?;
    Ok(serde_json::from_value(value)?)
}

/// Has a request done: by the daemon of a mounted workspace, else by this process.
///
/// # Errors
/// The verb's own; `stale-mount` while a dead daemon's mount covers the workspace.
pub fn call(workspace: &Located, request: Request, fds: Vec<OwnedFd>) -> Result<Answer, Failure> {
    match workspace.presence {
        Presence::Live => ask_daemon(workspace, &request, &fds),
        Presence::Stale => Err(stale(workspace)),
        Presence::Unmounted => {
            let opened = open::for_command(&workspace.registered)?;
            execute(&opened, request, fds)
        }
    }
}

/// [`call`] for an answer of a known form without descriptors.
///
/// # Errors
/// As [`call`].
pub fn call_for<T: DeserializeOwned>(workspace: &Located, request: Request) -> Result<T, Failure> {
    let answer = call(workspace, request, Vec::new())?;
    serde_json::from_value(answer.value).map_err(|e| {
        Failure::failed("protocol", format!("the daemon's answer is strange: {e}"))
            .state("it may be of another version than the command")
            .next("trash doctor")
    })
}

fn stale(workspace: &Located) -> Failure {
    let path = workspace.path().display();
    let what = format!("{path} is mounted, but its daemon is dead");
    Failure::refused("stale-mount", what)
        .state("the workspace can't be reached until it is mounted anew; nothing was lost")
        .next(format!("trash mount {}", shell_word(&path)))
}

fn ask_daemon(workspace: &Located, request: &Request, fds: &[OwnedFd]) -> Result<Answer, Failure> {
    let failed = |e: io::Error| {
        let path = workspace.path().display();
        Failure::io(format!("asking the daemon of {path}"), &e)
            .state("it may or may not have done what was asked")
            .next("trash doctor")
    };
    let stream = connect(&workspace.registered.id).map_err(failed)?;
    let (value, fds) = exchange(&stream, request, fds).map_err(failed)?;
    Ok(Answer { value: value?, fds })
}

fn exchange(
    stream: &UnixStream,
    request: &Request,
    fds: &[OwnedFd],
) -> io::Result<(WireAnswer, Vec<OwnedFd>)> {
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    wire::send(stream, &serde_json::to_vec(request)?, &borrowed)?;
    let (body, fds) = wire::receive(stream, wire::ANSWER_MAX_BYTES)?;
    Ok((serde_json::from_slice(&body)?, fds))
}

fn connect(id: &WorkspaceId) -> io::Result<UnixStream> {
    let stream = match connect_by_file(id) {
        Ok(stream) => stream,
        Err(_) => UnixStream::connect_addr(&wire::abstract_address(id)?)?,
    };
    match wire::peer_is_trusted(&stream)? {
        true => Ok(stream),
        false => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another user's process answers",
        )),
    }
}

fn connect_by_file(id: &WorkspaceId) -> io::Result<UnixStream> {
    if !crate::surroundings::runtime_dir().exists() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let runtime = RuntimeDir::open().map_err(|failure| io::Error::other(failure.what))?;
    UnixStream::connect(runtime.socket_path_by_fd(id))
}
