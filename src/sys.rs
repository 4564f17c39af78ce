//! The only `unsafe`: foreign libraries and system calls that no kept crate wraps.

pub mod arena;
#[cfg(feature = "cli")]
pub mod nursery;
#[cfg(feature = "cli")]
pub mod nvml;
pub mod start;
