use std::path::PathBuf;

use super::{Context, Report};
use crate::failure::Failure;

/// Write the man pages to a directory
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// Where to: it must exist
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Writes `trash.1` and a page for each command.
///
/// # Errors
/// When the directory can't be written.
pub(super) fn run(args: Args, _context: &Context) -> Result<Report, Failure> {
    clap_mangen::generate_to(super::command(), &args.dir)
        .map_err(|e| Failure::io(format!("writing man pages to {}", args.dir.display()), &e))?;
    let text = format!("wrote the man pages to {}", args.dir.display());
    Report::new(&serde_json::json!({ "dir": args.dir }), text)
}
