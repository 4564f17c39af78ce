//! NVML, asked in a process of its own.
//!
//! The driver's library runs its maker's code with our rights and our address space, and talks to a driver that may be
//! stuck. In a child with a pipe, a hang costs the time that it may be silent and a crash costs a line; what the child had
//! told before stays.
//!
//! `child` is the process that asks, `answer` is what goes through the pipe, `process` starts the child and ends it with
//! all that the library started, `parent` reads what it says.

mod answer;
mod child;
mod parent;
mod process;
mod waiting;

pub(crate) use answer::{Facts, GpuFacts, MigFacts};
pub use child::run_if_asked;
#[cfg(fuzzing)]
pub(crate) use parent::read_pieces;
pub(crate) use parent::{Asked, Report, start};
pub use waiting::{Waiting, in_silence};

/// First argument of the child. Nothing that a person would type.
const CHILD_ARGUMENT: &str = "--nvml-child";
