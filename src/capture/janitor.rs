//! The thread that closes operations when their commands have ended. It sleeps while none is
//! open.

use std::io;
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};

use super::Capture;

/// Wakes the janitor.
#[derive(Default)]
pub(super) struct Bell {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Default)]
struct State {
    ringing: bool,
    over: bool,
}

impl Bell {
    /// An operation was opened.
    pub(super) fn ring(&self) {
        self.state.lock().ringing = true;
        self.rung.notify_one();
    }

    /// There will be no more.
    pub(super) fn end(&self) {
        self.state.lock().over = true;
        self.rung.notify_one();
    }

    /// Waits until it rings; false when it is over.
    fn heard(&self) -> bool {
        let mut state = self.state.lock();
        while !state.ringing && !state.over {
            self.rung.wait(&mut state);
        }
        state.ringing = false;
        !state.over
    }

    /// Waits for `duration`; false when it is over.
    fn sleep(&self, duration: std::time::Duration) -> bool {
        let until = std::time::Instant::now() + duration;
        let mut state = self.state.lock();
        while !state.over && !self.rung.wait_until(&mut state, until).timed_out() {}
        !state.over
    }
}

/// Starts the janitor of `capture`.
pub(super) fn start(capture: &Arc<Capture>, bell: Arc<Bell>) -> io::Result<()> {
    let capture = Arc::downgrade(capture);
    std::thread::Builder::new()
        .name("trashfs-janitor".into())
        .spawn(move || {
            while bell.heard() {
                while let Some(pause) = tick(&capture) {
                    if !bell.sleep(pause) {
                        return;
                    }
                }
            }
        })
        .map(drop)
}

fn tick(capture: &Weak<Capture>) -> Option<std::time::Duration> {
    capture.upgrade()?.tick()
}
