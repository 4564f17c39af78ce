//! A model that tries everything at once: root, seven users, pods and resource claims, with a broker that is
//! killed, disks that are full, and boots. What is answered is compared with an oracle that knows the answers
//! alone.
//!
//! Environment: `TRANCHE_TEST_SEED` begins with another seed, `TRANCHE_TEST_MODEL_SECONDS` says for how long new
//! machines are begun, `TRANCHE_TEST_MODEL_STEPS` how many operations a machine lives through. `make model
//! SECONDS=3600` is the long run.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by a panic, and prints what it does"
)]

pub(crate) use tranche_test_support as support;

mod answers;
mod ask;
mod begin;
mod chance;
mod draw;
mod events;

mod known;
mod life;
mod machine;
mod observed;
mod operation;
mod oracle;
mod request;
mod reserving;
mod rest;
mod run;
mod table;
mod times;
mod weights;
