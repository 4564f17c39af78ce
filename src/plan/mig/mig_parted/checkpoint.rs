//! The file in which `nvidia-mig-parted checkpoint` keeps what the GPUs of a machine have.

use super::MigGpu;
use crate::inventory::MigMode;
use crate::mig::{
    ComputeProfileIndex, ExactCompute, ExactGpu, ExactInstance, GpuInstance, InstanceProfile, Placement, ProfileIndex,
};
use serde::{Deserialize, Serialize};
use tranche_core::error::{Context, Error, Result};
use tranche_core::types::GpuUuid;

const VERSION: &str = "v1";

/// `NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED`: the only one that NVML has.
const SHARED: u32 = 0;

/// The slices of each profile of compute instances, by NVML's number (`NVML_COMPUTE_INSTANCE_PROFILE_*` in nvml.h). The
/// variants of special products (`1_SLICE_REV1`, `7_SLICE_NVL`) are not in it: tranche creates none.
const SLICES: [u32; 7] = [1, 2, 3, 4, 7, 8, 6];

/// What GPUs have: the file's contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Checkpoint {
    version: String,
    mig_state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct State {
    devices: Option<Vec<Device>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Device {
    #[serde(rename = "UUID")]
    uuid: GpuUuid,
    /// 1: on.
    mig_mode: u8,
    gpu_instances: Option<Vec<Instance>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Instance {
    #[serde(rename = "ProfileID")]
    profile: ProfileIndex,
    placement: Place,
    compute_instances: Option<Vec<Compute>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Place {
    start: u32,
    size: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Compute {
    #[serde(rename = "ProfileID")]
    profile: ComputeProfileIndex,
    #[serde(rename = "EngProfileID")]
    engine_profile: u32,
}

/// An empty list is written as `null`, as mig-parted does.
fn listed<T>(all: Vec<T>) -> Option<Vec<T>> {
    Some(all).filter(|all| !all.is_empty())
}

impl Checkpoint {
    /// What `gpus` have.
    ///
    /// # Errors
    /// Returns an error for an instance of a profile that the driver does not list, which the file could not name.
    pub fn of(gpus: &[MigGpu]) -> Result<Self> {
        let devices: Result<Vec<Device>> = gpus.iter().map(device).collect();
        Ok(Self {
            version: VERSION.to_owned(),
            mig_state: State {
                devices: listed(devices?),
            },
        })
    }

    /// Reads a file. `file` is its name in messages.
    ///
    /// # Errors
    /// Returns a usage error for a file of another version, and for one that is not in this form.
    pub fn read(file: &str, text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct OfAnyVersion {
            #[serde(rename = "Version")]
            version: String,
        }
        let any: OfAnyVersion = serde_json::from_str(text)
            .map_err(|error| Error::usage(file, "is not a checkpoint of mig-parted").from_source(error))?;
        if any.version != VERSION {
            let what = format!("version {} of a checkpoint is unknown", any.version);
            return Err(Error::usage(file, what).hint("write it again with checkpoint: this program reads v1"));
        }
        let read: Self = serde_json::from_str(text)
            .map_err(|error| Error::usage(file, "is not a checkpoint of mig-parted").from_source(error))?;
        match read
            .mig_state
            .devices
            .iter()
            .flatten()
            .find(|device| device.mig_mode > 1)
        {
            None => Ok(read),
            Some(device) => {
                let what = format!("{} has MigMode {}, and not 0 or 1", device.uuid, device.mig_mode);
                Err(Error::usage(file, what).hint("write the checkpoint again"))
            }
        }
    }

    /// The file's text.
    ///
    /// # Errors
    /// Returns an error if it cannot be written as JSON.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string(self).about("checkpoint", "cannot be written as JSON")
    }

    /// The GPUs of the file, and whether each is to be in MIG mode. `file` is the name in messages.
    ///
    /// # Errors
    /// Returns a usage error for a GPU that is not on this machine.
    pub fn modes<'g>(&self, file: &str, gpus: &'g [MigGpu]) -> Result<Vec<(&'g MigGpu, MigMode)>> {
        let devices = self.mig_state.devices.iter().flatten();
        devices
            .map(|device| Ok((device.gpu(file, gpus)?, device.mode())))
            .collect()
    }

    /// What each GPU of the file is to have again. `file` is the name in messages.
    ///
    /// # Errors
    /// Returns a usage error for a GPU that is not on this machine, and for an instance that its driver does not offer.
    pub fn target(&self, file: &str, gpus: &[MigGpu]) -> Result<Vec<ExactGpu>> {
        let devices = self.mig_state.devices.iter().flatten();
        devices.map(|device| device.target(file, gpus)).collect()
    }
}

impl Device {
    fn mode(&self) -> MigMode {
        match self.mig_mode {
            0 => MigMode::Disabled,
            _ => MigMode::Enabled,
        }
    }

    fn gpu<'g>(&self, file: &str, gpus: &'g [MigGpu]) -> Result<&'g MigGpu> {
        gpus.iter().find(|gpu| gpu.uuid == self.uuid).ok_or_else(|| {
            Error::usage(file, format!("{} is not a GPU with MIG of this machine", self.uuid))
                .hint("write a checkpoint on this machine")
        })
    }

    fn target(&self, file: &str, gpus: &[MigGpu]) -> Result<ExactGpu> {
        let gpu = self.gpu(file, gpus)?;
        let wrong = |what: String| Error::usage(file, format!("gpu {}: {what}", gpu.index));
        let mut instances = Vec::new();
        for one in self.gpu_instances.iter().flatten() {
            let profile = gpu.profiles.iter().find(|profile| profile.index == one.profile);
            let profile = profile.ok_or_else(|| {
                wrong(format!(
                    "{} and its driver offer no profile with NVML's number {}",
                    gpu.product, one.profile
                ))
            })?;
            instances.push(one.target(profile).map_err(wrong)?);
        }
        instances.sort_by_key(|one| one.placement);
        Ok(ExactGpu {
            gpu: gpu.uuid.clone(),
            mode: self.mode(),
            instances,
        })
    }
}

