//! Who works on a GPU.

use crate::convert::meaning;
use crate::sys::nvml::process_utilization;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::NVML_DEVICE_MIG_ENABLE;
use std::time::Duration;
use tranche_plan::idle::{GpuWork, SPAN};

/// Which processes worked on `device` in the last [`SPAN`] seconds, or why NVML does not say it.
pub(crate) fn of(device: &Device<'_>) -> Result<GpuWork, String> {
    if device
        .mig_mode()
        .is_ok_and(|mode| mode.current == NVML_DEVICE_MIG_ENABLE)
    {
        return Err("NVML does not say who works on a GPU in MIG mode".to_owned());
    }
    let not_said = |error: &NvmlError| format!("NVML does not say who works on the GPU: {}", meaning(error));
    let now = device.utilization_rates().map_err(|error| not_said(&error))?;
    let samples = process_utilization(device, Duration::from_secs(SPAN)).map_err(|error| not_said(&error))?;
    let works = samples
        .iter()
        .filter(|sample| [sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil] != [0; 4]);
    Ok(GpuWork {
        processes: works.map(|sample| sample.pid).collect(),
        is_busy: now.gpu != 0 || now.memory != 0,
    })
}
