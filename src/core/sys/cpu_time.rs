//! What a process says before its limit of processor time ends it.
//!
//! The kernel sends SIGXCPU at the soft limit, at any instruction (getrlimit(2), `RLIMIT_CPU`). So the texts are made
//! before, and the handler uses system calls alone (signal-safety(7)).

#![allow(unsafe_code)]

use nix::libc;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A line that is appended to a file.
#[derive(Debug)]
pub struct LineOfFile {
    /// The directory of the file.
    pub directory: OwnedFd,
    /// The name of the file, which is made if it is missing, for its owner alone.
    pub name: CString,
    /// What is appended.
    pub line: Vec<u8>,
}

/// What is said.
#[derive(Debug)]
pub struct LastWords {
    /// A line for standard error.
    pub line: Vec<u8>,
    /// A line that is kept.
    pub kept: Option<LineOfFile>,
    /// The exit code of the process.
    pub code: u8,
}

static WORDS: AtomicPtr<LastWords> = AtomicPtr::new(null_mut());

/// Says `words` when this process reaches its soft limit of processor time, and ends it. Each call replaces the words
/// of the one before, which are never freed: the handler may be reading them. A process calls this a few times.
pub fn at_limit(words: LastWords) {
    WORDS.store(Box::into_raw(Box::new(words)), Ordering::Release);
    // SAFETY: all fields are numbers or null pointers, for which zero is a value: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = end as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the action is a function of this type, which is safe in a signal handler. The sets are local.
    unsafe {
        libc::sigaction(libc::SIGXCPU, &raw const action, null_mut());
        // The starter may have blocked the signal; the kernel then kills at the hard limit without a word.
        let mut signal: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signal);
        libc::sigaddset(&raw mut signal, libc::SIGXCPU);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signal, null_mut());
    }
}

extern "C" fn end(_: libc::c_int) {
    // SAFETY: what was stored is never freed or changed. System calls on descriptors that it owns, on C strings and on
    // slices; a file that is opened is not closed, because the process ends.
    unsafe {
        let Some(words) = WORDS.load(Ordering::Acquire).as_ref() else {
            libc::_exit(1)
        };
        libc::write(2, words.line.as_ptr().cast(), words.line.len());
        if let Some(kept) = &words.kept {
            let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_NONBLOCK;
            let file = libc::openat(kept.directory.as_raw_fd(), kept.name.as_ptr(), flags, 0o600);
            if file >= 0 {
                libc::write(file, kept.line.as_ptr().cast(), kept.line.len());
            }
        }
        libc::_exit(i32::from(words.code))
    }
}
