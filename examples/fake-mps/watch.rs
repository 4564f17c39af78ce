//! Descriptors that are watched by one other, as the real daemon watches its clients: what it polls itself is what it
//! listens on, one descriptor of this kind, and the connection that sends commands.

#![allow(
    unsafe_code,
    reason = "system calls that nix has behind a feature that nothing else needs"
)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A descriptor that can be read when one of `all` can.
pub(crate) fn of(all: &[&OwnedFd]) -> OwnedFd {
    // SAFETY: a call on a number.
    let number = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(number >= 0, "epoll_create1");
    // SAFETY: the kernel has just made it, and nothing else owns it.
    let watch = unsafe { OwnedFd::from_raw_fd(number) };
    for one in all {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: u64::try_from(one.as_raw_fd()).unwrap_or_default(),
        };
        // SAFETY: both descriptors are open, and the structure is valid.
        unsafe { libc::epoll_ctl(number, libc::EPOLL_CTL_ADD, one.as_raw_fd(), &raw mut event) };
    }
    watch
}

/// Which of them can be read now.
pub(crate) fn ready(watch: &OwnedFd) -> Vec<i32> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    // SAFETY: the kernel writes at most 64 structures.
    let count = unsafe { libc::epoll_wait(watch.as_raw_fd(), events.as_mut_ptr(), 64, 0) };
    let count = usize::try_from(count).unwrap_or_default();
    let numbers = events.iter().take(count).map(|event| event.u64);
    numbers.filter_map(|number| i32::try_from(number).ok()).collect()
}
