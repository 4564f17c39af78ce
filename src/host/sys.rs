//! The only `unsafe` code of this crate: foreign libraries, and system calls that no maintained crate wraps.

pub mod nursery;
pub mod nvml;
pub mod nvml_mig;
