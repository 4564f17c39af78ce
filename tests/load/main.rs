//! `tranche-load` with a fake CUDA library that behaves like a GPU in time: what it prints, what it measures of a GPU
//! that several processes share, and how it ends.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic, and prints what it does"
)]

pub(crate) use tranche_test_support as support;
pub(crate) use tranche_test_support::verify_program;

mod cheats;
mod ends;
mod kernels;
mod machine;
mod refused;
mod roles;
mod shared;
