//! Real trees, real tools and real accidents inside a mount.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends; it clears its own scratch"
)]

#[path = "../common/mod.rs"]
mod common;

mod inputs;
mod limits;
mod overwriting;
mod removers;
mod tools;
