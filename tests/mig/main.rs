//! Layouts of MIG with a fake library of the driver that follows the tables of real products.
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
mod changes;
mod clients;
mod failing_disks;
mod killed;
mod killed_on_demand;
mod modes;
mod on_demand;
mod parted;
mod policy;
mod products;
mod refused;
mod resource_claims;
