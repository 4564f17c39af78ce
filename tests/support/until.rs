//! Waiting for what happens soon, and what programs print of their waiting.

use std::time::{Duration, Instant};

/// Much longer than anything takes that a test waits for: on a busy machine, a process starts in seconds.
const PATIENCE: Duration = Duration::from_secs(100);

/// Waits until `is_so`, and panics with `what` if it does not become so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The seconds that a program says it waited for a share. On a busy machine, this may be more than what it was given.
pub fn seconds_waited(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("; waited ")?;
    rest.split_once(" s for it")?.0.parse().ok()
}
