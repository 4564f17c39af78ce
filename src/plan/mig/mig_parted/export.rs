//! What a machine has, as a configuration file of mig-parted.
//!
//! The form loses where the instances lie, and which compute instances are in one GPU instance.

use super::{NodeGpu, devices};
use crate::inventory::MigMode;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::error::{Context, Error, Result};
use tranche_core::types::{GpuIndex, MigProfile};

/// A file with one configuration.
#[derive(Debug, Serialize)]
pub struct ExportedFile {
    version: &'static str,
    #[serde(rename = "mig-configs")]
    configurations: BTreeMap<String, Vec<ExportedEntry>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct ExportedEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    device_filter: Option<Filter>,
    devices: Devices,
    mig_enabled: bool,
    mig_devices: BTreeMap<String, u32>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Filter {
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Devices {
    All(&'static str),
    Listed(Vec<u32>),
}

/// GPUs that have the same.
struct Group {
    is_enabled: bool,
    devices: BTreeMap<String, u32>,
    models: BTreeSet<u32>,
    indices: BTreeSet<GpuIndex>,
}

impl ExportedFile {
    /// What `gpus` have, as the configuration `label`. GPUs that have the same share an entry. A device filter is in an
    /// entry only if the machine has several models and several entries; the subsystem is left out of it, so that the
    /// file fits every board of a model.
    ///
    /// # Errors
    /// Returns an error if a GPU in MIG mode does not say how it is divided.
    pub fn of(label: &str, gpus: &[NodeGpu<'_>]) -> Result<Self> {
        let mut groups: Vec<Group> = Vec::new();
        for gpu in gpus {
            let is_enabled = gpu.mode == Some(MigMode::Enabled);
            let now = match (is_enabled, gpu.divided) {
                (false, _) => BTreeMap::new(),
                (true, Some(now)) => devices(now),
                (true, None) => {
                    let what = "NVML does not say how it is divided";
                    return Err(Error::failed(format!("gpu {}", gpu.index), what));
                }
            };
            let now: BTreeMap<String, u32> = now.iter().map(|(profile, count)| (name(profile), *count)).collect();
            let is_same = |group: &&mut Group| group.is_enabled == is_enabled && group.devices == now;
            match groups.iter_mut().find(is_same) {
                Some(group) => {
                    group.models.insert(gpu.model.device);
                    group.indices.insert(gpu.index);
                }
                None => groups.push(Group {
                    is_enabled,
                    devices: now,
                    models: BTreeSet::from([gpu.model.device]),
                    indices: BTreeSet::from([gpu.index]),
                }),
            }
        }
        let models: BTreeSet<u32> = gpus.iter().map(|gpu| gpu.model.device).collect();
        let has_filters = models.len() > 1 && groups.len() > 1;
        let entries = groups.into_iter().map(|group| group.entry(gpus, has_filters)).collect();
        Ok(Self {
            version: "v1",
            configurations: BTreeMap::from([(label.to_owned(), entries)]),
        })
    }

    /// The file's text.
    ///
    /// # Errors
    /// Returns an error if it cannot be written as YAML.
    pub fn yaml(&self) -> Result<String> {
        serde_saphyr::to_string(self).about("layouts", "cannot be written as YAML")
    }
}

impl Group {
    fn entry(self, gpus: &[NodeGpu<'_>], has_filter: bool) -> ExportedEntry {
        let filters: Vec<String> = self.models.iter().map(|model| format!("0x{model:08X}")).collect();
        let filter = match filters.as_slice() {
            _ if !has_filter => None,
            [one] => Some(Filter::One(one.clone())),
            _ => Some(Filter::Several(filters)),
        };
        let of_models = gpus.iter().filter(|gpu| self.models.contains(&gpu.model.device));
        let is_all = of_models.map(|gpu| gpu.index).eq(self.indices.iter().copied());
        ExportedEntry {
            device_filter: filter,
            devices: match is_all {
                true => Devices::All("all"),
                false => Devices::Listed(self.indices.iter().map(|index| index.0).collect()),
            },
            mig_enabled: self.is_enabled,
            mig_devices: self.devices,
        }
    }
}

/// `1g.6gb+me,gfx`: mig-parted writes one sign, and commas between attributes.
fn name(profile: &MigProfile) -> String {
    let mut attributes = profile.attributes.iter();
    let Some(first) = attributes.next() else {
        return profile.to_string();
    };
    let base = MigProfile {
        attributes: Vec::new(),
        ..profile.clone()
    };
    let more: String = attributes
        .map(|one| format!(",{}", one.trim_start_matches(['+', '-'])))
        .collect();
    format!("{base}{first}{more}")
}
