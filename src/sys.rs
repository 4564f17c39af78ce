//! The only `unsafe`: foreign libraries and system calls that no kept crate wraps.

#[cfg(feature = "cli")]
pub mod nursery;
#[cfg(feature = "cli")]
pub mod nvml;
