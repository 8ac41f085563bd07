//! Removed directories whose mode is by chance that of a container.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::record::Bytes;
use crate::staging::{EntryDir, TreeName, read_record};

/// The directories of an entry that are no containers although they look so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exceptions(HashSet<(TreeName, PathBuf)>);

#[derive(Serialize, Deserialize)]
struct Line {
    tree: String,
    path: Bytes,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    retracted: bool,
}

impl Exceptions {
    /// The record's file name: one JSON object a line, in the order of what happened.
    pub const NAME: &'static str = "exceptions.jsonl";

    /// An entry's. A line that was cut off by a crash does not count: the removal that it
    /// was written for had not happened yet.
    ///
    /// # Errors
    /// Those of reading a file that exists.
    pub(super) fn read(entry: &EntryDir) -> io::Result<Self> {
        let mut all = Self::default();
        for (_, dir) in entry.parts() {
            for line in read_record(dir, Self::NAME)?
                .unwrap_or_default()
                .split(|b| *b == b'\n')
            {
                all.apply(line);
            }
        }
        Ok(all)
    }

    fn apply(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Line>(line) else {
            return;
        };
        let Ok(tree) = line.tree.parse() else { return };
        let key = (tree, line.path.as_path().to_owned());
        if line.retracted {
            self.0.remove(&key);
        } else {
            self.0.insert(key);
        }
    }

    /// The paths in `tree`.
    pub fn of(&self, tree: TreeName) -> HashSet<PathBuf> {
        self.0
            .iter()
            .filter(|(name, _)| *name == tree)
            .map(|(_, path)| path.clone())
            .collect()
    }

    /// Whether the directory at `path` in `tree` was really removed.
    pub fn contains(&self, tree: TreeName, path: &Path) -> bool {
        !self.0.is_empty() && self.0.contains(&(tree, path.to_owned()))
    }

    /// The line that says so, or takes it back.
    pub fn line(tree: TreeName, path: &Path, retracted: bool) -> String {
        let line = Line {
            tree: tree.to_string(),
            path: path.into(),
            retracted,
        };
        // Serialising strings and a flag can't fail.
        serde_json::to_string(&line).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_and_take_back() {
        let tree: TreeName = "remove-365d-1".parse().unwrap();
        let mut all = Exceptions::default();
        let mut read = |text: &str| {
            text.split('\n').for_each(|line| all.apply(line.as_bytes()));
            all.clone()
        };
        let path = Path::new("a/b");
        let text = Exceptions::line(tree, path, false);
        assert!(read(&text).contains(tree, path));
        assert!(!read(&Exceptions::line(tree, path, true)).contains(tree, path));
        assert!(!read(&text[..text.len() - 4]).contains(tree, path));
    }
}
