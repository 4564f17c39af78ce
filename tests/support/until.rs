//! Waiting for what happens soon.

use std::time::{Duration, Instant};

/// Much longer than anything takes that a test waits for: on a busy machine, a process starts in seconds.
const PATIENCE: Duration = Duration::from_secs(100);

/// Waits until `is_so`, and panics with `what` if it does not become so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
