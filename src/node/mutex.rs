//! Locks of values that each change leaves complete.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, also after a panic of another thread that held it.
///
/// Only for values that no panic leaves half changed: a change is one step, or agrees with a journal after each step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
