//! What this machine has of MIG now, and who uses it.

use super::holders::{holders, reserved};
use crate::control::nvml::Nvml;
use crate::control::{ControlOptions, DriverAccess};
use crate::facts::{HostFacts, HostNow};
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Kind, Result};
use tranche_core::types::{ComputeInstanceId, GpuIndex, GpuInstanceId};
use tranche_host::examine;
use tranche_plan::inventory::{Inventory, MigDevice};
use tranche_plan::mig::{InstanceHolder, MigGpu, PciModel, described};
use tranche_state::held::root_only;
use tranche_state::planning::PlanOptions;

/// The GPUs that have MIG, as far as the driver says what they have.
///
/// # Errors
/// Returns an error if the driver does not answer.
pub fn gpus(nvml: &Nvml) -> Result<Vec<MigGpu>> {
    let (gpus, _) = nvml.mig_gpus().map_err(|error| Error::failed("NVML", error))?;
    Ok(gpus)
}

/// The GPUs that have MIG, and who uses them.
#[derive(Debug)]
pub struct MigView {
    /// The GPUs, by index.
    pub gpus: Vec<MigGpu>,
    /// Who uses which instance.
    pub holders: Vec<InstanceHolder>,
    /// A line for each GPU that does not say what it has.
    pub problems: Vec<String>,
    /// The host as the specifications describe it.
    pub inventory: Inventory,
}

impl MigView {
    /// The name of a MIG device: `0:1`.
    pub fn name(&self, gpu: &MigGpu, instance: GpuInstanceId, compute: ComputeInstanceId) -> Option<String> {
        let found = self.inventory.gpus.iter().find(|found| found.uuid == gpu.uuid)?;
        let is_it = |mig: &&MigDevice| (mig.gpu_instance, mig.compute_instance) == (instance, compute);
        let mig = found.mig_devices.iter().find(is_it)?;
        Some(format!("{}:{}", found.index, mig.index))
    }

    /// Asks the driver and the ledger, or describes the GPUs of a saved inventory. It changes nothing.
    ///
    /// # Errors
    /// As [`MigView::with_models`], and [`Kind::Nothing`] for a host without a GPU that has MIG.
    pub fn look(at: &PlanOptions) -> Result<Self> {
        let view = match at.host.inventory {
            Some(_) => Self::described(at)?.0,
            None => Self::ask(at)?.0,
        };
        match view.gpus.is_empty() && view.problems.is_empty() {
            true => Err(Error::new(Kind::Nothing, "host", "has no GPU with MIG")),
            false => Ok(view),
        }
    }

    /// The same with the PCI ids of all GPUs, also those that have no MIG, and also if none has.
    ///
    /// # Errors
    /// Returns an error for users other than root ([`Kind::Failed`]), for a host without a driver ([`Kind::Nothing`]),
    /// and if NVML does not answer.
    pub fn with_models(at: &PlanOptions) -> Result<(Self, Vec<(GpuIndex, PciModel)>)> {
        if at.host.inventory.is_some() {
            return Self::described(at);
        }
        let (view, nvml) = Self::ask(at)?;
        let models = nvml.models().map_err(|error| Error::failed("NVML", error))?;
        Ok((view, models))
    }

    /// The GPUs of a saved inventory, which nobody uses.
    fn described(at: &PlanOptions) -> Result<(Self, Vec<(GpuIndex, PciModel)>)> {
        let inventory = examine::inventory(&at.host)?;
        let (gpus, problems) = described(&inventory);
        let model = |gpu: &MigGpu| PciModel {
            device: gpu.pci_device,
            subsystem: None,
        };
        let models = gpus.iter().map(|gpu| (gpu.index, model(gpu))).collect();
        let view = Self {
            gpus,
            holders: Vec::new(),
            problems,
            inventory,
        };
        Ok((view, models))
    }

    fn ask(at: &PlanOptions) -> Result<(Self, Nvml)> {
        root_only::check(&at.state_dir)?;
        let facts = HostNow::new(at.clone()).now()?;
        let access = DriverAccess::find(&facts, &ControlOptions::of(at)?)?;
        let (gpus, problems) = access.nvml.mig_gpus().map_err(|error| Error::failed("NVML", error))?;
        let mut holders = match Claims::existing(&at.state_dir)? {
            Some(claims) => holders(&gpus, &claims)?,
            None => Vec::new(),
        };
        holders.extend(reserved(&gpus, &at.state_dir)?);
        let view = Self {
            gpus,
            holders,
            problems,
            inventory: facts.inventory.clone(),
        };
        Ok((view, access.nvml))
    }
}
