use super::{Context, Report, text};
use crate::control::Request;
use crate::failure::Failure;
use crate::record::Entry;

/// Hold an entry: nothing ends it until the hold is taken off
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trash hold 5gikyr6i")]
pub struct Args {
    /// The entry, or the beginning of its id
    pub id: String,
    /// Take the hold off
    #[arg(long)]
    pub off: bool,
}

/// Holds it, or lets go.
///
/// # Errors
/// `unknown-id`, `ambiguous-id`.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let entry: Entry = context.ask_about(|| Request::Hold {
        entry: args.id.clone(),
        on: !args.off,
    })?;
    let what = text::what(&entry);
    let until = text::local_time(entry.retain_until);
    let text = match args.off {
        false => format!("{} is held: {what}", text::id(&entry.id)),
        true => format!("{} is kept until {until}: {what}", text::id(&entry.id)),
    };
    Report::new(&entry, text)
}
