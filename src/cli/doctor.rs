use serde::Serialize;

use super::output::{BAD, FAINT, GOOD, WARNING, styled};
use super::{Context, Report};
use crate::doctor::{Check, Outcome, examine};
use crate::failure::{Ending, Failure};

/// Look for what keeps trashfs from working, and say what to type about it
///
/// Checks the configuration, other programs of the same name, FUSE, and every workspace: its
/// mount, its daemon, its staging area against its journal, losses, and room on the disk.
/// Changes nothing. Ends with 1 when something does not work.
#[derive(Debug, clap::Args)]
pub struct Args {}

#[derive(Serialize)]
struct Examined {
    ok: bool,
    checks: Vec<Check>,
}

/// Runs it.
///
/// # Errors
/// None but an answer without a form; what is wrong is in the report.
pub(super) fn run(_args: Args, context: &Context) -> Result<Report, Failure> {
    let checks = context.output.while_busy("examining", examine);
    let ok = checks.iter().all(|c| c.outcome != Outcome::Fail);
    let text: Vec<String> = checks.iter().map(line).collect();
    let report = Report::new(&Examined { ok, checks }, text.join("\n"))?;
    Ok(match ok {
        true => report,
        false => report.ending(Ending::Failed),
    })
}

fn line(check: &Check) -> String {
    let mark = match check.outcome {
        Outcome::Ok => styled(GOOD, "ok  "),
        Outcome::Warn => styled(WARNING, "warn"),
        Outcome::Fail => styled(BAD, "FAIL"),
    };
    let about = match &check.workspace {
        Some(workspace) => format!("{workspace}: "),
        None => String::new(),
    };
    let mut text = format!("{mark} {:<13} {about}{}", check.name, check.found);
    if !check.next.is_empty() {
        text.push_str(&format!("\n     {} {}", styled(FAINT, "next:"), check.next));
    }
    text
}
