//! The rules in force in one workspace, and their reloading.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::policy::rules::Rules;
use crate::policy::{Budget, Decision, Explanation, PolicyError, StationPolicy, Subject};
use crate::policy::{explain, form};

/// The workspace's policy file, at its root.
pub const POLICY_FILE: &str = ".trashfs.toml";

/// A policy file is read up to this length.
const LENGTH_MAX: u64 = 1 << 20;

/// A busy workspace looks at its policy file so often.
const LOOK_EVERY_MS: u64 = 100;

/// The rules in force; swapped as a whole when the file changes.
#[derive(Debug)]
pub struct PolicyHandle {
    station: StationPolicy,
    root: Option<OwnedFd>,
    rules: ArcSwap<Rules>,
    seen: Mutex<Seen>,
    born: Instant,
    /// When the file was last looked at, in milliseconds since `born`.
    looked_ms: AtomicU64,
}

/// What was last looked at, and what was wrong with it.
#[derive(Debug, Default)]
struct Seen {
    version: Option<Version>,
    problem: Option<PolicyError>,
}

/// A version of the file. None stands for no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    ino: u64,
    size: i64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl PolicyHandle {
    /// Only the built-in defaults.
    pub fn defaults() -> Self {
        Self {
            station: StationPolicy::default(),
            root: None,
            rules: ArcSwap::from_pointee(Rules::none()),
            seen: Mutex::default(),
            born: Instant::now(),
            looked_ms: AtomicU64::new(0),
        }
    }

    /// The station's rules and those of the policy file in the backing's root directory, if
    /// there is one.
    ///
    /// # Errors
    /// When the file can't be read or its rules can't be followed.
    pub fn load(station: StationPolicy, root: OwnedFd) -> Result<Self, PolicyError> {
        let policy = Self::load_or_note(station, root);
        match policy.problem() {
            None => Ok(policy),
            Some(problem) => Err(problem),
        }
    }

    /// As [`load`](Self::load), but a file that can't be used leaves the station's rules alone
    /// in force and is noted as the [`problem`](Self::problem): for work that destroys nothing,
    /// which must not fail because of it.
    pub fn load_or_note(station: StationPolicy, root: OwnedFd) -> Self {
        let version = version(root.as_fd());
        let read = version
            .clone()
            .and_then(|_| read_rules(&station, root.as_fd()));
        let (rules, problem) = match read {
            Ok(rules) => (rules, None),
            Err(problem) => (station_rules(&station), Some(problem)),
        };
        Self {
            station,
            root: Some(root),
            rules: ArcSwap::from_pointee(rules),
            seen: Mutex::new(Seen {
                version: version.unwrap_or(None),
                problem,
            }),
            born: Instant::now(),
            looked_ms: AtomicU64::new(0),
        }
    }

    /// Decides, by the policy file as it was at most a tenth of a second ago. Fast: it is asked
    /// for every capture.
    pub fn decide(&self, subject: &Subject<'_>) -> Decision {
        self.reload_sometimes();
        self.rules.load().decide(subject)
    }

    /// Which rule decides about `subject`, and why the others don't.
    pub fn explain(&self, subject: &Subject<'_>) -> Explanation {
        explain::by_rules(&self.rules.load(), subject, self.problem())
    }

    /// Looks whether the policy file has changed, and if so puts its rules in force; true when
    /// they were. A file that can't be used leaves the last good rules in force, and
    /// [`problem`](Self::problem) says so until it is corrected.
    pub fn reload(&self) -> bool {
        let Some(root) = &self.root else { return false };
        let mut seen = self.seen.lock();
        let read = version(root.as_fd()).and_then(|version| {
            if version == seen.version && seen.problem.is_none() {
                return Ok(None);
            }
            seen.version = version;
            read_rules(&self.station, root.as_fd()).map(Some)
        });
        match read {
            Ok(None) => false,
            Ok(Some(rules)) => {
                seen.problem = None;
                self.rules.store(std::sync::Arc::new(rules));
                tracing::info!("the policy was loaded anew");
                true
            }
            Err(problem) => {
                if seen.problem.as_ref() != Some(&problem) {
                    tracing::error!(%problem, "the last good policy stays in force");
                }
                seen.problem = Some(problem);
                false
            }
        }
    }

    /// An idle workspace never looks; a busy one does now and then.
    fn reload_sometimes(&self) {
        if self.root.is_none() {
            return;
        }
        let now_ms = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last_ms = self.looked_ms.load(Ordering::Relaxed);
        let is_due = now_ms.saturating_sub(last_ms) >= LOOK_EVERY_MS;
        let is_mine = || {
            let (order, known) = (Ordering::Relaxed, Ordering::Relaxed);
            let swapped = self
                .looked_ms
                .compare_exchange(last_ms, now_ms, order, known);
            swapped.is_ok()
        };
        if is_due && is_mine() {
            self.reload();
        }
    }

    /// What is wrong with the policy file as it is now; the last good rules are in force.
    pub fn problem(&self) -> Option<PolicyError> {
        self.seen.lock().problem.clone()
    }

    /// How much of a filesystem staging may take.
    pub fn budget(&self) -> Budget {
        self.station.budget
    }
}

fn version(root: BorrowedFd<'_>) -> Result<Option<Version>, PolicyError> {
    match rustix::fs::statat(root, POLICY_FILE, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Version {
            ino: stat.st_ino,
            size: stat.st_size,
            mtime: (stat.st_mtime, i64::from(stat.st_mtime_nsec as u32)),
            ctime: (stat.st_ctime, i64::from(stat.st_ctime_nsec as u32)),
        })),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(unreadable(&e.into())),
    }
}

