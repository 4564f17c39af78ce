//! Specifications: what holds for each of them, and what they contain for each test host.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic, and prints what it does"
)]

pub(crate) use tranche_test_support as support;

mod cdi_properties;
mod golden;
mod injection;
mod parity;
mod spellings;
