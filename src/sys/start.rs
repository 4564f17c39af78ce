//! The beginning of a program, in place of the one in Rust's library.
//!
//! That one reads /proc/self/maps to find the end of the stack, and installs a handler with a stack of its own, so that it can
//! print a line when the stack overflows. This takes as long as a tenth of all that a hook does. Without it a stack overflow
//! still ends the program: the kernel keeps the page below the stack empty and sends SIGSEGV. Everything else that Rust's
//! library does before `main` (library/std/src/sys/pal/unix/mod.rs, `init`) is done here.

#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::libc;

/// Makes `$main` the first function of the program: it takes the arguments, the program's name first, and gives the exit
/// code. What it prints through a buffer it must flush. The program's file needs `#![no_main]`.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        /// What the C library calls.
        #[allow(unsafe_code, reason = "the only way to be the program's first function")]
        #[unsafe(no_mangle)]
        extern "C" fn main(count: std::ffi::c_int, words: *const *const std::ffi::c_char) -> std::ffi::c_int {
            // SAFETY: these are the values that the C library gives to `main`.
            unsafe { $crate::sys::start::run(count, words, $main) }
        }
    };
}

/// Runs `main` with these arguments of the process.
///
/// # Safety
/// `words` must be `count` pointers to strings that end with a zero byte and stay for as long as the process.
pub unsafe fn run(count: c_int, words: *const *const c_char, main: fn(Vec<OsString>) -> u8) -> c_int {
    open_standard_files();
    // SAFETY: ignoring a signal runs no code. A write to a pipe that nobody reads is then an error like any other.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the caller promises that there are so many pointers, each to such a string.
    let word = |number: usize| unsafe { CStr::from_ptr(*words.add(number)) };
    let arguments = (0..count).map(|number| OsStr::from_bytes(word(number).to_bytes()).to_owned());
    c_int::from(main(arguments.collect()))
}

/// Opens /dev/null in place of a standard file that is closed. Otherwise the next file that is opened, one of an image for
/// example, would get its number, and lines of error would be written into it.
fn open_standard_files() {
    for number in 0..3 {
        // SAFETY: asks about a number and touches no memory.
        let is_closed = unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 && Errno::last() == Errno::EBADF;
        // SAFETY: the path is a string that ends with a zero byte. The lowest free number is this one.
        if is_closed && unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) } == -1 {
            std::process::abort();
        }
    }
}
