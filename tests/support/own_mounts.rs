//! A mount namespace for one thread.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Gives this thread, and the threads and processes that it starts, mounts of its own: it sees none that another
/// program of the machine makes or removes from now on. `/proc/thread-self/mountinfo` lists them.
pub fn enter() {
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
}

/// Runs `test` in a thread with mounts of its own, which end with it.
pub fn with_own_mounts(test: impl FnOnce() + Send) -> std::thread::Result<()> {
    std::thread::scope(|threads| {
        let thread = threads.spawn(|| {
            enter();
            test();
        });
        thread.join()
    })
}
