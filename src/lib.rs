//! Reversible deletion: what a mounted workspace loses is captured, journaled, kept and given
//! back.
//!
//! In the order of the flow: who runs it (`station`), what decides (`policy`), what keeps
//! (`capture`, `staging`), what remembers (`journal`), what gives back (`restore`), and the
//! doors (`control`, `cli`).

pub mod clock;
pub mod failure;
pub mod ids;
pub mod record;
pub mod surroundings;

pub mod station;

pub mod beneath;
pub mod discard;
mod loosen;
pub mod relocate;
pub mod replica;
pub mod walk;

pub mod journal;
pub mod staging;

pub mod keeper;
pub mod query;
pub mod reconcile;
pub mod retention;
pub mod seal;

pub mod capture;
pub mod policy;
pub mod workspace;

pub mod control;
pub mod daemon;
pub mod doctor;

pub mod cli;

pub mod diff;
pub mod put;
pub mod restore;
pub mod show;

#[cfg(test)]
mod fixture;
