//! `tranche broker` as hooks and users meet it: a process of root, and two users without any right.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic, and prints what it does"
)]

pub(crate) use tranche_test_support as support;

mod access;
mod acts;
mod chance;
mod children;
mod clock;
mod cluster_policy;
mod commands;
mod ended;
mod entries;
mod failing_disks;
mod flipped_bits;
mod idle;
mod killed;
mod kubernetes;
mod last_policy;
mod limits;
mod lives;
mod names;
mod one_order;
mod podman;
mod process;
mod programs;
mod reserved;
mod resource_claims;
mod root_waits;
mod scene;
mod subordinate;
mod turns;
mod upgrade;
mod users;
mod waiting;
