//! What changed between what is kept and what is there now.

use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use similar::TextDiff;
use trashfs_mount::{Attr, FileKind};

use crate::beneath;
use crate::failure::Failure;
use crate::ids::EntryId;
use crate::record::Bytes;
use crate::replica::{self, Spot};
use crate::seal::into;
use crate::show;
use crate::walk::{Flow, When, walk};
use crate::workspace::Workspace;

/// A longer text is not compared line by line.
const TEXT_MAX_BYTES: u64 = 8 << 20;
/// Bytes of all differences together.
const OUTPUT_MAX_BYTES: usize = 16 << 20;
/// Files of a directory that are compared.
const FILES_MAX: usize = 10_000;
/// After so long a comparison is finished more coarsely.
const PATIENCE: Duration = Duration::from_secs(2);

/// The differences, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The entry.
    pub entry: Option<EntryId>,
    /// Path that was compared.
    pub path: Bytes,
    /// Whether there is no difference.
    pub same: bool,
    /// Unified diff from what is kept to what is there, with a line for what has none.
    pub text: String,
    /// Something was left out because there is too much of it.
    pub cut: bool,
}

/// Compares what an entry keeps of `member` with what is at its path.
///
/// # Errors
/// As [`show::show`].
pub fn diff(ws: &Workspace, entry: &str, member: Option<&Path>) -> Result<Difference, Failure> {
    ws.close_operations();
    let (holding, candidate) = show::find(ws, entry, member)?;
    let what = candidate.path().display().to_string();
    let failed = |e: std::io::Error| Failure::io(&what, &e);
    let base = ws.with_root(|root| beneath::open_dir(root, Path::new("")));
    let mut comparison = Comparison {
        base: base.map_err(|e| failed(e.into()))?,
        done: Difference {
            entry: Some(holding.dir.id.clone()),
            path: candidate.path().into(),
            ..Difference::default()
        },
        files: 0,
    };
    let (dir, name) = candidate
        .at
        .open_parent(&ws.staging)
        .map_err(|e| failed(e.into()))?;
    let spot = Spot {
        dir: dir.as_fd(),
        name,
    };
    if candidate.attr.is_dir() {
        let inner = beneath::open_dir_at(&dir, name).map_err(|e| failed(e.into()))?;
        comparison.tree(&inner, candidate.path()).map_err(failed)?;
    } else {
        comparison
            .file(spot, &candidate.attr, candidate.path())
            .map_err(failed)?;
    }
    comparison.done.same = comparison.done.text.is_empty() && !comparison.done.cut;
    Ok(comparison.done)
}

struct Comparison {
    base: OwnedFd,
    done: Difference,
    files: usize,
}

impl Comparison {
    fn tree(&mut self, root: &OwnedFd, path: &Path) -> std::io::Result<()> {
        walk(root.as_fd(), &mut |step| {
            if step.when != When::Leaf {
                return Ok(into(step));
            }
            if self.files >= FILES_MAX || self.done.text.len() >= OUTPUT_MAX_BYTES {
                self.done.cut = true;
                return Ok(Flow::Stop);
            }
            let spot = Spot {
                dir: step.dir,
                name: step.name,
            };
            self.file(spot, step.attr, &path.join(step.path))?;
            Ok(Flow::Continue)
        })
    }

