//! The `trash` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    trashfs::cli::main()
}
