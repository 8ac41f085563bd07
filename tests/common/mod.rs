//! What the integration tests share: a station of their own, awkward trees, and a comparer.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends; it clears its own scratch"
)]
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary takes the part of this that it needs"
)]

pub mod image;
pub mod snapshot;
pub mod station;
pub mod tree;

pub use snapshot::{Snapshot, assert_same};
pub use station::{Answer, Station, Workspace, detach, program, run, sh};

/// A number from the environment, for longer runs than the usual one.
pub fn count(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number"))
    })
}

/// Whether this process may mount, own files for others, and make device nodes.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says on standard error why part of a test was left out; never a silent skip.
pub fn skip(what: &str, why: &str) {
    eprintln!("SKIPPED {what}: {why}");
}
