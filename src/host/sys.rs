//! The only `unsafe` code of this crate: system calls that no maintained crate wraps.

pub mod nursery;
