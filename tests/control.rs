//! The control socket: who may use it, and what strange clients can't do to it.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends; it clears its own scratch"
)]

mod common;

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Station, Workspace, detach, is_root, run};

fn socket(runtime: &Path) -> PathBuf {
    let mut names = std::fs::read_dir(runtime.join("trashfs"))
        .unwrap()
        .map(|e| e.unwrap().path());
    names
        .find(|path| path.extension().is_some_and(|e| e == "sock"))
        .expect("a mounted workspace has a socket")
}

fn message(body: &[u8]) -> Vec<u8> {
    let mut all = b"TRS1".to_vec();
    all.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
    all.extend(body);
    all
}

fn exchange(socket: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    // A daemon that has heard enough closes the connection.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn mounted() -> (Workspace, PathBuf) {
    let station = Station::new();
    let workspace = station.workspace("w");
    workspace.trash(["status", "--json"]).ok();
    let socket = socket(&station.dir("run"));
    (workspace, socket)
}

#[test]
fn only_the_owner_reaches_the_socket() {
    let (workspace, socket) = mounted();
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
    assert_eq!(mode(&socket), 0o600);
    assert_eq!(mode(socket.parent().unwrap()), 0o700);
    if !is_root() {
        return common::skip("another user", "becoming it needs root");
    }
    let script = format!(
        "import socket; socket.socket(socket.AF_UNIX).connect({:?})",
        socket.to_str().unwrap()
    );
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let answer = run(other.args(["/usr/bin/python3", "-c", &script]));
    assert!(answer.err.contains("PermissionError"), "{answer:?}");
    drop(workspace);
}

#[test]
fn another_user_gets_no_answer_by_the_abstract_name() {
    if !is_root() {
        return common::skip("another user", "becoming it needs root");
    }
    // The sockets lie in the workspace, so there is an abstract name besides.
    let station = Station::new();
    let home = station.home().to_owned();
    let mut command = station.command();
    command.env("XDG_RUNTIME_DIR", home.join("run"));
    command.args(["mount", "-f"]).arg(&home);
    let workspace = station.start(&home, command).unwrap();
    let mut status = station.command();
    status.env("XDG_RUNTIME_DIR", home.join("run"));
    let answer = run(status.args(["status", "--json"])).ok().json();
    let one = &answer["workspaces"][0];
    assert_eq!(one["presence"], "live", "{answer}");
    let name = format!("trashfs/0/{}", one["status"]["id"].as_str().unwrap());
    let ping = message(br#"{"verb":"ping"}"#);
    let mut stream =
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    stream.write_all(&ping).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"TRS1"));
    let script = format!(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0{name}'); \
         s.sendall(b'TRS1\\x0f\\0\\0\\0{{\"verb\":\"ping\"}}'); print(len(s.recv(100)))"
    );
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let answer = run(other.args(["/usr/bin/python3", "-c", &script]));
    let refused = answer.out == "0\n" || answer.err.contains("Error");
    assert!(refused, "{answer:?}");
    drop(workspace);
}

#[test]
fn strange_clients_do_no_harm() {
    let (workspace, socket) = mounted();
    assert!(exchange(&socket, b"").is_empty());
    assert!(exchange(&socket, b"GET / HTTP/1.1\r\n\r\n").is_empty());
    assert!(exchange(&socket, b"TRS1\xff\xff\xff\xff").is_empty());
    assert!(exchange(&socket, b"TRS1\x10\0\0\0{").is_empty());
    let told =
        |body: &[u8]| String::from_utf8_lossy(&exchange(&socket, &message(body))).into_owned();
    for body in [
        b"{}".as_slice(),
        b"nonsense",
        b"{\"verb\":\"destroy\"}",
        b"[]",
    ] {
        let answer = told(body);
        assert!(answer.contains("\"code\":\"protocol\""), "{answer}");
    }
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    assert!(told(&deep).contains("protocol"));
    let answer = told(br#"{"verb":"ping"}"#);
    assert!(
        answer.contains("\"Ok\"") && answer.contains("\"pid\""),
        "{answer}"
    );
    // Idle connections hold nothing up.
    let idle: Vec<_> = (0..8)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    workspace.trash(["status", "--json"]).ok();
    drop(idle);
    workspace.unmount();
    assert!(!socket.exists());
}

#[test]
fn a_directory_of_sockets_that_somebody_else_could_change_is_not_used() {
    let station = Station::new();
    let dir = station.dir("w");
    let runtime = station.dir("run");
    let elsewhere = station.dir("elsewhere");
    let mount = || station.trash(["mount".as_ref(), "--json".as_ref(), dir.as_os_str()]);
    std::os::unix::fs::symlink(&elsewhere, runtime.join("trashfs")).unwrap();
    mount().ends_with(1);
    std::fs::remove_file(runtime.join("trashfs")).unwrap();
    std::fs::create_dir(runtime.join("trashfs")).unwrap();
    std::fs::set_permissions(
        runtime.join("trashfs"),
        std::fs::Permissions::from_mode(0o777),
    )
    .unwrap();
    mount().ends_with(2).says("unsafe-directory");
    assert!(std::fs::read_dir(&elsewhere).unwrap().next().is_none());
    detach(&dir);
}

#[test]
fn a_station_whose_state_was_removed_under_the_mount_goes_on() {
    let station = Station::new();
    let home = station.home().to_owned();
    std::fs::create_dir(home.join("src")).unwrap();
    std::fs::write(home.join("src/file"), "content").unwrap();
    let workspace = station.mount(&home);
    workspace.sh("rm -rf .local .config src").ok();
    assert!(!home.join("src").exists());
    let status = workspace.trash(["status", "--json"]).ok().json();
    let one = &status["workspaces"][0];
    assert_eq!(one["presence"], "live", "{status}");
    assert!(one["status"]["totals"]["entries"].as_u64().unwrap() >= 1);
    // The next daemon makes its state anew, and adopts what staging holds.
    let workspace = workspace.remount();
    let status = workspace.trash(["status", "--json"]).ok().json();
    let one = &status["workspaces"][0]["status"];
    assert!(one["totals"]["entries"].as_u64().unwrap() >= 1, "{status}");
}
