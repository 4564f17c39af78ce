//! The only `unsafe` code of this crate: system calls that no crate of this program wraps.

pub(crate) mod bpf;
pub(crate) mod ring;
