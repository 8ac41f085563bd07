//! Giving back what was kept.
//!
//! Every restore is planned first: all paths that are in the way are found before anything
//! changes. Then an intent record is written beside the entry, and each step is one atomic
//! rename. An interrupted restore is finished by [`recover`] from that record.

mod report;

pub use report::{
    LeftAlone, Mode, Placed, Recovered, RestoreSpec, Restored, Target, There, UndoSpec, Undone,
    UndoneOperation, Verified, Why,
};
