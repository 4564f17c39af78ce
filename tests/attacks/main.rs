//! An image that means harm, against every hook of the real program: whatever it does, the host outside its root is as it
//! was (content, metadata, mounts), the hook ends soon, and what it says is lines of its own.
//!
//! Every attack is tried with the kernel's `openat2` and, in a process that has lost it, with the walk of `O_PATH`
//! handles. How many there were is said at the end of each test.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../support/engines.rs"]
mod bed;
#[path = "../support/ld_so_cache.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod ld_so_cache;
#[path = "../support/old_kernel.rs"]
mod old_kernel;
#[path = "../support/scene.rs"]
mod scene;
#[path = "../support/skip.rs"]
mod skip;
#[path = "../support/stub_elf.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod stub_elf;

mod bundles;
mod control;
mod engines;
mod environment;
mod kinds;
mod known;
mod links;
mod mounts;
mod names;
mod races;
mod sizes;
mod stage;
mod tally;
mod verb;

use tally::Tally;

/// Runs `attacks` with each way of resolving paths, at the same time, and says how many there were.
fn both_ways(test: &str, attacks: impl Fn(&mut Tally, &str) + Sync) {
    let mut all = Tally::default();
    let walked = std::thread::scope(|threads| {
        let walk = threads.spawn(|| {
            old_kernel::lose_openat2();
            let mut tally = Tally::default();
            attacks(&mut tally, "without openat2");
            tally
        });
        attacks(&mut all, "with openat2");
        walk.join()
    });
    all.add(walked.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    all.finish(test);
}
