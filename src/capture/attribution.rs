//! On whose behalf a command runs: read once when its operation opens, from the command line,
//! the working directory and the executable of the process, and from a few named variables in
//! its environment and its ancestors'.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;

use super::process::{Process, Stat};
use crate::record::{self, Attribution, Bytes};

/// Bytes of arguments that are kept.
const ARGV_MAX_BYTES: usize = 4096;
/// Processes looked at, from the caller upwards.
const ANCESTORS_MAX: usize = 16;
/// Bytes of an environment that are looked through.
const ENVIRONMENT_MAX_BYTES: u64 = 256 * 1024;
/// Bytes of a variable's value that are kept.
const VALUE_MAX_BYTES: usize = 256;

/// A harness and the variables by which it is known, set in the shells that it starts.
struct Harness {
    name: &'static str,
    /// Any of these tells.
    markers: &'static [&'static str],
    /// The first of these names the session.
    sessions: &'static [&'static str],
}

const HARNESSES: &[Harness] = &[
    Harness {
        name: "claude-code",
        markers: &[
            "CLAUDECODE",
            "CLAUDE_CODE_ENTRYPOINT",
            "CLAUDE_CODE_SESSION_ID",
        ],
        sessions: &["CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_REMOTE_SESSION_ID"],
    },
    Harness {
        name: "codex",
        markers: &[
            "CODEX_THREAD_ID",
            "CODEX_SANDBOX",
            "CODEX_SANDBOX_NETWORK_DISABLED",
            "CODEX_CI",
        ],
        sessions: &["CODEX_THREAD_ID"],
    },
    Harness {
        name: "gemini-cli",
        markers: &["GEMINI_CLI"],
        sessions: &["GEMINI_SESSION_ID"],
    },
    Harness {
        name: "opencode",
        markers: &["OPENCODE", "OPENCODE_CLIENT"],
        sessions: &["OPENCODE_SESSION_ID"],
    },
    Harness {
        name: "cursor",
        markers: &["CURSOR_AGENT", "CURSOR_TRACE_ID"],
        sessions: &["CURSOR_TRACE_ID"],
    },
];

/// Reads the record of the process and the attribution. What can't be read stays empty.
pub(super) fn read(process: &Process) -> (record::Process, Attribution) {
    let told = Environments::of(process.pid).attribution();
    (describe(process), told)
}

/// The command as it was typed is that of the group's leader while it lives.
fn describe(process: &Process) -> record::Process {
    let mut argv = Vec::new();
    if process.leader_start.is_some() {
        argv = arguments(process.group.pgid);
    }
    if argv.is_empty() {
        argv = arguments(process.pid);
    }
    let link = |what: &str| {
        (process.pid != 0)
            .then(|| std::fs::read_link(format!("/proc/{}/{what}", process.pid)).ok())
            .flatten()
            .map(Bytes::from)
    };
    record::Process {
        pid: process.pid,
        pgid: process.group.pgid,
        sid: process.group.sid,
        leader_start_ticks: process.leader_start.unwrap_or(0),
        uid: process.uid,
        gid: process.gid,
        exe: link("exe"),
        cwd: link("cwd"),
        argv,
    }
}

fn arguments(pid: u32) -> Vec<Bytes> {
    let text = read_bounded(pid, "cmdline", ARGV_MAX_BYTES as u64);
    text.strip_suffix(b"\0")
        .unwrap_or(&text)
        .split(|b| *b == 0)
        .filter(|_| !text.is_empty())
        .map(|argument| Bytes::from(OsStr::from_bytes(argument)))
        .collect()
}

fn read_bounded(pid: u32, what: &str, max_bytes: u64) -> Vec<u8> {
    let mut text = Vec::new();
    if pid != 0
        && let Ok(file) = std::fs::File::open(format!("/proc/{pid}/{what}"))
        && file.take(max_bytes).read_to_end(&mut text).is_err()
    {
        // The process ended meanwhile.
        text.clear();
    }
    text
}

