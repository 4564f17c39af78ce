//! What a change of the resident needs of the machine.

use super::holder::TurnHolder;
use nix::unistd::Pid;
use tranche_core::error::Error;
use tranche_plan::turns::change::CudaState;

/// Why the machine did not do a step.
#[derive(Debug, thiserror::Error)]
pub enum TurnFault {
    /// The step failed.
    #[error("{0}")]
    Failed(String),
    /// Nothing can be done now, and nothing was: the driver's process cannot be started, for example.
    #[error("{0}")]
    Unable(String),
}

impl From<Error> for TurnFault {
    fn from(error: Error) -> Self {
        Self::Failed(tranche_core::error::line(&error))
    }
}

/// The machine, of one device. Whether a step was done is seen by looking again, never by its result alone.
pub trait TurnMachine {
    /// The processes of a holder that have a context of CUDA, each with its state.
    ///
    /// # Errors
    /// Returns an error if they cannot be known.
    fn processes(&mut self, holder: &TurnHolder) -> Result<Vec<(Pid, CudaState)>, TurnFault>;

    /// Whether the processes of a holder can open the device.
    ///
    /// # Errors
    /// Returns an error if that cannot be known.
    fn is_open(&mut self, holder: &TurnHolder) -> Result<bool, TurnFault>;

    /// Lets the processes of a holder open the device, or keeps them from it.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses it.
    fn set_open(&mut self, holder: &TurnHolder, is_open: bool) -> Result<(), TurnFault>;

    /// Makes the calls of a process wait, when what it has submitted is done.
    ///
    /// # Errors
    /// Returns an error if the driver does not do it in time.
    fn lock(&mut self, process: Pid) -> Result<(), TurnFault>;

    /// Copies the memory of a locked process to the host, and frees the device.
    ///
    /// # Errors
    /// Returns an error if the driver does not do it.
    fn checkpoint(&mut self, process: Pid) -> Result<(), TurnFault>;

    /// Copies the memory of a process back.
    ///
    /// # Errors
    /// Returns an error if the driver does not do it.
    fn restore(&mut self, process: Pid) -> Result<(), TurnFault>;

    /// Lets the calls of a process go on.
    ///
    /// # Errors
    /// Returns an error if the driver does not do it.
    fn unlock(&mut self, process: Pid) -> Result<(), TurnFault>;

    /// How much memory a holder has on the device, in bytes.
    ///
    /// # Errors
    /// Returns an error if NVML does not say it.
    fn bytes(&mut self, holder: &TurnHolder) -> Result<u64, TurnFault>;

    /// Whether `bytes` of the memory of the device are free or in use by `those`, and nobody else has any.
    ///
    /// # Errors
    /// Returns an error if NVML does not say it.
    fn is_memory_free(&mut self, bytes: u64, those: &[Pid]) -> Result<bool, TurnFault>;

    /// Why `bytes` more of a holder do not fit into the memory of the machine; `None` if they do.
    fn lacks_host_memory(&mut self, holder: &TurnHolder, bytes: u64) -> Option<String>;

    /// Whether processes of a holder are paused, so that nothing can be done with them.
    fn is_paused(&mut self, holder: &TurnHolder) -> bool;

    /// Whether a holder has worked since the last look; an error if that cannot be known.
    ///
    /// # Errors
    /// Returns an error if NVML does not say it.
    fn has_worked(&mut self, holder: &TurnHolder) -> Result<bool, TurnFault>;

    /// Whether a holder that is away has called the driver since the last look. `false` where that cannot be seen.
    fn has_called(&mut self, holder: &TurnHolder) -> bool;

    /// Ends the processes of a holder that have a context: the driver cannot go on with them. Where the machine can
    /// hang when work is killed that `was_resumed`, it is suspended before.
    ///
    /// # Errors
    /// Returns an error if one of them does not end, or must not be ended.
    fn end(&mut self, holder: &TurnHolder, was_resumed: bool) -> Result<(), TurnFault>;
}
