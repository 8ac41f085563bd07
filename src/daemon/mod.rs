//! The process behind a mount.
//!
//! In the order of a start: `place` finds the directories and settles what is mounted there
//! already, `prepare` opens all that is needed while the backing can still be reached by its
//! path, `run` mounts and serves until it is unmounted or told to stop. Afterwards no path of
//! the user's is ever looked up again: it would lead into the daemon's own mount.

mod attentive;
mod background;
mod log;
mod place;
mod prepare;
mod run;
mod serving;
mod unmount;

pub use background::{detached, start};
pub use place::Wanted;
pub use run::{Report, run};
pub use unmount::{Unmounted, unmount};
