use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::output::{FAINT, GOOD, HEADING, WARNING, styled};
use super::{Context, Report, text};
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::policy::{Explanation, Question, Source, parse_duration, parse_size};
use crate::record::Cause;

/// Ask what the policy says
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    /// What about it.
    #[command(subcommand)]
    pub question: PolicyCommand,
}

/// Questions about the policy.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Say how a path would be kept, and which rule decides
    Explain(Explain),
}

/// `trash policy explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trash policy explain build/out.o --cause replace")]
pub struct Explain {
    /// The path; it need not exist
    pub path: PathBuf,
    /// Why it would be destroyed
    #[arg(long, default_value = "remove", value_parser = super::cause_parser())]
    pub cause: Cause,
    /// By which process
    #[arg(long, value_name = "NAME", default_value = "rm")]
    pub process: String,
    /// As if it had this size, as in 10MiB
    #[arg(long, value_parser = parse_size)]
    pub size: Option<u64>,
    /// As if it were this old, as in 2h
    #[arg(long, value_parser = parse_duration)]
    pub age: Option<Duration>,
}

/// Explains.
///
/// # Errors
/// `outside-workspace`.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let PolicyCommand::Explain(args) = args.question;
    let located = context.located()?;
    let question = Question {
        path: context.within(&located, &args.path)?.into(),
        cause: args.cause,
        process: args.process,
        size_bytes: args.size,
        age_s: args.age.map(|age| age.as_secs()),
    };
    let explanation: Explanation = control::call_for(&located, Request::Explain(question))?;
    Report::new(&explanation, shown(&explanation))
}

fn shown(explanation: &Explanation) -> String {
    let how = match (&explanation.retain, explanation.versions) {
        (None, _) => "is deleted outright".to_owned(),
        (Some(retain), None) => format!("is kept {} for {retain}", explanation.keep),
        (Some(retain), Some(versions)) => format!(
            "is kept {} for {retain}, at most {versions} captures of the path",
            explanation.keep
        ),
    };
    let mut lines = vec![styled(
        HEADING,
        format_args!(
            "{} ({}): {how}",
            text::path(&explanation.path),
            explanation.cause
        ),
    )];
    if let Some(problem) = &explanation.problem {
        let problem = text::safe(problem);
        lines.push(styled(
            WARNING,
            format_args!("the last good rules are in force, since {problem}"),
        ));
    }
    lines.extend(explanation.considered.iter().map(|rule| {
        let (mark, style) = if rule.decides {
            ("*", GOOD)
        } else {
            (" ", FAINT)
        };
        let source = match rule.source {
            Source::Station => "station",
            Source::Workspace => "workspace",
            Source::Builtin => "default",
        };
        let line = format!("{mark} {source} {}: {}", text::safe(&rule.rule), rule.why);
        styled(style, line)
    }));
    lines.join("\n")
}
