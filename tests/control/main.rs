//! What changes a GPU or an MPS daemon, with fake programs and a fake library of the driver.
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
mod cgroups;
mod cgroups_killed;
mod driver;
mod faults;
mod inputs;
mod pipes;
mod real;
mod recovery;
mod removal;
mod slices;
mod starts;
mod turns_driver;
mod turns_wishes;
mod verbs;
