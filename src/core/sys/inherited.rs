//! What a process was started with, before Rust's runtime changed it.
//!
//! Rust ignores SIGPIPE and opens `/dev/null` for a closed standard stream before `main` begins, and parts of this
//! crate block signals. A program that replaces itself with another one undoes that, so that the other program starts
//! as if it had been started directly.

#![allow(unsafe_code)]

use nix::libc;
use nix::sys::signal::SigSet;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
/// A bit for each of the descriptors 0 to 2 that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

static BLOCKED: OnceLock<SigSet> = OnceLock::new();

/// The C library calls the functions of this section before `main`, and so before Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

extern "C" fn record() {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the pointer is valid for a write, and a null pointer for the new action changes nothing.
    let is_read = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), action.as_mut_ptr()) } == 0;
    // SAFETY: the call that succeeded filled the structure.
    let is_ignored = is_read && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN;
    PIPE_IGNORED.store(is_ignored, Ordering::Relaxed);
    if let Ok(blocked) = SigSet::thread_get_mask() {
        let _ = BLOCKED.set(blocked);
    }
    for descriptor in 0..3 {
        // SAFETY: asks about a number, which need not be a descriptor.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0 {
            CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
}

/// Whether the standard stream `descriptor` was closed. It leads to `/dev/null` now.
pub fn was_closed(descriptor: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << descriptor) != 0
}

/// Restores how SIGPIPE is handled and which signals are blocked, and closes the standard streams that were closed.
/// Nothing is printed after this.
pub fn restore() {
    let action = match PIPE_IGNORED.load(Ordering::Relaxed) {
        true => libc::SIG_IGN,
        false => libc::SIG_DFL,
    };
    // SAFETY: neither action calls a function of this program.
    unsafe { libc::signal(libc::SIGPIPE, action) };
    if let Some(blocked) = BLOCKED.get() {
        // A set that was read before can be set again.
        let _ = blocked.thread_set_mask();
    }
    let closed = CLOSED.load(Ordering::Relaxed);
    for descriptor in (0..3).filter(|descriptor| closed & (1 << descriptor) != 0) {
        // SAFETY: nothing else owns this number: it was free when the program began, and Rust's runtime opened it.
        unsafe { libc::close(descriptor) };
    }
}
