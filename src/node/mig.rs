//! Layouts of MIG on this machine.

mod handles;

pub use handles::{NodeUser, users_of};
