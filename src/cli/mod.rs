//! The command line: one file a command, whose doc comment is its help.
//!
//! A command is `Args` and `run(args, &Context) -> Result<Report, Failure>`. It neither prints
//! nor exits: [`main`] shows the [`Report`] in the form that [`Output`] asks for and turns a
//! [`Failure`](crate::failure::Failure) into an exit code.

mod context;
pub mod output;
mod text;

mod completions;
mod destination;
mod diff;
mod doctor;
mod empty;
mod hold;
mod info;
mod list;
mod man;
mod mount;
mod pending;
mod policy;
mod put;
mod recover;
mod release;
mod restore;
mod restored;
mod retention;
mod run;
mod setup;
mod show;
mod status;
mod undo;
mod unmount;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

pub use context::Context;
pub use output::{Output, Report};

use crate::failure::{Ending, Failure};
use crate::record::Cause;

/// Reversible deletion for workspaces
///
/// In a mounted workspace nothing that is removed or overwritten is lost: it is kept, listed and
/// given back. Output is JSON when standard output is no terminal.
///
/// Exit codes: 0 done, 1 usage or service failure, 2 refused (nothing was lost).
#[derive(Debug, Parser)]
#[command(name = "trash", version, propagate_version = true)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Workspace to work on (default: that of the current directory, else the only one there is)
    #[arg(long, global = true, value_name = "DIR")]
    pub workspace: Option<std::path::PathBuf>,
    /// JSON output, also on a terminal; errors as JSON on standard error
    #[arg(long, global = true)]
    pub json: bool,
    /// Print nothing but errors, and what was asked for in so many words (show, diff, --json)
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

macro_rules! commands {
    ($($(#[$meta:meta])* $name:ident => $module:ident,)*) => {
        /// The commands.
        #[derive(Debug, Subcommand)]
        #[expect(missing_docs, reason = "each command's help is the doc comment of its Args")]
        pub enum Command {
            $($(#[$meta])* $name($module::Args),)*
        }

        impl Command {
            fn run(self, context: &Context) -> Result<Report, Failure> {
                match self {
                    $(Self::$name(args) => $module::run(args, context),)*
                }
            }
        }
    };
}

commands! {
    Setup => setup,
    Doctor => doctor,
    Status => status,
    Mount => mount,
    Unmount => unmount,
    List => list,
    Info => info,
    Show => show,
    Diff => diff,
    Undo => undo,
    Restore => restore,
    Empty => empty,
    Put => put,
    Hold => hold,
    Retention => retention,
    Pending => pending,
    Release => release,
    Recover => recover,
    Policy => policy,
    Run => run,
    Completions => completions,
    Man => man,
}

/// The process's `main`: parses, runs, shows, and says how it ended.
pub fn main() -> ExitCode {
    from_args(std::env::args_os())
}

fn from_args(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return usage(&args, &error),
    };
    let output = Output::new(&cli.global);
    let context = Context::new(cli.global.workspace, output);
    match cli.command.run(&context) {
        Ok(report) => output.show(&report),
        Err(failure) => output.fail(&failure),
    }
}

/// Help and version are answers; all else that clap reports is a wrong use.
fn usage(args: &[OsString], error: &clap::Error) -> ExitCode {
    let asked = !error.use_stderr();
    let json = args
        .iter()
        .take_while(|a| *a != "--")
        .any(|a| *a == "--json");
    if asked || !json {
        // Nothing is left to be done when even the message can't be printed.
        let _ = error.print();
        let failed = ExitCode::from(Ending::Failed.exit_code());
        return if asked { ExitCode::SUCCESS } else { failed };
    }
    let text = error.render().to_string();
    let what = text.lines().next().unwrap_or_default();
    let failure = Failure::failed("usage", what.trim_start_matches("error: "))
        .state("nothing was done")
        .next("trash --help");
    Output::new(&Global {
        json: true,
        ..Global::default()
    })
    .fail(&failure)
}

/// The whole command, for help, completions and man pages.
fn command() -> clap::Command {
    Cli::command()
}

/// For `--cause`.
fn cause_parser() -> impl clap::builder::TypedValueParser<Value = Cause> {
    use clap::builder::TypedValueParser;
    clap::builder::PossibleValuesParser::new(["remove", "replace", "truncate"])
        .try_map(|text| text.parse::<Cause>())
}

/// A daemon's answer as what it is meant to be.
fn parsed<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> Result<T, Failure> {
    serde_json::from_value(value).map_err(|e| {
        Failure::failed("protocol", format!("the daemon's answer is strange: {e}"))
            .state("it may be of another version than the command")
            .next("trash doctor")
    })
}
