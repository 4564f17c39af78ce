//! Devices and people who wait for them, for the tests and the benchmark of the rule who is next.

mod invariants;
mod world;

pub use invariants::Watch;
pub use world::{ForBoth, ServedRequest, Wanted, World, request_for_both, user_of};
