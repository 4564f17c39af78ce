//! `tranche bench` on a fake host, whose GPU computes in time: with real processes, the real broker, and the stand-ins
//! for NVIDIA's libraries and for the daemon of MPS.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic, and prints what it does"
)]

mod bed;
mod ends;
mod kept;
mod layouts;
mod left;
mod observe;
mod runs;
mod sweep;
mod turn_try;

pub(crate) use tranche_test_support as support;
pub(crate) use tranche_test_support::verify_program;
