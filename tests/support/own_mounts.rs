//! A mount namespace for one thread.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Runs `test` in a thread with mounts of its own, which end with it.
pub(crate) fn with_own_mounts(test: impl FnOnce() + Send) -> std::thread::Result<()> {
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            test();
        });
        thread.join()
    })
}
