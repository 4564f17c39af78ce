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

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/verify_program.rs"]
mod verify_program;

mod container;
mod program;
mod run;
