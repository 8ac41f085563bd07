use super::{Context, Report, text};
use crate::control::Request;
use crate::failure::Failure;
use crate::record::Entry;

/// Set for how long an entry is kept, from its removal on
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trash retention 5gikyr6i --days 90")]
pub struct Args {
    /// The entry, or the beginning of its id
    pub id: String,
    /// So many days (1 to 365)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub days: i64,
}

/// Sets it.
///
/// # Errors
/// `unknown-id`, `ambiguous-id`, and days out of range.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let entry: Entry = context.ask_about(|| Request::Retention {
        entry: args.id.clone(),
        days: args.days,
    })?;
    let until = text::local_time(entry.retain_until);
    let what = text::what(&entry);
    let text = format!("{} is kept until {until}: {what}", text::id(&entry.id));
    Report::new(&entry, text)
}
