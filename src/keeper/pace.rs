//! When background work may go on: it makes way for the workspace.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Quiet time after a capture before background reading goes on.
const QUIET: Duration = Duration::from_secs(2);
/// However busy the workspace is, a bit of work is done this often.
const PATIENCE: Duration = Duration::from_secs(30);

/// Shared by the keeper, which reports captures, and the hasher, which waits.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Mutex<Option<Instant>>,
    stopped: AtomicBool,
    changed: Condvar,
}

impl Pace {
    /// Something was captured.
    pub(super) fn busy(&self) {
        *self.last.lock() = Some(Instant::now());
    }

    /// Ends every wait, and the work with it.
    pub(super) fn stop(&self) {
        let _last = self.last.lock();
        self.stopped.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Returns when the workspace has been quiet for a moment, or after a while anyway.
    ///
    /// # Errors
    /// `Interrupted` once stopped.
    pub(super) fn wait_for_quiet(&self) -> io::Result<()> {
        let begun = Instant::now();
        let mut last = self.last.lock();
        loop {
            if self.is_stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let quiet_at = last
                .map_or(begun, |last| last + QUIET)
                .min(begun + PATIENCE);
            if Instant::now() >= quiet_at {
                return Ok(());
            }
            self.changed.wait_until(&mut last, quiet_at);
        }
    }
}
