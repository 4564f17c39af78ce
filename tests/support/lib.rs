//! What tests, benchmarks and examples share. It contains nothing of tranche, so that the tests inside a crate can use
//! it.
#![allow(clippy::new_without_default, reason = "what starts a process has no default")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::path::Path;

/// The directory of the repository.
pub const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// As [`TOP`].
pub fn top() -> &'static Path {
    Path::new(TOP)
}

pub mod bless;
pub mod changing;
pub mod cuda_client;
pub mod engines;
pub mod facts_of_spec;
pub mod failing_disk;
pub mod fake_host;
pub mod fake_library;
pub mod fake_mps;
pub mod fake_turns;
pub mod glibc_image;
pub mod init;
pub mod installed;
pub mod ld_so_cache;
pub mod manifest;
pub mod measured;
pub mod nvidia_packages;
pub mod old_kernel;
pub mod on_host;
pub mod openmetrics;
pub mod other_clock;
pub mod own_mounts;
pub mod parity;
pub mod programs;
pub mod queue;
pub mod rights;
pub mod sample;
pub mod scene;
pub mod session;
pub mod skip;
pub mod state_files;
pub mod strict_json;
pub mod stub_elf;
pub mod test_cgroup;
pub mod typist;
pub mod until;
pub mod verify_program;

pub use until::{seconds_waited, until};
