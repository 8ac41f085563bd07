//! Finding and listing entries.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::failure::Failure;
use crate::ids::is_id_prefix;
use crate::journal::rows::{PASSING_BIT, bit, unreadable};
use crate::journal::schema::failure;
use crate::journal::{Filter, Page};
use crate::record::{Cause, Entry};

/// Candidates that an ambiguous prefix names.
const CANDIDATES_SHOWN: usize = 10;
const ROWS_DEFAULT: u32 = 20;
const ROWS_MAX: u32 = 100;

pub(super) fn unknown(prefix: &str) -> Failure {
    Failure::failed("unknown-id", format!("there is no entry {prefix}"))
        .state("nothing was changed")
        .next("trash list --all")
}

fn query(db: &Connection, sql: &str, values: &[Value]) -> Result<Vec<Entry>, Failure> {
    let mut statement = db.prepare_cached(sql).map_err(|e| failure(&e))?;
    let rows = statement
        .query_map(params_from_iter(values), |row| row.get::<_, String>(0))
        .map_err(|e| failure(&e))?;
    rows.map(|row| {
        let text = row.map_err(|e| failure(&e))?;
        serde_json::from_str(&text).map_err(|e| unreadable(&e))
    })
    .collect()
}

/// Every entry that `condition` (SQL over the table's columns) selects, in the order it gives.
pub(super) fn all(
    db: &Connection,
    condition: &str,
    values: &[Value],
) -> Result<Vec<Entry>, Failure> {
    query(
        db,
        &format!("SELECT record FROM entries WHERE {condition}"),
        values,
    )
}

/// The entry whose id begins with `prefix`.
pub(super) fn find(db: &Connection, prefix: &str) -> Result<Entry, Failure> {
    let prefix = prefix.trim().to_ascii_lowercase();
    if !is_id_prefix(&prefix) {
        return Err(unknown(&format!("{prefix:?}")));
    }
    // '~' sorts behind every character of an id.
    let range = [
        Value::from(prefix.clone()),
        Value::from(format!("{prefix}~")),
    ];
    let mut found = all(db, "id >= ?1 AND id < ?2 ORDER BY id LIMIT 11", &range)?;
    match (found.len(), found.pop()) {
        (0, _) | (_, None) => Err(unknown(&prefix)),
        (1, Some(only)) => Ok(only),
        (_, Some(last)) => {
            found.push(last);
            Err(ambiguous(&prefix, &found))
        }
    }
}

fn ambiguous(prefix: &str, found: &[Entry]) -> Failure {
    let mut names: Vec<String> = found
        .iter()
        .take(CANDIDATES_SHOWN)
        .map(|e| format!("{} ({})", e.id, e.path.display()))
        .collect();
    if found.len() > CANDIDATES_SHOWN {
        names.push("…".into());
    }
    Failure::failed(
        "ambiguous-id",
        format!("{prefix} begins several ids: {}", names.join(", ")),
    )
    .state("nothing was changed")
    .next("type more of the id")
}

/// Conditions with their values, joined by AND.
struct Conditions {
    sql: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    fn add(&mut self, sql: &str, values: impl IntoIterator<Item = Value>) {
        self.sql.push(sql.to_owned());
        self.values.extend(values);
    }

    fn of(filter: &Filter) -> Result<Self, Failure> {
        let mut made = Self {
            sql: Vec::new(),
            values: Vec::new(),
        };
        if !filter.ended {
            made.add("ended = 0", []);
        }
        if filter.pending {
            made.add("pending = 1", []);
        }
        if let Some(cause) = filter.cause {
            made.add("causes & ? != 0", [bit(cause).into()]);
        } else if !filter.all && !filter.pending && filter.path.is_none() {
            // What has no root yet is still open: it may become a removal.
            made.add(
                "(causes = 0 OR causes & ? = ?)",
                [
                    (bit(Cause::Remove) | PASSING_BIT).into(),
                    bit(Cause::Remove).into(),
                ],
            );
        }
        if let Some(agent) = &filter.agent {
            made.add("agent = ?", [agent.clone().into()]);
        }
        if let Some(session) = &filter.session {
            made.add("session = ?", [session.clone().into()]);
        }
        if let Some(since) = filter.since {
            made.add("removed_at >= ?", [since.0.into()]);
        }
        if let Some(path) = &filter.path {
            made.path(path);
        }
        if let Some(cursor) = &filter.cursor {
            let (at, id) = read_cursor(cursor)?;
            made.add("(removed_at, id) < (?, ?)", [at.into(), id.into()]);
        }
        Ok(made)
    }

    /// Literal text of a root, or something below a root; those whose roots are not all in the
    /// row are left to the caller.
    fn path(&mut self, path: &str) {
        let text = path.strip_prefix("./").unwrap_or(path);
        let mut sql = "(cut = 1 OR instr(paths, ?) > 0".to_owned();
        self.values.push(text.as_bytes().to_vec().into());
        for above in Path::new(text.trim_end_matches('/')).ancestors() {
            if above.as_os_str().is_empty() {
                break;
            }
            sql.push_str(" OR instr(paths, ?) > 0");
            let whole = format!("\0{}\0", above.display());
            self.values.push(whole.into_bytes().into());
        }
        sql.push(')');
        self.sql.push(sql);
    }
}

/// Newest first; `check` has the last word on each entry.
pub(super) fn list(
    db: &Connection,
    filter: &Filter,
    check: &mut dyn FnMut(&Entry) -> Result<bool, Failure>,
) -> Result<Page, Failure> {
    let wanted = match filter.limit {
        0 => ROWS_DEFAULT,
        n => n.min(ROWS_MAX),
    } as usize;
    let mut filter = filter.clone();
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let conditions = Conditions::of(&filter)?;
        let mut clause = conditions.sql.join(" AND ");
        if clause.is_empty() {
            clause.push_str("1 = 1");
        }
        clause.push_str(&format!(
            " ORDER BY removed_at DESC, id DESC LIMIT {}",
            wanted + 1
        ));
        let found = all(db, &clause, &conditions.values)?;
        let more = found.len() > wanted;
        filter.cursor = found.last().map(cursor_after);
        for entry in found {
            if check(&entry)? {
                entries.push(entry);
            }
        }
        if entries.len() > wanted {
            entries.truncate(wanted);
            let next_cursor = entries.last().map(cursor_after);
            return Ok(Page {
                entries,
                next_cursor,
            });
        }
        if !more {
            return Ok(Page {
                entries,
                next_cursor: None,
            });
        }
    }
}

fn cursor_after(entry: &Entry) -> String {
    let plain = format!("{}:{}", entry.removed_at.0, entry.id);
    data_encoding::BASE64URL_NOPAD.encode(plain.as_bytes())
}

fn read_cursor(cursor: &str) -> Result<(i64, String), Failure> {
    data_encoding::BASE64URL_NOPAD
        .decode(cursor.as_bytes())
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| {
            let (at, id) = text.split_once(':')?;
            Some((at.parse().ok()?, id.to_owned()))
        })
        .ok_or_else(|| {
            Failure::failed("cursor", format!("{cursor:?} is no cursor of a list"))
                .state("nothing was changed")
                .next("trash list without --cursor")
        })
}
