//! An image that means harm, against every hook of the real program: whatever it does, the host outside its root is as
//! it was (content, metadata, mounts), nothing of the host is inside it, the hook ends soon, and what it says is lines
//! of its own. And other hostile input: to the claim hooks, to the ledger, and to commands that root runs.
//!
//! Each attack is an idea ([`trial::Attack`]) that is tried in variations: with each hook, with the kernel's `openat2`
//! and without. Each must catch a naive program (examples/naive-hook), and must notice one that does nothing.

#![allow(clippy::unwrap_used, clippy::panic)]

pub(crate) use tranche_test_support as support;

mod actors;
mod acts;
mod bundles;
mod claims;
mod conduct;
mod containers;
mod control;
mod environment;
mod file_systems;
mod furnish;
mod kinds;
mod known;
mod library;
mod limits;
mod links;
mod mounts;
mod names;
mod precreate;
mod propagation;
mod races;
mod reads;
mod restored;
mod run;
mod served;
mod shim;
mod shim_ended;
mod shim_exec;
mod shim_files;
mod shim_host;
mod shim_images;
mod shim_killed;
mod shim_requests;
mod shim_starts;
mod sizes;
mod specs;
mod stage;
mod subject;
mod trial;
mod verb;

/// Whether a test that needs mounts can run; says so if not.
fn can_mount(test: &str) -> bool {
    support::rights::can_mount(&format!("attacks::{test}"))
}

/// Whether a test that needs more than a user namespace gives can run; says so if not.
fn owns_machine(test: &str) -> bool {
    support::rights::owns_machine(&format!("attacks::{test}"))
}
