//! The message that people get while NVML takes its time.

use super::answer::NvmlStep;
use std::fmt;
use std::time::Duration;

/// From here on it is told that we wait, and again after each further second.
pub(super) const FIRST: Duration = Duration::from_secs(2);

/// That we wait for NVML, and for what.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    /// For what; `None` before the process that asks has said anything.
    pub(super) step: Option<NvmlStep>,
    /// How long we have waited in all.
    pub(super) elapsed: Duration,
    /// How long NVML may be silent before it is ended.
    pub(super) limit: Duration,
    /// Whether this is told for the first time.
    pub is_first: bool,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Fewer than 80 characters: this is written over itself on a terminal.
        f.write_str("waiting for NVML")?;
        match self.step {
            None | Some(NvmlStep::Load) => f.write_str(" to be loaded")?,
            // Without persistence mode the driver starts every GPU now, which takes seconds for each.
            Some(NvmlStep::Init) => f.write_str(" to start the GPUs")?,
            Some(NvmlStep::Driver) => f.write_str(" to describe the driver")?,
            Some(NvmlStep::Gpu(index)) => write!(f, " to describe gpu {index}")?,
        }
        let (elapsed, limit) = (self.elapsed.as_secs(), self.limit.as_secs_f32());
        write!(f, ": {elapsed} s (gives up after {limit} s of silence)")
    }
}

/// Tells nobody.
pub fn in_silence(_: Option<Waiting>) {}
