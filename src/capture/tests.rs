//! Captures without a mount: what the mount would do around them is done by hand.

mod attributes;
mod failures;
mod lifecycle;
mod nested;
mod removals;
pub(super) mod world;
