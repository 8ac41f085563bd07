//! Kills and power cuts: what returned success is restorable, what returned an error left the
//! original, nothing is half, and recovery may be repeated or killed itself.
//!
//! A small set by default; `scripts/crash` asks for all (`TRASHFS_KILL_POINTS`,
//! `TRASHFS_RANDOM_KILLS`, `TRASHFS_POWER_CUTS`).
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends; it clears its own scratch"
)]

#[path = "../common/mod.rs"]
mod common;

mod cuts;
mod kills;
mod load;
mod scene;
