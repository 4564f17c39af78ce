//! The files of NVIDIA's mig-parted, and its judgement of whether a machine has what a file says.
//!
//! The rules are those of mig-parted 0.15 (`api/spec/v1`, `cmd/nvidia-mig-parted`).

mod checkpoint;
mod export;
mod judge;
mod read;

pub use checkpoint::Checkpoint;
pub use export::ExportedFile;
pub use read::read;

use super::layout::{GpuSelector, GpuWish, Layout, MigPartedSelector, PciModel};
use super::{ExactGpu, MigGpu};
use crate::inventory::MigMode;
use std::collections::BTreeMap;
use tranche_core::error::{Error, Result};
use tranche_core::text::{candidates, some};
use tranche_core::types::{GpuIndex, MigProfile};

/// A named configuration of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// Its name.
    pub name: String,
    /// Its entries, which apply in this order.
    pub entries: Vec<Entry>,
    /// A line for each device filter that cannot be one of a GPU, so that it selects nothing.
    pub notes: Vec<String>,
}

/// An entry of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which GPUs.
    pub gpus: MigPartedSelector,
    /// What each of them is to have.
    pub wish: GpuWish,
}

/// A GPU as mig-parted looks at it, whether it has MIG or not.
#[derive(Debug, Clone)]
pub struct NodeGpu<'g> {
    /// Its position in the order of PCI addresses, which is that of NVML.
    pub index: GpuIndex,
    /// Its PCI ids.
    pub model: PciModel,
    /// The MIG mode; `None` for a GPU that has no MIG.
    pub mode: Option<MigMode>,
    /// How it is divided; `None` for a GPU that has no MIG, or that does not say it.
    pub divided: Option<&'g MigGpu>,
}

impl<'g> From<&'g MigGpu> for NodeGpu<'g> {
    fn from(gpu: &'g MigGpu) -> Self {
        Self {
            index: gpu.index,
            model: PciModel {
                device: gpu.pci_device,
                subsystem: Some(gpu.pci_subsystem),
            },
            mode: Some(gpu.mode.current),
            divided: Some(gpu),
        }
    }
}

impl MigPartedSelector {
    /// Whether a GPU is meant.
    pub fn names(&self, gpu: &NodeGpu<'_>) -> bool {
        let is_model = |model: &PciModel| {
            let same_subsystem = |subsystem| gpu.model.subsystem == Some(subsystem);
            model.device == gpu.model.device && model.subsystem.is_none_or(same_subsystem)
        };
        let is_number = |indices: &Vec<i64>| indices.contains(&i64::from(gpu.index.0));
        (self.models.is_empty() || self.models.iter().any(is_model)) && self.indices.as_ref().is_none_or(is_number)
    }
}

impl Configuration {
    /// The same for the planner.
    pub fn layouts(&self) -> Vec<Layout> {
        let layout = |entry: &Entry| Layout {
            gpus: GpuSelector::MigParted(entry.gpus.clone()),
            wish: entry.wish.clone(),
        };
        self.entries.iter().map(layout).collect()
    }

    /// The entry that counts for a GPU: the last one that names it.
    pub fn entry(&self, gpu: &NodeGpu<'_>) -> Option<&Entry> {
        self.entries.iter().rfind(|entry| entry.gpus.names(gpu))
    }

    /// Looks for what its selectors mean on a machine with `gpus`. Returns a line for each selector that cannot mean
    /// a GPU of it, and looks like a mistake: an entry for another model is none.
    ///
    /// # Errors
    /// Returns a usage error if the whole configuration names no GPU here. `file` is the name in messages.
    pub fn check_selectors(&self, file: &str, gpus: &[NodeGpu<'_>]) -> Result<Vec<String>> {
        if !gpus.iter().any(|gpu| self.entry(gpu).is_some()) {
            let what = format!("configuration {} names no GPU of this machine", self.name);
            let models: Vec<String> = gpus
                .iter()
                .map(|gpu| format!("{} is {}", gpu.index, gpu.model))
                .collect();
            let error = Error::usage(file, what);
            return Err(match self.notes.first() {
                Some(note) => error.hint(note),
                None if models.is_empty() => error,
                None => error.hint(format!("its GPUs: {}", candidates("", &models))),
            });
        }
        let mut lines = self.notes.clone();
        let exists = |index: &i64| gpus.iter().any(|gpu| i64::from(gpu.index.0) == *index);
        let named = self.entries.iter().filter_map(|entry| entry.gpus.indices.as_ref());
        let mut missing: Vec<i64> = named.flatten().filter(|index| !exists(index)).copied().collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            let what = format!("configuration {} names devices that this machine lacks", self.name);
            lines.push(format!("{file}: {what}: {}", some(&missing)));
        }
        Ok(lines)
    }
}

/// The MIG devices that a GPU has, by profile, as mig-parted counts them: compute instances. A GPU instance without
/// one is not counted.
fn devices(gpu: &MigGpu) -> BTreeMap<MigProfile, u32> {
    let GpuWish::Instances(instances) = ExactGpu::of(gpu).layout().wish else {
        return BTreeMap::new();
    };
    let mut counts = BTreeMap::new();
    for (one, count) in instances {
        if one.profile.compute_slices != Some(0) {
            *counts.entry(one.profile).or_insert(0) += count;
        }
    }
    counts
}
