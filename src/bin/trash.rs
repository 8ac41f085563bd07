//! The `trash` command.
fn main() {}
