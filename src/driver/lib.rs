//! The program that loads NVIDIA's libraries: `tranche-driver`.
//!
//! The driver's library is code that runs with tranche's rights, and it talks to a driver that may be stuck. In a
//! program of its own, a library that hangs costs the time for which it may be silent, and one that crashes costs a
//! warning. What was answered before stays. The program opens no socket, writes no file, and makes no device node.
//! [`tranche_driver_protocol`] says how it is asked.

mod clocks;
mod convert;
mod inventory;
mod machine;
mod mig;
mod pipe;
mod questions;
mod serve;
mod sys;
mod turns;
mod usage;
mod work;

pub use serve::run;
