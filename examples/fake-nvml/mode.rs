//! Compute modes that were set. They are in a file, because they outlive the process that set them.

use crate::config::{self, Gpu};
use crate::state::{Answer, UNKNOWN, World};
use nvml_wrapper_sys::bindings::nvmlComputeMode_t;
use serde_json::json;
use std::collections::BTreeMap;

type Modes = BTreeMap<String, nvmlComputeMode_t>;

fn modes() -> Modes {
    let text = config::state().and_then(|file| std::fs::read(file).ok());
    text.and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default()
}

/// The mode that was set; `None` if none was.
pub(crate) fn changed(gpu: &Gpu) -> Option<nvmlComputeMode_t> {
    modes().get(&gpu.uuid).copied()
}

/// Sets the mode.
pub(crate) fn change(world: &World, gpu: &Gpu, mode: nvmlComputeMode_t) -> Answer {
    let mut modes = modes();
    modes.insert(gpu.uuid.clone(), mode);
    let (Some(file), Ok(text)) = (config::state(), serde_json::to_vec(&modes)) else {
        return Err(UNKNOWN);
    };
    std::fs::write(file, text).map_err(|_| UNKNOWN)?;
    world.record(&json!({"event": "compute mode", "gpu": gpu.uuid, "mode": mode}))
}
