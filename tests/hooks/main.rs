//! The hooks of `tranche-oci` as a runtime calls them, and the parts of the library that they are made of.
//!
//! These tests need only `tranche-oci`, so they also run with `--no-default-features`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic, and prints what it does"
)]

pub(crate) use tranche_test_support as support;

mod claims;
mod hostile;
mod ldcache;
#[cfg(target_arch = "x86_64")]
mod loader_cache;
mod oci_binary;
mod prepare;
mod root;
mod verbs;
