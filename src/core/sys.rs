//! The only `unsafe` code of this crate: foreign libraries, and system calls that no maintained crate wraps.

pub mod child;
pub mod cpu_time;
pub mod inherited;
pub mod terminal;