/// Those of the station alone. They were compiled with others before, or are so large that the
/// defaults have to do.
fn station_rules(station: &StationPolicy) -> Rules {
    Rules::new(&station.rules, &[]).unwrap_or_else(|_| Rules::none())
}

fn read_rules(station: &StationPolicy, root: BorrowedFd<'_>) -> Result<Rules, PolicyError> {
    let workspace = match read(root)? {
        Some(text) => form::workspace_rules(POLICY_FILE, &text)?,
        None => Vec::new(),
    };
    Rules::new(&station.rules, &workspace).map_err(|what| PolicyError::whole(POLICY_FILE, what))
}

fn read(root: BorrowedFd<'_>) -> Result<Option<String>, PolicyError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(root, POLICY_FILE, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NXIO) => return Err(no_file()),
        Err(e) => return Err(unreadable(&e.into())),
    };
    let stat = rustix::fs::fstat(&fd).map_err(|e| unreadable(&e.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(no_file());
    }
    let mut bytes = Vec::new();
    std::fs::File::from(fd)
        .take(LENGTH_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| unreadable(&e))?;
    if bytes.len() as u64 > LENGTH_MAX {
        return Err(PolicyError::whole(POLICY_FILE, "it is longer than 1 MiB"));
    }
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| PolicyError::whole(POLICY_FILE, "it is not UTF-8 text; TOML is expected"))
}

fn no_file() -> PolicyError {
    PolicyError::whole(
        POLICY_FILE,
        "it is no regular file (a link is not followed)",
    )
}

fn unreadable(error: &std::io::Error) -> PolicyError {
    let why = crate::failure::plain(error);
    PolicyError::whole(POLICY_FILE, format!("it can't be read: {why}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::record::Cause;

    fn removes(policy: &PolicyHandle, path: &str) -> Decision {
        policy.decide(&Subject {
            path: Path::new(path),
            cause: Cause::Remove,
            comm: "rm",
            asked_to_remove: false,
            size_bytes: 0,
            age_s: 0,
            scratch: false,
            cache: false,
        })
    }

    fn load(dir: &Path) -> Result<PolicyHandle, PolicyError> {
        let root = std::fs::File::open(dir).unwrap();
        PolicyHandle::load(StationPolicy::default(), root.into())
    }

    fn deleted(rule: &str) -> Decision {
        Decision::Delete { rule: rule.into() }
    }

    #[test]
    fn a_changed_file_is_put_in_force_and_a_garbled_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(dir.path().join(POLICY_FILE), text).unwrap();
        let policy = load(dir.path()).unwrap();
        assert!(matches!(removes(&policy, "tmp/x"), Decision::Keep(_)));
        assert!(!policy.reload());

        write("[[rule]]\nmatch = \"tmp\"\nkeep = \"none\"\n");
        assert!(policy.reload() && !policy.reload());
        assert_eq!(removes(&policy, "tmp/x"), deleted(".trashfs.toml:1"));

        write("[[rule]\n");
        assert!(!policy.reload());
        assert_eq!(policy.problem().unwrap().place.unwrap().0, 1);
        assert_eq!(removes(&policy, "tmp/x"), deleted(".trashfs.toml:1"));

        write("");
        assert!(policy.reload());
        assert_eq!(policy.problem(), None);
        assert!(matches!(removes(&policy, "tmp/x"), Decision::Keep(_)));
    }

    #[test]
    fn a_garbled_file_is_noted_where_nothing_is_destroyed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(POLICY_FILE), "[[rule]\n").unwrap();
        let root = std::fs::File::open(dir.path()).unwrap();
        let policy = PolicyHandle::load_or_note(StationPolicy::default(), root.into());
        assert_eq!(policy.problem().unwrap().place.unwrap().0, 1);
        assert!(matches!(removes(&policy, "x"), Decision::Keep(_)));
        std::fs::write(dir.path().join(POLICY_FILE), "").unwrap();
        assert!(policy.reload());
        assert_eq!(policy.problem(), None);
    }

    #[test]
    fn a_busy_workspace_notices_a_change_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let policy = load(dir.path()).unwrap();
        std::fs::write(dir.path().join(POLICY_FILE), "[[rule]]\nkeep = \"none\"").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2 * LOOK_EVERY_MS));
        assert_eq!(removes(&policy, "x"), deleted(".trashfs.toml:1"));
    }

    #[test]
    fn a_garbled_file_at_the_start_is_refused_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(POLICY_FILE), "[[rule]]\nkeep = 1").unwrap();
        let failure = crate::failure::Failure::from(load(dir.path()).unwrap_err());
        assert!(
            failure.what.starts_with(".trashfs.toml:2:8: "),
            "{}",
            failure.what
        );
        assert_eq!(
            (failure.code.as_str(), failure.exit_code()),
            ("garbled-policy", 2)
        );
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(POLICY_FILE)).unwrap();
        assert!(
            load(dir.path())
                .unwrap_err()
                .what
                .contains("no regular file")
        );
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(POLICY_FILE)).unwrap();
        assert!(
            load(dir.path())
                .unwrap_err()
                .what
                .contains("no regular file")
        );
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(POLICY_FILE), [0xff, 0xfe]).unwrap();
        assert!(load(dir.path()).unwrap_err().what.contains("UTF-8"));
    }
}
