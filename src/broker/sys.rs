//! The only `unsafe` code of this crate: foreign libraries, and system calls that no maintained crate wraps.

pub mod as_user;
pub mod descriptor;
pub mod peer_process;
