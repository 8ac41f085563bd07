//! How results and errors are shown: JSON for programs, text for people.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::cli::Global;
use crate::failure::{Ending, Failure};

/// Nobody needs to be told that something takes so long.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(300);

/// For headings.
pub const HEADING: Style = Style::new().bold();
/// For ids and other things to type.
pub const ACCENT: Style = AnsiColor::Cyan.on_default();
/// For what is good.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// For what wants attention.
pub const WARNING: Style = AnsiColor::Yellow.on_default();
/// For errors.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// For what matters less.
pub const FAINT: Style = Style::new().dimmed();

/// `text` in a style; the codes are left out where colour is not wanted.
pub fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// What a command has to say at its end, in both forms.
#[derive(Debug)]
#[must_use = "a report is to be shown"]
pub struct Report {
    compact: String,
    pretty: String,
    text: String,
    raw: bool,
    /// Raw, but with colour to be left out where it is not wanted.
    styled: bool,
    code: u8,
}

impl Report {
    /// `value` is printed for programs, `text` (lines, with a newline only between them) for people.
    ///
    /// # Errors
    /// When `value` has no JSON form.
    pub fn new(value: &impl Serialize, text: impl Into<String>) -> Result<Self, Failure> {
        let no_form = |e| Failure::failed("internal", format!("no JSON form of the result: {e}"));
        Ok(Self {
            compact: serde_json::to_string(value).map_err(no_form)?,
            pretty: serde_json::to_string_pretty(value).map_err(no_form)?,
            text: text.into(),
            raw: false,
            styled: false,
            code: 0,
        })
    }

    /// Text that was asked for as it is, in both forms and also with `--quiet`.
    pub fn raw(text: impl Into<String>) -> Self {
        Self {
            compact: String::new(),
            pretty: String::new(),
            text: text.into(),
            raw: true,
            styled: false,
            code: 0,
        }
    }

    /// Text for a terminal where the command has chosen it over JSON by itself.
    pub fn for_people(text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.push('\n');
        Self {
            styled: true,
            ..Self::raw(text)
        }
    }

    /// Nothing more to say: everything was printed while it ran.
    pub fn silent() -> Self {
        Self::raw("")
    }

    /// Ends with the exit code of `ending` although there is a result (e.g. a failed check).
    pub fn ending(mut self, ending: Ending) -> Self {
        self.code = ending.exit_code();
        self
    }

    /// [`ending`](Self::ending) where there is one.
    pub fn maybe_ending(self, ending: Option<Ending>) -> Self {
        match ending {
            Some(ending) => self.ending(ending),
            None => self,
        }
    }

    /// Ends as the command that was run did.
    pub fn of_command(mut self, code: u8) -> Self {
        self.code = code;
        self
    }
}

/// The form of the output.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
    json_errors: bool,
    quiet: bool,
    terminal: bool,
}

impl Output {
    /// As the options and standard output have it.
    pub fn new(global: &Global) -> Self {
        let terminal = std::io::stdout().is_terminal();
        Self {
            json: global.json || !terminal,
            json_errors: global.json,
            quiet: global.quiet,
            terminal,
        }
    }

    /// Whether results are JSON.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Whether JSON was asked for, and is not just the form for programs.
    pub fn json_asked(&self) -> bool {
        self.json_errors
    }

    /// Whether standard output is a terminal.
    pub fn on_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether a person can be asked.
    pub fn can_ask(&self) -> bool {
        self.terminal && !self.json && std::io::stdin().is_terminal()
    }

