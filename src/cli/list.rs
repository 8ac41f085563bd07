use std::path::PathBuf;

use super::{Context, Report, text};
use crate::clock::UnixNanos;
use crate::control::{self, Request};
use crate::failure::Failure;
use crate::journal::{Filter, Page};
use crate::record::{Cause, Entry};
use crate::station::{self, Located};

/// List what is kept, newest first
///
/// Shows what was removed; overwritten versions come with --path, --cause or --all.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  trash list --since 2h\n  trash list --path src/main.rs")]
pub struct Args {
    /// Only entries with this text in a path (an absolute path, or one that begins with a dot,
    /// is taken by where it is)
    #[arg(long, value_name = "TEXT")]
    pub path: Option<PathBuf>,
    /// Only what this agent did
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Only what was done in this session (see trash run)
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Only what was removed, replaced or truncated
    #[arg(long, value_parser = super::cause_parser())]
    pub cause: Option<Cause>,
    /// Not older than this: 2h, 7d, or an RFC 3339 time
    #[arg(long, value_name = "TIME", value_parser = text::parse_since)]
    pub since: Option<UnixNanos>,
    /// Overwritten versions, too
    #[arg(long)]
    pub all: bool,
    /// Also what was restored, has expired or was given up
    #[arg(long)]
    pub ended: bool,
    /// Only what is unfinished
    #[arg(long)]
    pub pending: bool,
    /// In all workspaces of this station, and what trash put removed outside of any
    #[arg(long, conflicts_with_all = ["cursor", "workspace"])]
    pub everywhere: bool,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub limit: u32,
    /// Go on where the last page ended (its nextCursor)
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

/// Asks for a page and shows it.
///
/// # Errors
/// When the journal can't be read.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    if args.everywhere {
        return everywhere(args, context);
    }
    let located = context.located()?;
    let filter = args.filter(context, &located)?;
    let page: Page = control::call_for(&located, Request::List(filter))?;
    Report::new(&page, shown(&page, &located))
}

impl Args {
    fn filter(self, context: &Context, located: &Located) -> Result<Filter, Failure> {
        let path = self
            .path
            .as_deref()
            .map(|typed| context.member(located, typed))
            .transpose()?;
        Ok(self.filter_of(path))
    }

    fn filter_of(self, path: Option<PathBuf>) -> Filter {
        let path = path.map(|path| path.to_string_lossy().into_owned());
        Filter {
            all: self.all || path.is_some() || self.cause.is_some(),
            path,
            agent: self.agent,
            session: self.session,
            cause: self.cause,
            since: self.since,
            ended: self.ended,
            pending: self.pending,
            limit: self.limit,
            cursor: self.cursor,
        }
    }
}

/// The newest of all workspaces that can be asked.
fn everywhere(mut args: Args, context: &Context) -> Result<Report, Failure> {
    let path = args.path.take();
    let filter = args.filter_of(path);
    let mut entries = Vec::new();
    for located in station::all()? {
        match control::call_for::<Page>(&located, Request::List(filter.clone())) {
            Ok(page) => entries.extend(page.entries),
            Err(failure) => context.output.note(&format!("trash: {failure}")),
        }
    }
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.removed_at));
    entries.truncate(filter.limit as usize);
    let page = Page {
        entries,
        next_cursor: None,
    };
    let shown = match page.entries.is_empty() {
        true => "nothing of this kind is kept on this station".to_owned(),
        false => text::entries(&with_whole_paths(&page.entries)),
    };
    Report::new(&page, shown)
}

fn with_whole_paths(entries: &[Entry]) -> Vec<Entry> {
    let whole = |entry: &Entry| Entry {
        path: entry.workspace.as_path().join(entry.path.as_path()).into(),
        ..entry.clone()
    };
    entries.iter().map(whole).collect()
}

fn shown(page: &Page, located: &Located) -> String {
    if page.entries.is_empty() {
        let place = text::safe(&located.path().to_string_lossy());
        return format!("nothing of this kind is kept in {place}");
    }
    let mut shown = text::entries(&page.entries);
    if let Some(cursor) = &page.next_cursor {
        shown.push_str(&format!("\nthere are more: --cursor {cursor}"));
    }
    shown
}
