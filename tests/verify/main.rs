//! What CUDA gives: the program that asks inside a container, the command that compares, and programs that run in a
//! share without a container.
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

mod container;
mod program;
mod run;
