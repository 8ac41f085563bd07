//! How many links of a file lie in staging: users must not see them counted.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::ids::EntryId;
use crate::seal::into;
use crate::staging::Staging;
use crate::walk::{self, When};

const SHARDS: usize = 16;

/// Device and inode number.
pub(super) type FileId = (u64, u64);

/// Staged links of files that have, or had, more than one.
#[derive(Default)]
pub(super) struct StagedLinks {
    shards: [Mutex<HashMap<FileId, u32>>; SHARDS],
    scanning: AtomicBool,
}

impl StagedLinks {
    fn shard(&self, file: FileId) -> &Mutex<HashMap<FileId, u32>> {
        &self.shards[file.1 as usize % SHARDS]
    }

    pub(super) fn of(&self, file: FileId) -> u32 {
        self.shard(file).lock().get(&file).copied().unwrap_or(0)
    }

    /// Whether there may be any.
    pub(super) fn any(&self) -> bool {
        self.scanning.load(Ordering::Acquire)
            || self.shards.iter().any(|shard| !shard.lock().is_empty())
    }

    pub(super) fn change(&self, file: FileId, by: i32) {
        let mut links = self.shard(file).lock();
        let now = links
            .get(&file)
            .copied()
            .unwrap_or(0)
            .saturating_add_signed(by);
        if now == 0 {
            links.remove(&file);
        } else {
            links.insert(file, now);
        }
    }

    /// Counts the links that earlier runs staged.
    pub(super) fn scan(&self, staging: &Staging, entries: &[EntryId]) {
        for id in entries {
            match staging.entry(id) {
                Ok(Some(entry)) => {
                    for (_, dir) in entry.parts() {
                        self.scan_dir(dir.as_fd(), id);
                    }
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(entry = %id, %error, "staged links not counted"),
            }
        }
    }

    fn scan_dir(&self, dir: std::os::fd::BorrowedFd<'_>, id: &EntryId) {
        let counted = walk::walk(dir, &mut |step| {
            if step.when == When::Leaf && step.attr.nlink > 1 {
                self.change((step.attr.dev, step.attr.ino), 1);
            }
            Ok(into(step))
        });
        if let Err(error) = counted {
            tracing::warn!(entry = %id, %error, "staged links not counted in full");
        }
    }
}

/// Begins [`StagedLinks::scan`] beside other work.
pub(super) fn scan_in_background(
    links: Arc<StagedLinks>,
    staging: Arc<Staging>,
    entries: Vec<EntryId>,
) -> std::io::Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    links.scanning.store(true, Ordering::Release);
    std::thread::Builder::new()
        .name("trashfs-links".into())
        .spawn(move || {
            links.scan(&staging, &entries);
            links.scanning.store(false, Ordering::Release);
        })
        .map(drop)
}
