//! `tranche` as people and scripts call it: results, exit codes, messages, files.
#![cfg(feature = "cli")]
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

mod bad_input;
mod build_layout;
mod cdi_cli;
mod cdi_validate;
mod claim_example;
mod claim_verbs;
mod documents;
mod drop_in;
mod list;
mod messages;
mod names;
mod policies;
mod terminal;

use std::process::Command;

/// Runs `tranche` with no environment. Returns the exit code, the results and the messages.
fn tranche(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tranche"))
        .args(arguments)
        .env_clear()
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}
