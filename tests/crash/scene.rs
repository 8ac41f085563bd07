//! Files that are about to be destroyed, and the check that none of them is lost.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::snapshot::Facts;
use crate::common::{Snapshot, Station, Workspace, tree};

/// A station with a workspace mounted from a backing beside it.
pub(crate) struct Scene {
    pub(crate) station: Arc<Station>,
    pub(crate) source: PathBuf,
    pub(crate) mounted: PathBuf,
}

impl Scene {
    pub(crate) fn new(station: Arc<Station>) -> Self {
        let (source, mounted) = (station.dir("source"), station.dir("mounted"));
        Self {
            station,
            source,
            mounted,
        }
    }

    /// Mounts, as after a restart.
    #[track_caller]
    pub(crate) fn mount(&self) -> Workspace {
        self.station.mount_with(&self.mounted, |command| {
            command.arg("--source").arg(&self.source);
        })
    }

    /// All files outside staging, through the mount.
    pub(crate) fn visible(&self) -> Snapshot {
        Snapshot::of(&self.mounted)
    }

    /// All captured files, by their paths in staging below the tree's name.
    pub(crate) fn staged(&self) -> Vec<(PathBuf, Facts)> {
        let ops = self.source.join(".trashfs/ops");
        let mut found = Vec::new();
        for (path, facts) in Snapshot::of(&ops).into_files() {
            // <entry>/<tree>/<path in the workspace>
            let mut parts = path.components();
            let (Some(_), Some(tree)) = (parts.next(), parts.next()) else {
                continue;
            };
            if tree.as_os_str().to_string_lossy().contains('-')
                && !parts.as_path().as_os_str().is_empty()
            {
                found.push((parts.as_path().to_owned(), facts));
            }
        }
        found
    }

    /// The listed entries, from a mount that has recovered; hashing goes on in the background.
    #[track_caller]
    pub(crate) fn entries(ws: &Workspace) -> BTreeMap<String, serde_json::Value> {
        let entries = ws.list(&["--all"]);
        entries
            .into_iter()
            .map(|mut entry| {
                entry.as_object_mut().unwrap().remove("hashed");
                (entry["id"].as_str().unwrap().to_owned(), entry)
            })
            .collect()
    }

    /// Each file of `before` is where it was or among the captured ones, exactly.
    pub(crate) fn lost(&self, before: &Snapshot) -> Vec<PathBuf> {
        let (visible, staged) = (self.visible(), self.staged());
        before
            .files()
            .filter(|(_, facts)| !facts.is_directory())
            .filter(|(path, facts)| {
                let there = visible.get(path).is_some_and(|now| now.same_file_as(facts));
                // Under another name where it had been moved.
                let kept = staged.iter().any(|(_, now)| now.same_file_as(facts));
                let moved = visible.files().any(|(_, now)| now.same_file_as(facts));
                !there && !kept && !moved
            })
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// What is lost once a fresh mount has recovered.
    #[track_caller]
    pub(crate) fn lost_after_mount(&self, before: &Snapshot) -> Vec<PathBuf> {
        let ws = self.mount();
        let lost = self.lost(before);
        ws.unmount();
        lost
    }

    /// Entries in staging with captured files and no readable `op.json`.
    pub(crate) fn anonymous(&self) -> Vec<PathBuf> {
        let ops = self.source.join(".trashfs/ops");
        let entries = std::fs::read_dir(ops)
            .unwrap()
            .map(|item| item.unwrap().path());
        let readable = |dir: &PathBuf| {
            let text = std::fs::read(dir.join("op.json")).unwrap_or_default();
            serde_json::from_slice::<trashfs::record::OpRecord>(&text).is_ok()
        };
        let captured = |dir: &PathBuf| {
            let mut names = std::fs::read_dir(dir).unwrap().map(|item| item.unwrap());
            names.any(|item| item.file_type().unwrap().is_dir())
        };
        entries
            .filter(|dir| captured(dir) && !readable(dir))
            .collect()
    }

    /// Demands the whole invariant: nothing lost, entries listed and staged are the same, every
    /// entry restores, and a second recovery finds nothing to do.
    #[track_caller]
    pub(crate) fn assert_whole(&self, before: &Snapshot, what: &str) {
        let ws = self.mount();
        let entries = Self::entries(&ws);
        let lost = self.lost(before);
        assert!(lost.is_empty(), "{what}: lost {lost:?}");
        self.assert_listed_is_staged(&entries, what);
        let ws = ws.remount();
        assert_eq!(
            entries,
            Self::entries(&ws),
            "{what}: recovery twice differs from once"
        );
        let copies = self.station.dir("copies");
        for id in entries.keys() {
            Self::assert_restores(&ws, id, &copies.join(id), what);
        }
        std::fs::remove_dir_all(&copies).unwrap();
        let lost = self.lost(before);
        assert!(lost.is_empty(), "{what}: lost after restoring {lost:?}");
        ws.unmount();
    }

    /// The entry copies out; one whose restore was interrupted is finished first, and that twice.
    #[track_caller]
    fn assert_restores(ws: &Workspace, id: &str, to: &Path, what: &str) {
        let kept = || ws.list(&["--all"]).iter().any(|entry| entry["id"] == *id);
        if !kept() {
            // It went back together with another of the same operation.
            return;
        }
        std::fs::create_dir_all(to).unwrap();
        let restore = ["restore", id, "--to", to.to_str().unwrap()];
        let answer = ws.trash(restore);
        if answer.code == 0 {
            return;
        }
        assert_eq!(answer.code, 2, "{what}: {answer:?}");
        answer.says(&format!("trash recover {id}"));
        let recovered = ws.trash(["recover", id]);
        assert_eq!(recovered.code, 0, "{what}: {recovered:?}");
        ws.trash(["recover", id]);
        if kept() {
            ws.trash(restore).ok();
        }
    }

    #[track_caller]
    fn assert_listed_is_staged(&self, entries: &BTreeMap<String, serde_json::Value>, what: &str) {
        for item in std::fs::read_dir(self.source.join(".trashfs/ops")).unwrap() {
            let id = item.unwrap().file_name().into_string().unwrap();
            assert!(
                entries.contains_key(&id),
                "{what}: {id} is staged but not listed"
            );
        }
        for (id, entry) in entries {
            let staged = self.source.join(".trashfs/ops").join(id).exists();
            assert_eq!(
                staged,
                entry["resident"] == true,
                "{what}: {id} is listed as {entry:#}"
            );
        }
    }
}

/// Files of their own content, mode and times that the workloads destroy.
pub(crate) fn victims(dir: &Path) -> Snapshot {
    std::fs::create_dir_all(dir.join("gone/below")).unwrap();
    for name in [
        "gone/a",
        "gone/b",
        "gone/below/c",
        "over",
        "next",
        "cut",
        "single",
        "link1",
        "put",
    ] {
        std::fs::write(dir.join(name), format!("content of {name}\n").repeat(40)).unwrap();
    }
    std::fs::hard_link(dir.join("link1"), dir.join("link2")).unwrap();
    std::os::unix::fs::symlink("single", dir.join("symlink")).unwrap();
    tree::mark(&dir.join("gone/a"));
    tree::mark(&dir.join("over"));
    Snapshot::of(dir).without(&[".trashfs"])
}
