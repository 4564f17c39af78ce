//! CLOCK_MONOTONIC, in nanoseconds.
//!
//! The system calls are made directly: glibc had the functions in another library (librt) before 2.17.

use super::c;
use core::ffi::c_long;

#[cfg(target_arch = "x86_64")]
const GET: c_long = 228;
#[cfg(target_arch = "x86_64")]
const SLEEP: c_long = 230;
#[cfg(target_arch = "aarch64")]
const GET: c_long = 113;
#[cfg(target_arch = "aarch64")]
const SLEEP: c_long = 115;

const MONOTONIC: c_long = 1;
/// `TIMER_ABSTIME`.
const ABSOLUTE: c_long = 1;
const SECOND: u64 = 1_000_000_000;

/// `struct timespec` of a machine with 64 bits.
#[repr(C)]
struct Time {
    seconds: i64,
    nanoseconds: i64,
}

/// The time now.
pub fn now() -> u64 {
    let mut time = Time {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: `clock_gettime(clockid_t, struct timespec *)`, which writes into the structure.
    unsafe { c::syscall(GET, MONOTONIC, &raw mut time) };
    time.seconds.unsigned_abs() * SECOND + time.nanoseconds.unsigned_abs()
}

/// Sleeps until this time. A time in the past returns at once.
pub fn sleep_until(time: u64) {
    let end = Time {
        seconds: (time / SECOND).cast_signed(),
        nanoseconds: (time % SECOND).cast_signed(),
    };
    while now() < time {
        let nothing = core::ptr::null_mut::<Time>();
        // SAFETY: `clock_nanosleep(clockid_t, int, const struct timespec *, struct timespec *)`; the last may be null.
        unsafe { c::syscall(SLEEP, MONOTONIC, ABSOLUTE, &raw const end, nothing) };
    }
}
