//! A kernel without `openat2`, made of the one that is here.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::collections::BTreeMap;

use nix::errno::Errno;
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// From here on the calling thread, and every process that it starts, gets `ENOSYS` for `openat2`, as on Linux before
/// 5.6 and under old container runtimes. There is no way back, so call it in a thread of its own.
///
/// The program under test has no switch for this: what is tried is what happens.
pub(crate) fn lose_openat2() {
    let filter = SeccompFilter::new(
        BTreeMap::from([(libc::SYS_openat2, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(Errno::ENOSYS as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    apply_filter(&program).unwrap();
    assert!(!has_openat2());
}

/// Whether `openat2` works in the calling thread.
pub(crate) fn has_openat2() -> bool {
    use nix::fcntl::{OFlag, OpenHow, openat2};
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC);
    openat2(nix::fcntl::AT_FDCWD, ".", how).is_ok()
}
