//! A kernel without `openat2`, made of the one that is here.

use std::collections::BTreeMap;

use nix::errno::Errno;
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// From here on the calling thread, and every process that it starts, gets `ENOSYS` for `openat2`, as on Linux before
/// 5.6 and under old container runtimes. There is no way back, so call it in a thread of its own.
///
/// The program under test has no switch for this: what is tried is what happens.
pub fn lose_openat2() {
    lose(libc::SYS_openat2);
    assert!(!has_openat2());
}

/// The same for `statx`, as before Linux 4.11. Without it the kernel says in /proc alone which mount a handle is on.
pub fn lose_statx() {
    lose(libc::SYS_statx);
}

/// The same for `pidfd_getfd`, as before Linux 5.6 and under engines that forbid it.
pub fn lose_pidfd_getfd() {
    lose(libc::SYS_pidfd_getfd);
}

fn lose(call: libc::c_long) {
    let filter = SeccompFilter::new(
        BTreeMap::from([(call, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(Errno::ENOSYS as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&program).unwrap();
}

/// Whether `openat2` works in the calling thread.
pub fn has_openat2() -> bool {
    use nix::fcntl::{OFlag, OpenHow, openat2};
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC);
    openat2(nix::fcntl::AT_FDCWD, ".", how).is_ok()
}
