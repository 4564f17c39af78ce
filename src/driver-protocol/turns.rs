//! Questions about a process that suspends work on GPUs and resumes it (`cuCheckpointProcess…`, CUDA's driver API).
//!
//! `tranche-driver turns LIBRARY` answers them, with the host's `libcuda.so.1`. It is a process of its own: the one
//! that answers other questions is killed when it is silent for too long.

use serde::{Deserialize, Serialize};
use std::fmt;
use tranche_core::process_identity::ProcessIdentity;
use tranche_plan::turns::change::CudaState;

/// The first argument of the program.
pub const TURNS: &str = "turns";

/// What is asked, or done. Each answer is a [`TurnsAnswer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TurnsQuestion {
    /// The version of CUDA that the library has.
    Version,
    /// The state of a process.
    State(ProcessIdentity),
    /// Let its calls wait, as soon as the work that it has submitted is done.
    Lock {
        /// The process.
        process: ProcessIdentity,
        /// For how long that is waited for; it runs on afterwards.
        timeout_ms: u32,
    },
    /// Copy the memory of a locked process to host memory, and free the GPU.
    Checkpoint(ProcessIdentity),
    /// Copy it back. The process stays locked.
    Restore(ProcessIdentity),
    /// Let its calls go on.
    Unlock(ProcessIdentity),
}

/// The first line that the program writes is [`TurnsLine::Hello`]. Then it writes one line for each question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TurnsLine {
    /// The version of the program.
    Hello(String),
    /// An answer.
    Answer(TurnsAnswer),
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TurnsAnswer {
    /// 1000 × major + 10 × minor.
    Version(i32),
    /// The state of the process.
    State(CudaState),
    /// The process has no context: it does not use CUDA, or only NVML.
    NoContext,
    /// It was done.
    Done,
    /// It was not.
    Failed(TurnsFailure),
}

/// Why it was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum TurnsFailure {
    /// The process has ended, before the call or within it. Another one may have its number.
    #[error("process {} has ended", .0.pid)]
    Ended(ProcessIdentity),
    /// The library cannot be loaded, or its file is not one that root alone can change.
    #[error("{0}")]
    Library(String),
    /// The library lacks a function.
    #[error("the driver's libcuda.so.1 lacks {0}: turns need driver 570 or newer")]
    Missing(String),
    /// A call failed.
    #[error("{call}: {result}")]
    Refused {
        /// The function.
        call: String,
        /// What it returned.
        result: CudaResult,
    },
    /// A state that this program does not know.
    #[error("the driver reports state {0}, which this version of tranche does not know")]
    UnknownState(i32),
    /// The program was killed by another one, or by the kernel for want of memory, and what it did is not known.
    #[error("the process that suspends and resumes work was killed")]
    Killed,
    /// The program gave no answer, or could not be asked.
    #[error("{0}")]
    NoAnswer(String),
}

/// What a function of CUDA's driver API returned: a number of `CUresult` (cuda.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CudaResult(pub i32);

impl CudaResult {
    /// The result of a lock whose timeout has passed (CUDA's driver API, `cuCheckpointProcessLock`).
    pub const NOT_READY: Self = Self(600);
    /// Too little memory is free on the GPU.
    pub const OUT_OF_MEMORY: Self = Self(2);
    /// What follows a restore that failed, for ever (cuda-checkpoint issue 44).
    pub const OPERATING_SYSTEM: Self = Self(304);
    /// The process is not in the state that the call needs.
    pub const ILLEGAL_STATE: Self = Self(401);
    /// The driver or the GPU cannot do it.
    pub const NOT_SUPPORTED: Self = Self(801);

    /// Its name in cuda.h, without `CUDA_ERROR_`; `None` for one that is not expected of these functions.
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "INVALID_VALUE",
            2 => "OUT_OF_MEMORY",
            3 => "NOT_INITIALIZED",
            4 => "DEINITIALIZED",
            34 => "STUB_LIBRARY",
            46 => "DEVICE_UNAVAILABLE",
            100 => "NO_DEVICE",
            101 => "INVALID_DEVICE",
            201 => "INVALID_CONTEXT",
            304 => "OPERATING_SYSTEM",
            400 => "INVALID_HANDLE",
            401 => "ILLEGAL_STATE",
            500 => "NOT_FOUND",
            600 => "NOT_READY",
            700 => "ILLEGAL_ADDRESS",
            719 => "LAUNCH_FAILED",
            800 => "NOT_PERMITTED",
            801 => "NOT_SUPPORTED",
            802 => "SYSTEM_NOT_READY",
            803 => "SYSTEM_DRIVER_MISMATCH",
            999 => "UNKNOWN",
            _ => return None,
        })
    }
}

impl fmt::Display for CudaResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} {name}", self.0),
            None => write!(f, "CUresult {}", self.0),
        }
    }
}
