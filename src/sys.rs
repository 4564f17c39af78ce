//! The only `unsafe` code: foreign libraries, and system calls that no maintained crate wraps.

pub mod inherited;
#[cfg(feature = "cli")]
pub mod nursery;
#[cfg(feature = "cli")]
pub mod nvml;
