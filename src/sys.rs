//! The only `unsafe` code: foreign libraries, and system calls that no maintained crate wraps.

#[cfg(feature = "cli")]
pub mod activation;
#[cfg(feature = "cli")]
pub mod descriptor;
pub mod inherited;
#[cfg(feature = "cli")]
pub mod nursery;
#[cfg(feature = "cli")]
pub mod nvml;
