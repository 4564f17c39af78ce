//! Turns on a device: sees who wants it, and keeps those away from it who do not have it. Whose turn it is says
//! `tranche_plan::turns`.
//!
//! | module | what it does |
//! |---|---|
//! | [`wishes`] | sees the calls of suspended processes |
//! | [`filter`] | keeps the processes of a cgroup from opening a device |

pub mod filter;
mod sys;
pub mod wishes;

#[cfg(test)]
use tranche_test_support::{fake_turns, own_mounts, rights, skip, test_cgroup};
