//! A model of filesystem and trash: random sequences run in a mount and in a plain directory
//! beside it. Every system call has the same result in both, and every text that was destroyed
//! is in staging until it is back in the tree.
//!
//! `TRASHFS_MODEL_CASES` sets the number of sequences.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends; it clears its own scratch"
)]

#[path = "../common/mod.rs"]
mod common;

mod step;
mod world;

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use step::{Batch, batch};
use world::World;

fn run(batches: impl Strategy<Value = Vec<Batch>>, cases: usize) {
    let config = Config {
        cases: u32::try_from(cases).unwrap(),
        max_shrink_iters: 300,
        failure_persistence: None,
        ..Config::default()
    };
    let world = RefCell::new(World::new());
    let outcome = TestRunner::new(config).run(&batches, |batches| {
        let mut world = world.borrow_mut();
        world.begin();
        for batch in &batches {
            world.perform(batch).map_err(TestCaseError::fail)?;
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn a_model_of_filesystem_and_trash_agrees_with_the_mount() {
    run(vec(batch(), 1..8), common::count("TRASHFS_MODEL_CASES", 60));
}
