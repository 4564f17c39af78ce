//! `tranche-web` as a program: from claims that root makes to `tranche history` and `tranche report`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by a panic, and prints what it does"
)]

pub(crate) use tranche_test_support as support;

mod asked;
mod killed;
mod metrics;
mod page;
mod scene;
mod waits;
