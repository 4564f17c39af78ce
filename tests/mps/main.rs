//! The stand-in for NVIDIA's MPS programs (examples/fake-mps), compared with the real ones of Debian's component
//! non-free.
//!
//! The control daemon runs without a GPU. The same function runs each situation against a program, and gives a
//! transcript: exit codes, what was printed, files with their modes, lines of the log. Numbers of processes, times and
//! directories are replaced. The transcripts of the fake and of the real program of the same branch must be equal; what
//! differs between branches is data (`tranche_core::mps::version`). What the fake does otherwise on purpose is listed
//! in [`on_purpose`]; nothing else may differ.
//!
//! `make test-real-mps` runs this alone and prints the table. `tests/support/nvidia-packages.sh` fetches the
//! packages. A branch that
//! cannot be fetched is left out by name.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic, and prints what it does"
)]

pub(crate) use tranche_test_support as support;

mod bed;
mod client;
mod commands;
mod compare;
mod on_purpose;
mod raw;
mod situations;
