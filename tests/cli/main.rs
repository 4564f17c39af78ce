//! `tranche` as people and scripts call it: results, exit codes, messages, files.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic, and prints what it does"
)]

pub(crate) use tranche_test_support as support;

mod advise;
mod bad_input;
mod build_layout;
mod cdi_cli;
mod cdi_inspect;
mod cdi_options;
mod cdi_validate;
mod claim_example;
mod claim_verbs;
mod completions;
mod console_blocks;
mod doctor;
mod documents;
mod drop_in;
mod export;
mod inventories;
mod library_examples;
mod list;
mod memory_of_shares;
mod messages;
mod names;
mod nvidia_keys;
mod pipe_directories;
mod policies;
mod protect;
mod refresh;
mod runtime_configure;
mod support_matrix;
mod system;
mod terminal;
mod troubleshooting;
mod units;
mod user_rules;
mod windows;

use std::process::Command;

/// What a run of a program gave.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

/// `tranche` with these arguments and no environment.
fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
    command.args(arguments).env_clear();
    command
}

fn said(mut command: Command) -> Said {
    let output = command.output().unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs `tranche` with no environment.
fn tranche(arguments: &[&str]) -> Said {
    said(program(arguments))
}
