//! `tranche-runtime` as an engine calls it, with a low-level runtime that records how it was started.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

pub(crate) use tranche_test_support as support;

mod configs;
mod create;
mod gone;
mod holders;
mod locks;
mod nvidia_hook;
mod pass;
mod place;
mod precreate;
mod restore;
mod rootless;
mod waiting;
