//! Words, figures and tables for people.

use std::time::Duration;

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::output::{ACCENT, FAINT, HEADING, WARNING, styled};
use crate::clock::{self, UnixNanos};
use crate::record::{Bytes, Cause, Entry, Kind};

/// Characters of an id that tables show; a prefix that is unique is enough everywhere.
const ID_SHOWN: usize = 8;

/// `text` with what could move a terminal's cursor or forge a line shown as an escape.
pub(super) fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Marks that change the order or the look of what stands around them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// A path or argument for people.
pub(super) fn path(bytes: &Bytes) -> String {
    match bytes.as_bytes() {
        b"" => ".".to_owned(),
        _ => safe(&bytes.display()),
    }
}

/// The beginning of an id, as tables show it.
pub(super) fn id(id: impl std::fmt::Display) -> String {
    let full = id.to_string();
    styled(ACCENT, &full[..ID_SHOWN.min(full.len())])
}

/// `1 entry`, `2 entries`.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Bytes with a binary unit.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// How long ago, in the largest fitting unit.
pub(super) fn ago(time: UnixNanos) -> String {
    let secs = clock::now().since(time).as_secs();
    match secs {
        0..60 => format!("{secs} s ago"),
        60..3_600 => format!("{} min ago", secs / 60),
        3_600..86_400 => format!("{} h ago", secs / 3_600),
        _ => format!("{} d ago", secs / 86_400),
    }
}

/// How much longer.
pub(super) fn left(until: UnixNanos) -> String {
    let left = until.since(clock::now());
    match left.as_secs() {
        0 => "over".to_owned(),
        1..3_600 => format!("{} min", left.as_secs().div_ceil(60)),
        3_600..172_800 => format!("{} h", left.as_secs().div_ceil(3_600)),
        secs => format!("{} d", secs.div_ceil(86_400)),
    }
}

/// A point in time in the local time zone.
pub(super) fn local_time(time: UnixNanos) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time.0))
        .map(|t| {
            t.to_zoned(jiff::tz::TimeZone::system())
                .strftime("%Y-%m-%d %H:%M:%S %Z")
                .to_string()
        })
        .unwrap_or_else(|_| time.to_rfc3339())
}

/// A time as typed: `2h` (so long ago) or RFC 3339.
///
/// # Errors
/// What was expected.
pub(super) fn parse_since(text: &str) -> Result<UnixNanos, String> {
    if let Ok(back) = crate::policy::parse_duration(text) {
        return Ok(before_now(back));
    }
    text.parse::<jiff::Timestamp>()
        .ok()
        .and_then(|t| i64::try_from(t.as_nanosecond()).ok())
        .map(UnixNanos)
        .ok_or_else(|| {
            "a time is how long ago, as in 2h or 7d, or RFC 3339, as in 2026-05-01T10:00:00Z"
                .to_owned()
        })
}

fn before_now(back: Duration) -> UnixNanos {
    let back = i64::try_from(back.as_nanos()).unwrap_or(i64::MAX);
    UnixNanos(clock::now().0.saturating_sub(back))
}

/// Columns of text under headings. The last column is as wide as it is.
pub(super) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let plain_width = |cell: &str| anstream::adapter::strip_str(cell).to_string().width();
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            let cells = rows.iter().map(|row| plain_width(&row[column]));
            cells.max().unwrap_or(0).max(headings[column].width())
        })
        .collect();
    let line = |cells: &[String]| {
        let mut line = String::new();
        for (column, cell) in cells.iter().enumerate() {
            line.push_str(cell);
            if column + 1 < cells.len() {
                let gap = widths[column].saturating_sub(plain_width(cell)) + 2;
                line.extend(std::iter::repeat_n(' ', gap));
            }
        }
        line
    };
    let heading: Vec<String> = headings.iter().map(|h| styled(HEADING, h)).collect();
    let mut lines = vec![line(&heading)];
    lines.extend(rows.iter().map(|row| line(row)));
    lines.join("\n")
}

