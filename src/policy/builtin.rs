//! The defaults that hold where no rule of a user matches.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::policy::Subject;
use crate::record::{Cause, Keep, Kept};

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

/// Captures of one path that are kept at once, of those made by overwriting.
const VERSIONS: Option<u32> = Some(10);

/// A default: its name in explanations, what it is about, and what it says.
pub(super) struct Builtin {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) fits: fn(&Subject<'_>, Marks) -> bool,
    pub(super) keep: Keep,
    pub(super) retain_s: u64,
}

/// All of them; the first that fits decides, and the last two fit everything.
pub(super) const BUILTINS: [Builtin; 5] = [
    Builtin {
        name: "scratch",
        about: "what the same process made within ten seconds",
        fits: |subject, _| subject.scratch,
        keep: Keep::Local,
        retain_s: HOUR,
    },
    Builtin {
        name: "git",
        about: "what git itself removes under .git, unless it was asked to remove",
        fits: |subject, marks| {
            marks.git
                && subject.cause == Cause::Remove
                && is_git(subject.comm)
                && !subject.asked_to_remove
        },
        keep: Keep::Local,
        retain_s: DAY,
    },
    Builtin {
        name: "cache",
        about: "what lies in node_modules, __pycache__, or a tree with a valid CACHEDIR.TAG",
        fits: |subject, marks| marks.cache || subject.cache,
        keep: Keep::Local,
        retain_s: 3 * DAY,
    },
    Builtin {
        name: "overwritten",
        about: "what is replaced or truncated",
        fits: |subject, _| subject.cause != Cause::Remove,
        keep: Keep::Local,
        retain_s: 7 * DAY,
    },
    Builtin {
        name: "removed",
        about: "everything that is removed",
        fits: |_, _| true,
        keep: Keep::Hosted,
        retain_s: 365 * DAY,
    },
];

/// Retention where a rule names the way of keeping only.
pub(super) fn retain_of(keep: Keep) -> Duration {
    Duration::from_secs(match keep {
        Keep::Hosted => 365 * DAY,
        Keep::Local => 7 * DAY,
    })
}

/// Names in the path that the defaults look for.
#[derive(Clone, Copy, Default)]
pub(super) struct Marks {
    git: bool,
    cache: bool,
}

impl Marks {
    pub(super) fn of(path: &Path) -> Self {
        let mut marks = Self::default();
        for name in path.as_os_str().as_bytes().split(|b| *b == b'/') {
            match name {
                b".git" => marks.git = true,
                b"node_modules" | b"__pycache__" => marks.cache = true,
                _ => {}
            }
        }
        marks
    }
}

/// Whether `comm` is the name of a git process.
pub(crate) fn is_git(comm: &str) -> bool {
    comm == "git" || comm.starts_with("git-")
}

/// The default that decides, and what it says.
pub(super) fn decide(subject: &Subject<'_>) -> (&'static Builtin, Kept) {
    let marks = Marks::of(subject.path);
    let builtin = BUILTINS
        .iter()
        .find(|builtin| (builtin.fits)(subject, marks))
        .unwrap_or(&BUILTINS[BUILTINS.len() - 1]);
    let versions_max = match (builtin.name, subject.cause) {
        ("scratch", _) | (_, Cause::Replace | Cause::Truncate) => VERSIONS,
        (_, Cause::Remove) => None,
    };
    let kept = Kept {
        keep: builtin.keep,
        retain: Duration::from_secs(builtin.retain_s),
        versions_max,
    };
    (builtin, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(path: &str, cause: Cause, comm: &str, scratch: bool, cache: bool) -> (Keep, u64, u32) {
        let subject = Subject {
            path: Path::new(path),
            cause,
            comm,
            asked_to_remove: false,
            size_bytes: 1,
            age_s: 1,
            scratch,
            cache,
        };
        let kept = decide(&subject).1;
        (
            kept.keep,
            kept.retain.as_secs(),
            kept.versions_max.unwrap_or(0),
        )
    }

    #[test]
    fn the_defaults_are_those_of_the_design() {
        use Cause::{Remove, Replace, Truncate};
        let plain = |path, cause| kept(path, cause, "rm", false, false);
        assert_eq!(plain("src/a", Remove), (Keep::Hosted, 365 * DAY, 0));
        assert_eq!(plain("src/a", Replace), (Keep::Local, 7 * DAY, 10));
        assert_eq!(plain("src/a", Truncate), (Keep::Local, 7 * DAY, 10));
        assert_eq!(plain("a/node_modules", Remove), (Keep::Local, 3 * DAY, 0));
        assert_eq!(
            plain("a/node_modules/x/y.js", Replace),
            (Keep::Local, 3 * DAY, 10)
        );
        assert_eq!(
            plain("a/__pycache__/m.pyc", Remove),
            (Keep::Local, 3 * DAY, 0)
        );
        assert_eq!(plain(".git/index", Remove), (Keep::Hosted, 365 * DAY, 0));
        assert_eq!(plain(".git.bak/x", Remove), (Keep::Hosted, 365 * DAY, 0));
        assert_eq!(
            plain("node_modules_old/x", Remove),
            (Keep::Hosted, 365 * DAY, 0)
        );
        assert_eq!(
            kept("x/.git/HEAD.lock", Remove, "git", false, false),
            (Keep::Local, DAY, 0)
        );
        assert_eq!(
            kept("x/README", Remove, "git", false, false),
            (Keep::Hosted, 365 * DAY, 0)
        );
        assert_eq!(
            kept("target/debug/x", Remove, "cargo", false, true),
            (Keep::Local, 3 * DAY, 0)
        );
        assert_eq!(
            kept("t.tmp", Remove, "cc1", true, false),
            (Keep::Local, HOUR, 10)
        );
    }
}
