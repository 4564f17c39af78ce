//! How the driver of this machine is asked, and how its GPUs are changed.

use super::devices::ControlOptions;
use super::nvml::Nvml;
use super::target::{in_root, libraries, library, program};
use crate::facts::Facts;
use std::path::PathBuf;
use std::sync::Arc;
use tranche_core::error::{Error, Result};
use tranche_plan::inventory::LIBCUDA;

/// How the driver is asked, and how its GPUs are changed.
#[derive(Debug, Clone)]
pub struct DriverAccess {
    /// The driver's library.
    pub nvml: Nvml,
    /// The library of CUDA, if it was found.
    pub cuda: Option<PathBuf>,
    /// The directory of that library, if the loader of the host does not search it.
    pub cuda_dir: Option<PathBuf>,
    /// The driver's program that resets a GPU, if it was found.
    pub nvidia_smi: Option<PathBuf>,
    /// systemd's program, where systemd runs.
    pub systemctl: Option<PathBuf>,
}

impl DriverAccess {
    /// The driver of this host.
    ///
    /// # Errors
    /// Returns an error if its library was not found.
    pub fn find(facts: &Facts, options: &ControlOptions) -> Result<Self> {
        let driver = facts.inventory.driver.as_ref();
        let library = library(driver, &options.root)
            .ok_or_else(|| Error::failed("NVML", "libnvidia-ml.so.1, the driver's library, was not found"))?;
        Ok(Self {
            nvml: Nvml {
                driver: Arc::clone(&options.driver),
                library,
                patience: options.nvml_patience,
            },
            cuda: driver
                .and_then(|driver| driver.library(LIBCUDA))
                .map(|file| in_root(&options.root, &file.host)),
            cuda_dir: libraries(driver, &options.root),
            nvidia_smi: program(driver, &options.root, "nvidia-smi"),
            systemctl: options.systemctl.clone(),
        })
    }
}
