//! NVML, asked in a process of its own.
//!
//! The driver's library is code that runs with tranche's rights, and it talks to a driver that may be stuck. In a child
//! process, a library that hangs costs the time for which it may be silent, and one that crashes costs a warning. What
//! the child reported before stays.
//!
//! `child` is the process that asks, `convert` maps what nvml-wrapper returns, `answer` is what goes through the pipe,
//! `process` starts the child and ends it with everything that the library started, `parent` reads the answer.

mod answer;
mod child;
mod convert;
mod parent;
mod process;
mod waiting;

pub(crate) use answer::{GpuFacts, MigFacts};
pub use child::run_if_asked;
#[cfg(fuzzing)]
pub(crate) use parent::read_pieces;
pub(crate) use parent::{NvmlChild, NvmlReport, start};
pub use waiting::{Waiting, in_silence};

/// First argument of the child. Nothing that a person would type.
const CHILD_ARGUMENT: &str = "--nvml-child";