impl Instance {
    fn target(&self, profile: &InstanceProfile) -> Result<ExactInstance, String> {
        let placement = Placement {
            start: self.placement.start,
            size: self.placement.size,
        };
        if !profile.placements.contains(&placement) {
            return Err(format!("{} has no place {placement}", profile.name));
        }
        let mut compute = Vec::new();
        for one in self.compute_instances.iter().flatten() {
            let slices = usize::try_from(one.profile.0).ok().and_then(|index| SLICES.get(index));
            match slices.filter(|_| one.engine_profile == SHARED) {
                Some(slices) if *slices <= profile.slices => compute.push(ExactCompute {
                    start: None,
                    slices: *slices,
                }),
                _ => {
                    return Err(format!(
                        "{} has no compute instance with NVML's numbers {} and {}",
                        profile.name, one.profile, one.engine_profile
                    ));
                }
            }
        }
        Ok(ExactInstance {
            profile: profile.id,
            name: profile.name.clone(),
            placement,
            compute,
        })
    }
}

fn device(gpu: &MigGpu) -> Result<Device> {
    let instances: Result<Vec<Instance>> = match gpu.mode.current {
        MigMode::Disabled => Ok(Vec::new()),
        MigMode::Enabled => gpu.instances.iter().map(|one| instance(gpu, one)).collect(),
    };
    Ok(Device {
        uuid: gpu.uuid.clone(),
        mig_mode: u8::from(gpu.mode.current == MigMode::Enabled),
        gpu_instances: listed(instances?),
    })
}

fn instance(gpu: &MigGpu, one: &GpuInstance) -> Result<Instance> {
    let unknown = |what: &str| {
        let what = format!("NVML does not list the profile of {what} GPU instance {}", one.id);
        Error::failed(format!("gpu {}", gpu.index), what)
    };
    let profile = gpu.profile(one.profile).ok_or_else(|| unknown("its"))?;
    let mut compute = Vec::new();
    for part in &one.compute {
        let offered = profile.compute.iter().find(|offered| offered.id == part.profile);
        compute.push(Compute {
            profile: offered.ok_or_else(|| unknown("a compute instance in its"))?.index,
            engine_profile: SHARED,
        });
    }
    Ok(Instance {
        profile: profile.index,
        placement: Place {
            start: one.placement.start,
            size: one.placement.size,
        },
        compute_instances: listed(compute),
    })
}
