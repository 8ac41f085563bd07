use super::output::{FAINT, styled};
use super::{Context, Report, text};
use crate::control::Request;
use crate::failure::Failure;
use crate::query::{Info, Member};
use crate::record::Entry;

/// Show all about an entry, and its members
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The entry, or the beginning of its id
    pub id: String,
    /// At most so many members
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u32,
    /// Go on where the last page of members ended (its nextCursor)
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

/// Asks for it.
///
/// # Errors
/// `unknown-id`, `ambiguous-id`.
pub(super) fn run(args: Args, context: &Context) -> Result<Report, Failure> {
    let info: Info = context.ask_about(|| Request::Info {
        entry: args.id.clone(),
        cursor: args.cursor.clone(),
        limit: u64::from(args.limit),
    })?;
    Report::new(&info, shown(&info))
}

fn shown(info: &Info) -> String {
    let mut shown = about(&info.entry);
    if info.members.is_empty() {
        return shown;
    }
    let rows: Vec<Vec<String>> = info.members.iter().map(member).collect();
    shown.push_str("\n\n");
    shown.push_str(&text::table(&["MODE", "SIZE", "TREE", "MEMBER"], &rows));
    if let Some(cursor) = &info.next_cursor {
        shown.push_str(&format!("\nthere are more: --cursor {cursor}"));
    }
    shown
}

fn member(member: &Member) -> Vec<String> {
    vec![
        format!("{:04o}", member.mode),
        member.bytes.map_or_else(|| kind(member.kind), text::size),
        styled(FAINT, &member.tree),
        text::path(&member.path),
    ]
}

fn kind(kind: crate::record::Kind) -> String {
    format!("{kind:?}").to_lowercase()
}

/// All about an entry, one thing a line.
pub(super) fn about(entry: &Entry) -> String {
    let causes: Vec<_> = entry.causes.iter().map(|c| c.as_str()).collect();
    let unknown = || "?".to_owned();
    let named = |text: &Option<String>| text.as_deref().map_or_else(unknown, text::safe);
    let mut fields = vec![
        ("id", entry.id.to_string()),
        ("path", text::what(entry)),
        ("state", entry.state.as_str().to_owned()),
        ("cause", causes.join(", ")),
        ("when", text::local_time(entry.removed_at)),
        ("command", named(&entry.command)),
        ("agent", named(&entry.agent)),
        ("session", named(&entry.session)),
        ("process", entry.pid.to_string()),
        ("members", entry.members.to_string()),
        ("size", text::size(entry.bytes)),
        ("kept", kept(entry)),
        ("workspace", text::path(&entry.workspace)),
    ];
    if let Some(failed) = &entry.failed {
        fields.push(("failed", text::safe(&failed.reason)));
    }
    text::fields(&fields)
}

fn kept(entry: &Entry) -> String {
    let until = match entry.hold {
        true => "until the hold is taken off".to_owned(),
        false => format!("until {}", text::local_time(entry.retain_until)),
    };
    let place = if entry.resident {
        "resident"
    } else {
        "not resident"
    };
    format!("{}, {until} ({place})", entry.keep.as_str())
}