    /// Runs `work`, with a moving sign of life on standard error where a person waits for it.
    pub fn while_busy<T>(&self, doing: &str, work: impl FnOnce() -> T) -> T {
        if self.json || self.quiet || !std::io::stderr().is_terminal() {
            return work();
        }
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || show_life(doing, &is_done));
            let result = work();
            drop(done);
            result
        })
    }

    /// A remark that is no result: on standard error, for people only.
    pub fn note(&self, text: &str) {
        if !self.quiet && !self.json_errors {
            // A remark that can't be shown is no reason to stop.
            let _ = writeln!(anstream::stderr(), "{text}");
        }
    }

    pub(super) fn show(&self, report: &Report) -> ExitCode {
        let code = ExitCode::from(report.code);
        match self.print(report) {
            Ok(()) => code,
            // Whoever read it has seen enough.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => code,
            Err(e) => self.fail(&Failure::io("writing the result", &e)),
        }
    }

    fn print(&self, report: &Report) -> std::io::Result<()> {
        if report.raw && !report.styled {
            let mut out = std::io::stdout().lock();
            out.write_all(report.text.as_bytes())?;
            return out.flush();
        }
        let mut out = anstream::stdout().lock();
        let is_wanted = !self.quiet || self.json_errors;
        if report.raw {
            out.write_all(report.text.as_bytes())?;
        } else if self.json && is_wanted {
            let form = [&report.compact, &report.pretty][usize::from(self.terminal)];
            writeln!(out, "{form}")?;
        } else if is_wanted && !report.text.is_empty() {
            writeln!(out, "{}", report.text)?;
        }
        out.flush()
    }

    pub(super) fn fail(&self, failure: &Failure) -> ExitCode {
        let whole = completed(failure.clone());
        let text = if self.json_errors {
            as_json(&whole)
        } else {
            as_text(&whole)
        };
        // The exit code tells it even when standard error is closed.
        let _ = writeln!(anstream::stderr(), "{text}");
        ExitCode::from(failure.exit_code())
    }
}

/// Until the other end of `is_done` is gone. What takes a moment shows nothing.
fn show_life(doing: &str, is_done: &std::sync::mpsc::Receiver<()>) {
    if is_done.recv_timeout(PATIENCE) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        return;
    }
    let spinner = indicatif::ProgressBar::new_spinner().with_message(doing.to_owned());
    spinner.enable_steady_tick(std::time::Duration::from_millis(120));
    // An error is the other end's being gone.
    let _ = is_done.recv();
    spinner.finish_and_clear();
}

/// What an error of the system leaves out: a refusal has changed nothing, and after all else
/// `doctor` knows how things stand.
fn completed(mut failure: Failure) -> Failure {
    if failure.state.is_empty() && failure.ending == Ending::Refused {
        failure.state = "nothing was changed or lost".into();
    }
    if failure.next.is_empty() {
        failure.next = "trash doctor".into();
    }
    failure
}

fn as_json(failure: &Failure) -> String {
    serde_json::json!({ "error": failure }).to_string()
}

fn as_text(failure: &Failure) -> String {
    // Names of files are part of it; the line breaks are the message's own.
    let safe = |text: &str| {
        let lines: Vec<_> = text.lines().map(super::text::safe).collect();
        lines.join("\n  ")
    };
    let mut text = format!("{} {}", styled(BAD, "trash:"), safe(&failure.what));
    for (label, line) in [("state", &failure.state), ("next", &failure.next)] {
        if !line.is_empty() {
            // Writing to a String can't fail.
            let _ = write!(text, "\n  {}: {}", styled(FAINT, label), safe(line));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_happened_the_state_and_what_next() {
        let failure = Failure::refused("occupied", "src/a is in the way")
            .state("nothing was changed")
            .next("trash restore abc --swap");
        let json: serde_json::Value = serde_json::from_str(&as_json(&failure)).unwrap();
        assert_eq!(json["error"]["code"], "occupied");
        assert_eq!(json["error"]["next"], "trash restore abc --swap");
        let text = anstream::adapter::strip_str(&as_text(&failure)).to_string();
        assert_eq!(
            text,
            "trash: src/a is in the way\n  state: nothing was changed\n  next: trash restore abc --swap"
        );
    }
}
