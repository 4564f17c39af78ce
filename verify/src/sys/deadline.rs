//! The end of a program whose time is over.

use super::{Stream, c, write_all};
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicPtr, Ordering};

const SIGALRM: c_int = 14;
/// What is being asked, as a C string; null before the first question.
static STEP: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());
static LAST: AtomicPtr<Last> = AtomicPtr::new(core::ptr::null_mut());

/// The last words: the name of the current step stands between `before` and `after`.
pub struct Last {
    /// Where they are written.
    pub stream: Stream,
    /// What is written before the step.
    pub before: &'static [u8],
    /// What is written after the step.
    pub after: &'static [u8],
}

/// Ends the program with exit code 1 and these last words, if it still runs after `seconds`, because a call of CUDA
/// that does not return cannot be interrupted. 0 takes that back.
pub fn end_after(seconds: u32, last: &'static Last) {
    LAST.store((&raw const *last).cast_mut(), Ordering::Relaxed);
    // SAFETY: the handler calls only functions that may be called in one (signal-safety(7)).
    unsafe {
        c::signal(SIGALRM, late);
        c::alarm(seconds);
    }
}

/// Says what is being asked from now on.
pub fn step(name: &'static CStr) {
    STEP.store(name.as_ptr().cast_mut(), Ordering::Relaxed);
}

/// Handles SIGALRM.
extern "C" fn late(_: c_int) {
    let step = STEP.load(Ordering::Relaxed);
    let step = match step.is_null() {
        true => c"the program",
        // SAFETY: only `step` stores here, and what it stores lives as long as the program.
        false => unsafe { CStr::from_ptr(step) },
    };
    // SAFETY: only `end_after` stores here, before the signal can come, and what it stores lives as long as the
    // program.
    let last = unsafe { LAST.load(Ordering::Relaxed).as_ref() };
    if let Some(last) = last {
        let _ = [last.before, step.to_bytes(), last.after]
            .into_iter()
            .all(|part| write_all(last.stream, part));
    }
    // SAFETY: _exit has no preconditions.
    unsafe { c::_exit(1) }
}
