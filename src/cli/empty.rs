use std::io::Write;

use super::{Context, Report, text};
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::retention::Emptied;
use crate::station::Located;

/// Free the space of what is kept, for good
///
/// For people: asks on a terminal, and needs --yes elsewhere. What is held stays.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trash empty --older-than 30 --dry-run")]
pub struct Args {
    /// Only what was removed more than so many days ago
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    pub older_than: u32,
    /// Only say what would go
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

/// Asks, then empties.
///
/// # Errors
/// `not-confirmed`.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let located = context.located()?;
    let would = ask(&located, args.older_than, true)?;
    if args.dry_run || would.entries.is_empty() {
        return Report::new(&would, shown(&would));
    }
    if !args.yes {
        confirm(context, &would, args.older_than)?;
    }
    let done = context
        .output
        .while_busy("freeing", || ask(&located, args.older_than, false))?;
    Report::new(&done, shown(&done))
}

fn ask(located: &Located, older_than_days: u32, dry_run: bool) -> Result<Emptied, Failure> {
    let request = Request::Empty {
        older_than_days,
        dry_run,
    };
    control::call_for(located, request)
}

fn confirm(context: &Context, would: &Emptied, older_than: u32) -> Result<(), Failure> {
    let what = what(would);
    let again = match older_than {
        0 => "trash empty --yes".to_owned(),
        days => format!("trash empty --older-than {days} --yes"),
    };
    let refused = |what: String| {
        Failure::refused("not-confirmed", what)
            .state("nothing was given up")
            .next(again.clone())
    };
    if !context.output.can_ask() {
        let what = format!("{what} would be gone for good, and nobody can be asked");
        return Err(refused(what));
    }
    // A question that can't be shown gets no answer, and that is a no.
    let mut terminal = anstream::stderr();
    let _ = write!(terminal, "give up {what} for good? [y/N] ");
    let _ = terminal.flush();
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|e| Failure::io("reading the answer", &e))?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(refused("the answer was no".into())),
    }
}

fn what(emptied: &Emptied) -> String {
    let entries = text::count(emptied.entries.len() as u64, "entry", "entries");
    format!("{entries} ({})", text::size(emptied.bytes))
}

fn shown(emptied: &Emptied) -> String {
    let mut shown = match emptied.dry_run {
        _ if emptied.entries.is_empty() => "there is nothing to give up".to_owned(),
        true => format!("would give up {}", what(emptied)),
        false => format!(
            "gave up {}; {} are free again",
            what(emptied),
            text::size(emptied.freed_bytes.unwrap_or(0))
        ),
    };
    for (number, why) in [(emptied.held, "held"), (emptied.busy, "open or in work")] {
        if number > 0 {
            let entries = text::count(number, "entry stays", "entries stay");
            shown.push_str(&format!("\n{entries}: {why}"));
        }
    }
    shown
}
