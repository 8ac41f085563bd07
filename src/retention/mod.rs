//! How entries end: their time passes, the disk runs short, or a person gives them up. And what
//! a person may change about it.

mod end;
mod expire;
mod room;
mod settings;

pub mod purge;
pub mod versions;

pub use end::{Emptied, EndedEntry, NotReleased, Released, empty, release};
pub use expire::{Expired, expire};
pub use room::{Room, make_room, rooms, writer_could_fill_in};
pub use settings::{hold, set_days};

#[cfg(test)]
mod tests;
