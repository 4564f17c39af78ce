//! Containers under real engines: podman with crun and runc, as root and rootless, and the two runtimes alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic, and prints what it does"
)]

pub(crate) use tranche_test_support as support;

mod apptainer;
mod as_installed;
mod buildah;
mod cdi_names;
mod compose;
mod docker_rootless;
mod equal_shares;
mod generated;
mod handwritten;
mod images;
mod incus;
mod loader_engines;
mod mig;
mod mps;
mod quadlet;
mod real_mps;
mod removal;
mod requests;
mod rootless_shares;
mod runtime;
mod shares;
mod turns;
mod user_namespaces;
