//! NVML, asked in a process of its own.
//!
//! The driver's library is code that runs with tranche's rights, and it talks to a driver that may be stuck. In a child
//! process, a library that hangs costs the time for which it may be silent, and one that crashes costs a warning. What
//! the child reported before stays.
//!
//! In the child: `child` asks what the host has, `usage` asks what its GPUs do now, `convert` maps what nvml-wrapper
//! returns, `pipe` writes the answer, and `confine` keeps the library from changing the machine. In the parent:
//! `process` starts the child and ends it with everything that the library started, `parent` and `report` read the
//! answer. `answer` is its form.

mod answer;
mod child;
mod confine;
mod convert;
mod parent;
mod pipe;
mod process;
mod question;
mod report;
mod usage;
mod waiting;

pub(crate) use answer::{GpuFacts, MigFacts};
pub use child::run_if_asked;
pub use confine::enter as confine;
pub use convert::{compute_mode, meaning, mig_state, virtualization};
pub(crate) use parent::{NvmlChild, start};
pub use pipe::Pipe;
pub use process::NvmlProcess;
pub(crate) use question::NvmlQuestion;
pub(crate) use report::NvmlReport;
#[cfg(fuzzing)]
pub(crate) use report::read_pieces;
pub use usage::{GpuUsage, MemoryUsage, MigUsage, ProcessKind, ProcessUsage};
pub use waiting::{Waiting, in_silence};

/// The first argument of the child. No person would type it.
const CHILD_ARGUMENT: &str = "--nvml-child";
