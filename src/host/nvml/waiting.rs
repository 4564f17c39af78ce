//! The message for people while NVML does not answer.

use std::fmt;
use std::time::Duration;
use tranche_driver_protocol::NvmlStep;

/// When the first message appears. The others follow each second.
pub(super) const FIRST: Duration = Duration::from_secs(2);

/// What NVML is being waited for.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    /// The step; `None` before the child has written anything.
    pub(super) step: Option<NvmlStep>,
    /// How long the discovery has waited in total.
    pub(super) elapsed: Duration,
    /// How long NVML may be silent before its process is killed.
    pub(super) limit: Duration,
    /// Whether this is the first message.
    pub is_first: bool,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Shorter than 80 characters, because each message overwrites the last one on a terminal.
        f.write_str("waiting for NVML")?;
        match self.step {
            None | Some(NvmlStep::Load) => f.write_str(" to be loaded")?,
            // Without persistence mode, the driver starts every GPU now, which takes seconds for each.
            Some(NvmlStep::Init) => f.write_str(" to start the GPUs")?,
            Some(NvmlStep::Driver) => f.write_str(" to describe the driver")?,
            Some(NvmlStep::Gpu(index)) => write!(f, " to describe gpu {index}")?,
        }
        let (elapsed, limit) = (self.elapsed.as_secs(), self.limit.as_secs_f32());
        write!(f, ": {elapsed} s (gives up after {limit} s of silence)")
    }
}

/// Shows no message.
pub fn in_silence(_: Option<Waiting>) {}
