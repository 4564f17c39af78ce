//! What programs say to `tranche-driver`, and what it answers.
//!
//! The program is started with the driver's library as its argument. It reads questions from standard input, one on a
//! line, and writes lines to standard output: first its version, then for each question what it finds out, with signs
//! of life while the library works, and [`Line::End`]. It ends when standard input ends.

mod answer;
mod clocks;
mod machine;
mod question;
mod turns;
mod usage;

pub use answer::{DriverFacts, GpuFacts, Line, MAX_GPUS, MAX_MIG_DEVICES, MigFacts, NvmlStep};
pub use clocks::{GpuClocks, Slowed};
pub use machine::{MachineAnswer, MachineQuestion, NvmlFailure};
pub use question::Question;
pub use turns::{CudaResult, TURNS, TurnsAnswer, TurnsFailure, TurnsLine, TurnsQuestion};
pub use usage::{GpuMemory, GpuUsage, MemoryUsage, MigUsage, ProcessKind, ProcessUsage};

/// The name of the program.
pub const PROGRAM: &str = "tranche-driver";
