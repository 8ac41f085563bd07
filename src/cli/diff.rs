use std::path::PathBuf;

use super::output::{BAD, GOOD, HEADING, styled};
use super::{Context, Report};
use crate::control::{self, Request};
use crate::diff::Difference;
use crate::failure::Failure;
use crate::record::Bytes;

/// Compare what an entry keeps with what is there now
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trash diff 5gikyr6i src/main.rs")]
pub struct Args {
    /// The entry, or the beginning of its id
    pub id: String,
    /// Which path of it, PATH@N for version N; may be left out where there is only one
    #[arg(value_name = "MEMBER")]
    pub member: Option<PathBuf>,
}

/// Asks for the comparison.
///
/// # Errors
/// `unknown-id`, `ambiguous-id`, `which-member`.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let difference: Difference = context.call_about(|located| {
        let member = args.member.as_deref();
        let member = member.map(|typed| context.member(located, typed));
        let request = Request::Diff {
            entry: args.id.clone(),
            member: member.transpose()?.map(Bytes::from),
        };
        control::call_for(located, request)
    })?;
    if difference.cut {
        context
            .output
            .note("trash: there is more; this is the beginning");
    }
    match (context.output.json_asked(), context.output.on_terminal()) {
        (true, _) => Report::new(&difference, ""),
        (false, false) => Ok(Report::raw(difference.text)),
        (false, true) => Ok(Report::for_people(coloured(&difference))),
    }
}

/// Lines as a person likes them; what a file holds can't move the cursor.
fn coloured(difference: &Difference) -> String {
    if difference.same {
        return "there is no difference".to_owned();
    }
    let line = |line: &str| {
        let safe: Vec<String> = line.split('\t').map(super::text::safe).collect();
        let safe = safe.join("\t");
        match line.as_bytes() {
            [b'-', b'-', b'-', ..] | [b'+', b'+', b'+', ..] | [b'@', ..] => styled(HEADING, safe),
            [b'-', ..] => styled(BAD, safe),
            [b'+', ..] => styled(GOOD, safe),
            _ => safe,
        }
    };
    let lines: Vec<String> = difference.text.lines().map(line).collect();
    lines.join("\n")
}
