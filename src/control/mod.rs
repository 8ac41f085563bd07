//! The door to a workspace: one request, one answer. A mounted workspace's daemon serves it on
//! a socket that only its own user can open; of any other workspace the command itself does
//! the work, with the same code.

mod client;
mod execute;
mod protocol;
mod server;
mod wire;

pub use client::{answers, call, call_for, ping};
pub use execute::execute;
pub use protocol::{Answer, Pong, Request};
pub use server::{Host, Server};