/// The environments of a process and its ancestors, the nearest first.
struct Environments(Vec<Vec<u8>>);

impl Environments {
    fn of(pid: u32) -> Self {
        let mut all = Vec::new();
        let mut next = pid;
        while next > 1 && all.len() < ANCESTORS_MAX {
            all.push(read_bounded(next, "environ", ENVIRONMENT_MAX_BYTES));
            next = Stat::read(next).map_or(0, |stat| stat.ppid);
        }
        Self(all)
    }

    /// The nearest value of `name` that is not empty.
    fn value(&self, name: &str) -> Option<String> {
        self.0.iter().find_map(|environment| {
            environment.split(|b| *b == 0).find_map(|variable| {
                let value = variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
                let bounded = &value[..value.len().min(VALUE_MAX_BYTES)];
                (!value.is_empty()).then(|| String::from_utf8_lossy(bounded).into_owned())
            })
        })
    }

    fn attribution(&self) -> Attribution {
        let harness = HARNESSES
            .iter()
            .find(|h| h.markers.iter().any(|marker| self.value(marker).is_some()));
        let session = harness.and_then(|h| h.sessions.iter().find_map(|name| self.value(name)));
        Attribution {
            agent: self
                .value("TRASH_AGENT")
                .or_else(|| harness.map(|h| h.name.to_owned())),
            harness: harness.map(|h| h.name.to_owned()),
            session: self.value("TRASH_SESSION").or(session),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(environments: &[&str]) -> Attribution {
        Environments(environments.iter().map(|e| e.as_bytes().to_vec()).collect()).attribution()
    }

    #[test]
    fn harnesses_are_known_by_their_variables() {
        for (environment, harness, session) in [
            (
                "CLAUDECODE=1\0CLAUDE_CODE_SESSION_ID=s1\0",
                "claude-code",
                Some("s1"),
            ),
            ("CODEX_THREAD_ID=t1\0", "codex", Some("t1")),
            ("CODEX_SANDBOX=seatbelt\0", "codex", None),
            ("GEMINI_CLI=1\0", "gemini-cli", None),
            ("CURSOR_AGENT=1\0", "cursor", None),
            ("OPENCODE=1\0", "opencode", None),
        ] {
            let told = told(&[environment]);
            assert_eq!(told.harness.as_deref(), Some(harness));
            assert_eq!(told.agent.as_deref(), Some(harness));
            assert_eq!(told.session.as_deref(), session);
        }
    }

    #[test]
    fn our_own_variables_come_first_and_the_nearest_process_wins() {
        let told = told(&[
            "TRASH_SESSION=near\0XTRASH_AGENT=no\0TRASH_AGENT=\0",
            "TRASH_SESSION=far\0TRASH_AGENT=reviewer\0CLAUDECODE=1\0",
        ]);
        assert_eq!(told.session.as_deref(), Some("near"));
        assert_eq!(told.agent.as_deref(), Some("reviewer"));
        assert_eq!(told.harness.as_deref(), Some("claude-code"));
    }

    #[test]
    fn nothing_is_made_up() {
        assert_eq!(
            told(&["HOME=/root\0PATH=/bin\0", ""]),
            Attribution::default()
        );
        assert!(arguments(0).is_empty());
    }

    #[test]
    fn a_process_is_described_by_its_own_files() {
        let pid = std::process::id();
        let stat = Stat::read(pid).unwrap();
        let process = Process {
            group: super::super::process::Group {
                pgid: stat.pgid,
                sid: stat.sid,
                unseen_uid: 0,
            },
            leader_start: None,
            pid,
            uid: 0,
            gid: 0,
            comm: "x".into(),
            asked_to_remove: false,
        };
        let (record, _) = read(&process);
        assert_eq!(record.cwd, std::env::current_dir().ok().map(Bytes::from));
        assert!(!record.argv.is_empty());
    }
}
