use super::{Context, Report};
use crate::failure::Failure;

/// Print completions for a shell
///
/// For bash: `trash completions bash > ~/.local/share/bash-completion/completions/trash`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Writes them to standard output.
///
/// # Errors
/// When the shell's generator gives no text.
pub(super) fn run(args: Args, _context: &Context) -> Result<Report, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "trash", &mut script);
    String::from_utf8(script)
        .map(Report::raw)
        .map_err(|e| Failure::failed("internal", format!("the completions are no text: {e}")))
}