/// Names and values, one a line.
pub(super) fn fields(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = pairs.iter().map(|(name, value)| {
        let name = styled(FAINT, format_args!("{name:width$}"));
        format!("{name}  {value}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// `text` cut to `width` columns.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        if out.width() + 2 > width {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// What an entry is about: its path, and what marks it.
pub(super) fn what(entry: &Entry) -> String {
    let mut text = path(&entry.path);
    if entry.kind == Kind::Directory || entry.roots_total > 1 {
        text.push('/');
    }
    if entry.roots_total > 1 {
        let roots = styled(FAINT, format_args!("({})", roots(entry)));
        text = format!("{text} {roots}");
    }
    for (mark, style) in marks(entry) {
        text = format!("{text} {}", styled(style, format_args!("[{mark}]")));
    }
    text
}

/// The first roots of several, by their paths below the directory that they have in common.
fn roots(entry: &Entry) -> String {
    const NAMED: usize = 3;
    let common = entry.path.as_path();
    let names = entry.roots.iter().take(NAMED).map(|root| {
        let path = root.path.as_path();
        let name = path.strip_prefix(common).unwrap_or(path);
        cut(&safe(&name.to_string_lossy()), 24)
    });
    let names = names.collect::<Vec<_>>().join(", ");
    match entry.roots_total {
        n if n > NAMED as u64 => format!("{n} roots: {names}, …"),
        _ => names,
    }
}

fn marks(entry: &Entry) -> Vec<(String, Style)> {
    use crate::journal::State;
    let mut marks = Vec::new();
    if !matches!(
        entry.state,
        State::Sealed | State::Trashed | State::Released
    ) {
        marks.push((entry.state.as_str().to_owned(), FAINT));
    }
    for cause in &entry.causes {
        if *cause != Cause::Remove {
            marks.push((cause.to_string(), FAINT));
        }
    }
    if entry.hold {
        marks.push(("held".to_owned(), WARNING));
    }
    if entry.failed.is_some() {
        marks.push(("failed".to_owned(), WARNING));
    }
    marks
}

/// Who it was: the agent, or the command.
pub(super) fn by(entry: &Entry) -> String {
    let command = entry.command.as_deref().unwrap_or_default();
    let who = match (&entry.agent, command) {
        (Some(agent), "") => agent.clone(),
        (Some(agent), command) => format!("{agent}: {command}"),
        (None, "") => entry
            .made_by
            .as_ref()
            .map_or_else(|| "?".to_owned(), |verb| format!("trash {verb}")),
        (None, command) => command.to_owned(),
    };
    safe(&who)
}

/// Entries, newest first, as `list` and `pending` show them.
pub(super) fn entries(entries: &[Entry]) -> String {
    let rows: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            vec![
                id(&entry.id),
                ago(entry.removed_at),
                size(entry.bytes),
                entry.members.to_string(),
                left(entry.retain_until),
                what(entry),
                cut(&by(entry), 48),
            ]
        })
        .collect();
    table(
        &["ID", "WHEN", "SIZE", "MEMBERS", "KEPT", "PATH", "BY"],
        &rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
        assert_eq!(count(1, "entry", "entries"), "1 entry");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }

    #[test]
    fn a_name_can_not_move_the_cursor() {
        assert_eq!(safe("a\x1b[2Jb\nc\u{202e}"), r"a\u{1b}[2Jb\nc\u{202e}");
        assert_eq!(safe("naïve 文件"), "naïve 文件");
    }

    #[test]
    fn times_are_ago_or_rfc3339() {
        let hour = parse_since("1h").unwrap();
        assert_eq!(clock::now().since(hour).as_secs(), 3600);
        assert_eq!(
            parse_since("1970-01-01T00:00:01Z"),
            Ok(UnixNanos(1_000_000_000))
        );
        assert!(parse_since("yesterday").is_err());
    }

    #[test]
    fn a_table_lines_up_whatever_the_colour() {
        let rows = vec![
            vec![styled(ACCENT, "a"), "文件".into(), "x".into()],
            vec!["bbb".into(), "c".into(), "y".into()],
        ];
        let text = anstream::adapter::strip_str(&table(&["I", "N", "L"], &rows)).to_string();
        assert_eq!(text, "I    N     L\na    文件  x\nbbb  c     y");
    }
}