    fn file(&mut self, kept: Spot<'_>, attr: &Attr, path: &Path) -> std::io::Result<()> {
        self.files += 1;
        let shown = path.display();
        let present = beneath::open_parent(self.base.as_fd(), path)
            .and_then(|(dir, name)| Attr::at(&dir, name).map(|attr| (dir, name, attr)));
        let (dir, name, now) = match present {
            Ok(found) => found,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                self.line(format_args!("Only kept: {shown}"));
                return Ok(());
            }
            Err(e) => return Err(e.into()),
        };
        let present = Spot {
            dir: dir.as_fd(),
            name,
        };
        match (attr.kind(), now.kind()) {
            (FileKind::Regular, FileKind::Regular) => self.content(kept, attr, present, &now, path),
            (a, b) if a == b && replica::same(kept, present)? => Ok(()),
            (a, b) => {
                let (a, b) = (crate::record::Kind::from(a), crate::record::Kind::from(b));
                self.line(format_args!("Differ: {shown} (kept: {a:?}, now: {b:?})"));
                Ok(())
            }
        }
    }

    fn content(
        &mut self,
        kept: Spot<'_>,
        kept_attr: &Attr,
        present: Spot<'_>,
        present_attr: &Attr,
        path: &Path,
    ) -> std::io::Result<()> {
        let shown = path.display();
        let longest = kept_attr.size_bytes.max(present_attr.size_bytes);
        if longest > TEXT_MAX_BYTES {
            if kept_attr.size_bytes != present_attr.size_bytes
                || !replica::same_bytes(kept, present)?
            {
                self.line(format_args!(
                    "Files differ and are too long to compare by lines: {shown}"
                ));
            }
            return Ok(());
        }
        let (old, new) = (bytes_of(kept)?, bytes_of(present)?);
        if old == new {
            return Ok(());
        }
        match (text(&old), text(&new)) {
            (Some(old), Some(new)) => {
                let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old, new);
                let (kept_name, now_name) = (format!("{shown} (kept)"), format!("{shown} (now)"));
                let unified = diff
                    .unified_diff()
                    .header(&kept_name, &now_name)
                    .to_string();
                self.done.text.push_str(&unified);
            }
            _ => self.line(format_args!("Binary files differ: {shown}")),
        }
        Ok(())
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.done.text.push_str(&line.to_string());
        self.done.text.push('\n');
    }
}

/// A file's content; one that grows meanwhile is cut at the bound.
fn bytes_of(spot: Spot<'_>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    replica::open_readable(spot)?
        .take(TEXT_MAX_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::tests::bench::Bench;

    #[test]
    fn text_is_compared_by_lines_and_the_rest_is_named() {
        let bench = Bench::new();
        bench.write("d/f", "one\ntwo\n");
        bench.write("d/gone", "x\n");
        bench.write("d/same", "same\n");
        std::fs::write(bench.path("d/binary"), [0, 1]).unwrap();
        let entry = bench.removed("d");
        bench.write("d/f", "one\n2\n");
        bench.write("d/same", "same\n");
        std::fs::write(bench.path("d/binary"), [0, 2]).unwrap();
        let found = diff(&bench.ws, entry.id.as_str(), None).unwrap();
        assert_eq!(
            found.text,
            "Binary files differ: d/binary\n--- d/f (kept)\n+++ d/f (now)\n@@ -1,2 +1,2 @@\n one\n-two\n+2\nOnly kept: d/gone\n"
        );
        assert!(
            diff(&bench.ws, entry.id.as_str(), Some(Path::new("d/same")))
                .unwrap()
                .same
        );
    }

    #[test]
    fn a_long_file_is_only_said_to_differ() {
        let bench = Bench::new();
        bench.write("f", &"x".repeat(9 << 20));
        let entry = bench.removed("f");
        bench.write("f", &"y".repeat(9 << 20));
        let found = diff(&bench.ws, entry.id.as_str(), None).unwrap();
        assert!(found.text.starts_with("Files differ"), "{}", found.text);
    }

    #[test]
    fn showing_gives_a_descriptor_a_listing_or_a_target() {
        use std::io::Read as _;
        let bench = Bench::new();
        bench.write("d/f", "text f");
        std::os::unix::fs::symlink("f", bench.path("d/link")).unwrap();
        let id = bench.op().remove("d").seal().id;
        let show =
            |member: &str| show::show(&bench.ws, id.as_str(), Some(Path::new(member))).unwrap();
        let mut text = String::new();
        std::fs::File::from(show("d/f").1.unwrap())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "text f");
        assert_eq!(show("d/link").0.target, Some(Bytes::from("f")));
        let (dir, none) = show::show(&bench.ws, id.as_str(), None).unwrap();
        assert_eq!(dir.names, [Bytes::from("f"), Bytes::from("link")]);
        assert!(none.is_none());
        bench.write("a", "text a");
        bench.write("b", "text b");
        let two = bench.op().remove("a").remove("b").seal();
        assert_eq!(
            show::show(&bench.ws, two.id.as_str(), None)
                .unwrap_err()
                .code,
            "which-member"
        );
    }
}
