//! The device plugin and the driver before a kubelet, a broker and an API server that are made by the tests.
//!
//! A test changes one of them, and waits until the other sides show what must follow.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by a panic, and prints what it measures"
)]

mod admission;
mod allocation;
mod bed;
mod claims;
mod cluster;
mod dra;
mod driver;
mod driver_node;
mod fake_api;
mod fake_broker;
mod fake_kubelet;
mod health;
mod manifests;
mod many;
#[path = "../support/offers.rs"]
mod offers;
mod process;
mod ready;
mod recorded;
mod registration;
mod reservations;
