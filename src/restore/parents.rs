//! Directories that are gone and have to be there again: with the attributes that they had, as
//! far as some entry still knows them.

use std::path::Path;

use trashfs_mount::Attr;

use crate::failure::Failure;
use crate::ids::EntryId;
use crate::journal::Filter;
use crate::restore::staged::{Candidate, Holding};
use crate::workspace::Workspace;

/// Pages of the journal that are searched for one directory.
const PAGES_MAX: usize = 20;
const PAGE: u32 = 100;

/// The newest removed directory that was at `path`: from the entries at hand, else from any.
pub(crate) fn removed_directory(
    ws: &Workspace,
    holdings: &[Holding],
    path: &Path,
) -> Result<Option<(crate::restore::staged::StagedPath, Attr)>, Failure> {
    let own = holdings
        .iter()
        .filter_map(|h| newest_in(h, path))
        .max_by_key(Candidate::age_key);
    if let Some(found) = own {
        return Ok(Some((found.at, found.attr)));
    }
    let mut filter = Filter {
        all: true,
        limit: PAGE,
        ..Filter::default()
    };
    for _ in 0..PAGES_MAX {
        let page = ws.journal.list(&filter)?;
        for entry in page.entries {
            if let Some(found) = search(ws, &entry.id, path) {
                return Ok(Some((found.at, found.attr)));
            }
        }
        match page.next_cursor {
            Some(cursor) => filter.cursor = Some(cursor),
            None => break,
        }
    }
    Ok(None)
}

/// An entry that can't be read only costs the attributes.
fn search(ws: &Workspace, id: &EntryId, path: &Path) -> Option<Candidate> {
    let holding = Holding::open(&ws.staging, id).ok()?;
    newest_in(&holding, path)
}

fn newest_in(holding: &Holding, path: &Path) -> Option<Candidate> {
    let found = holding.exactly_at(path).ok()?;
    found
        .into_iter()
        .filter(|c| c.attr.is_dir())
        .max_by_key(Candidate::age_key)
}
