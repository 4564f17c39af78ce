//! Whether a machine has what a configuration says, as `nvidia-mig-parted assert` judges it: MIG devices are counted by
//! profile, and where they lie does not matter.

use super::{Configuration, NodeGpu, devices};
use crate::inventory::MigMode;
use crate::mig::GpuWish;
use crate::mig::plan::offered;
use std::collections::BTreeMap;
use tranche_core::types::MigProfile;

impl Configuration {
    /// The first GPU that has another MIG mode than an entry says, in a line; `None` if all agree. A GPU that no
    /// entry names is not looked at. One that has no MIG differs from each entry that turns MIG on, also from one for
    /// all devices.
    pub fn other_mode(&self, gpus: &[NodeGpu<'_>]) -> Option<String> {
        let differs = |gpu: &NodeGpu<'_>, wish: &GpuWish| {
            let (is, on) = (gpu.mode, *wish != GpuWish::Off);
            match is {
                None if on => Some(format!(
                    "gpu {}: has no MIG, and the configuration turns it on",
                    gpu.index
                )),
                Some(MigMode::Disabled) if on => Some(format!("gpu {}: MIG mode is off, and not on", gpu.index)),
                Some(MigMode::Enabled) if !on => Some(format!("gpu {}: MIG mode is on, and not off", gpu.index)),
                _ => None,
            }
        };
        self.entries.iter().find_map(|entry| {
            let mut named = gpus.iter().filter(|gpu| entry.gpus.names(gpu));
            named.find_map(|gpu| differs(gpu, &entry.wish))
        })
    }

    /// The first GPU that has other MIG devices than the configuration says, in a line; `None` if all agree. A GPU
    /// that no entry names counts as one that differs.
    pub fn other_devices(&self, gpus: &[NodeGpu<'_>]) -> Option<String> {
        gpus.iter().find_map(|gpu| {
            let Some(entry) = self.entry(gpu) else {
                return Some(format!("gpu {}: no entry of the configuration names it", gpu.index));
            };
            match gpu.has(&entry.wish) {
                true => None,
                false => Some(match (gpu.divided, gpu.mode) {
                    (Some(now), Some(MigMode::Enabled)) => {
                        format!(
                            "gpu {}: has {}, and not {}",
                            gpu.index,
                            shown(&devices(now)),
                            entry.wish
                        )
                    }
                    _ => format!("gpu {}: has no MIG devices, and not {}", gpu.index, entry.wish),
                }),
            }
        })
    }
}

impl NodeGpu<'_> {
    /// Whether it has what an entry says, as [`Configuration::other_devices`] judges.
    pub fn has(&self, wish: &GpuWish) -> bool {
        let GpuWish::Instances(instances) = wish else {
            return self.mode != Some(MigMode::Enabled);
        };
        let Some(now) = self.divided.filter(|_| self.mode == Some(MigMode::Enabled)) else {
            return false;
        };
        let mut wanted: BTreeMap<MigProfile, u32> = BTreeMap::new();
        for (one, count) in instances {
            let Ok(profile) = offered(now, "gpu", &one.profile) else {
                return false;
            };
            let slices = one.profile.compute_slices;
            let name = MigProfile {
                compute_slices: slices.filter(|slices| u32::from(*slices) != profile.slices),
                ..profile.name.clone()
            };
            *wanted.entry(name).or_insert(0) += count;
        }
        wanted == devices(now)
    }
}

fn shown(devices: &BTreeMap<MigProfile, u32>) -> String {
    let shown: Vec<String> = devices
        .iter()
        .map(|(profile, count)| match count {
            1 => profile.to_string(),
            count => format!("{count}x{profile}"),
        })
        .collect();
    match shown.is_empty() {
        true => "empty".to_owned(),
        false => shown.join(","),
    }
}
