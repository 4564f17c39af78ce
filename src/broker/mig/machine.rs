//! What a change of a layout needs of the machine.

use tranche_core::types::GpuUuid;
use tranche_plan::mig::{MigChange, MigGpu};

/// The GPUs that are divided. Each call asks the driver.
pub trait MigMachine {
    /// The GPU as it is now.
    ///
    /// # Errors
    /// Returns an error if it does not answer.
    fn gpu(&self, gpu: &GpuUuid) -> Result<MigGpu, ChangeError>;

    /// Makes one change.
    ///
    /// # Errors
    /// Returns why the driver refuses it.
    fn change(&self, gpu: &GpuUuid, change: &MigChange) -> Result<(), ChangeError>;

    /// Waits before something is tried again.
    fn pause(&self);

    /// Waits until a container whose engine had read a specification before this call has entered its claim, as long as
    /// an engine usually takes for that.
    fn await_starts(&self);
}

/// Why a change was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// A process uses what is to be destroyed, or the GPU whose mode is to change. The driver may say so for a moment
    /// after the last process has ended.
    #[error("the driver says that it is in use")]
    InUse,
    /// Any other reason.
    #[error("{0}")]
    Other(String),
}
