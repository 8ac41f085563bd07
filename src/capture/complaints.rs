//! Saying that something was refused, without flooding the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use trashfs_mount::Victim;

use crate::clock;

const PAUSE: Duration = Duration::from_millis(100);

/// At most ten refusals a second are logged; the others are counted.
#[derive(Default)]
pub(super) struct Complaints {
    last_ns: AtomicU64,
    unsaid: AtomicU64,
}

impl Complaints {
    /// What `victim` is stays in place because its capture failed.
    pub(super) fn refused(&self, victim: &Victim<'_>, errno: Errno) {
        let now_ns = u64::try_from(clock::now().0).unwrap_or(0);
        let last_ns = self.last_ns.load(Ordering::Relaxed);
        if now_ns.abs_diff(last_ns) < u64::try_from(PAUSE.as_nanos()).unwrap_or(u64::MAX) {
            self.unsaid.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.last_ns.store(now_ns, Ordering::Relaxed);
        let unsaid = self.unsaid.swap(0, Ordering::Relaxed);
        let path = victim.dir.path.path().unwrap_or_default().join(victim.name);
        tracing::warn!(path = %path.display(), error = %errno, unsaid,
            "refused: what would be destroyed could not be captured, it stays in place");
    }
}
