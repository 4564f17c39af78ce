//! The GPUs of this machine, through NVML.

use super::machine::{ChangeError, MigMachine};
use crate::control::nvml::{Nvml, NvmlFailure};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use tranche_core::types::GpuUuid;
use tranche_host::program;
use tranche_plan::inventory::MigMode;
use tranche_plan::mig::{MigChange, MigGpu};

/// How long something in use is left before it is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// How long an engine may take from reading a specification to the hook that enters the claim. Its nodes are those of
/// an instance that may be gone by then, and the key of the instance may be that of another one.
const STARTING: Duration = Duration::from_secs(3);

/// How long a reset of a GPU may take: the driver starts it anew.
const RESET: Duration = Duration::from_secs(120);

/// The GPUs of this machine.
#[derive(Debug)]
pub struct NvmlMachine {
    /// How NVML is asked.
    pub nvml: Nvml,
    /// nvidia-smi, which resets a GPU whose mode cannot change otherwise; `None`: no GPU may be reset.
    pub reset: Option<PathBuf>,
    /// The GPUs with nodes below /dev/dri, which the module nvidia_drm makes.
    pub with_drm: BTreeSet<GpuUuid>,
}

impl MigMachine for NvmlMachine {
    fn gpu(&self, gpu: &GpuUuid) -> Result<MigGpu, ChangeError> {
        self.nvml.mig_gpu(gpu).map_err(failure)
    }

    fn change(&self, gpu: &GpuUuid, change: &MigChange) -> Result<(), ChangeError> {
        let made = self.nvml.change_mig(gpu, change);
        let MigChange::SetMode(mode) = change else {
            return made.map_err(failure);
        };
        // The return code says little of a mode: what counts is the mode afterwards, and the one that is pending.
        let now = self.gpu(gpu)?.mode;
        match (now.current == *mode, now.pending == *mode) {
            (true, true) => Ok(()),
            (false, true) => self.reset(gpu, *mode, made),
            _ => Err(made.map_or_else(failure, |()| {
                ChangeError::Other("the driver did not take it".to_owned())
            })),
        }
    }

    fn pause(&self) {
        thread::sleep(PAUSE);
    }

    fn await_starts(&self) {
        thread::sleep(STARTING);
    }
}

impl NvmlMachine {
    /// Resets a GPU whose mode is pending. `made` is what the driver said of the mode.
    fn reset(&self, gpu: &GpuUuid, mode: MigMode, made: Result<(), NvmlFailure>) -> Result<(), ChangeError> {
        let Some(nvidia_smi) = &self.reset else {
            return Err(match made {
                Err(NvmlFailure::InUse) => ChangeError::InUse,
                _ => ChangeError::Other("it takes effect with the next reset of the GPU".to_owned()),
            });
        };
        self.nvml.let_go();
        let arguments = ["--gpu-reset", "-i", gpu.as_str()];
        let reset = program::text_of(nvidia_smi, &arguments, &[], "", RESET);
        reset.map_err(|error| {
            // A console or a display is no process that has the node of the GPU open.
            let drm = match self.with_drm.contains(gpu) {
                true => "; the module nvidia_drm is loaded, and a console or a display uses the GPU through it: modprobe -r nvidia_drm",
                false => "",
            };
            ChangeError::Other(format!("nvidia-smi --gpu-reset failed: {error}{drm}"))
        })?;
        match self.gpu(gpu)?.mode.current == mode {
            true => Ok(()),
            false => Err(ChangeError::Other(
                "the mode did not change with the reset of the GPU".to_owned(),
            )),
        }
    }
}

fn failure(failure: NvmlFailure) -> ChangeError {
    match failure {
        NvmlFailure::InUse => ChangeError::InUse,
        other => ChangeError::Other(other.to_string()),
    }
}
