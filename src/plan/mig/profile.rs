//! The sizes of instances that a driver offers for a GPU.

use crate::inventory::Engines;
use serde::{Deserialize, Serialize};
use std::fmt;
use tranche_core::types::{MemorySize, MigProfile, in_mib};

/// A number of NVML that must not be taken for another one.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// `NVML_GPU_INSTANCE_PROFILE_*`: the number by which NVML is asked about a profile. It is not [`ProfileId`].
    ProfileIndex
);
number!(
    /// The driver's own number of a profile: 19, 14, 9 in the lists of nvidia-smi. Placements, capacities and new
    /// instances are asked for by it (`nvmlGpuInstanceProfileInfo_t.id`).
    ProfileId
);
number!(
    /// `NVML_COMPUTE_INSTANCE_PROFILE_*`: the number by which NVML is asked about a profile of compute instances.
    ComputeProfileIndex
);
number!(
    /// The driver's own number of a profile of compute instances (`nvmlComputeInstanceProfileInfo_t.id`).
    ComputeProfileId
);

/// A size of GPU instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstanceProfile {
    /// NVML's number.
    pub index: ProfileIndex,
    /// The driver's number.
    pub id: ProfileId,
    /// The name, from NVML (drivers since 510) or made from slices, memory and attributes. It is no key: with another
    /// driver the same profile of the same board may be `1g.23gb` or `1g.24gb`.
    pub name: MigProfile,
    /// Compute slices: the `3` of `3g.20gb`.
    pub slices: u32,
    /// Memory, as the driver reports it, in whole MiB.
    #[serde(rename = "memory_mib", with = "in_mib")]
    pub memory: MemorySize,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Copy engines and media engines.
    pub engines: Engines,
    /// How many instances of the profile the GPU can have when it has no others.
    pub most: u32,
    /// Where an instance of the profile can lie, whether something lies there now or not.
    pub placements: Vec<Placement>,
    /// The compute instances that a GPU instance of the profile can have.
    pub compute: Vec<ComputeProfile>,
}

impl InstanceProfile {
    /// The profile of one compute instance with all slices of the GPU instance, which most GPU instances have. Of two
    /// profiles of that size, the first in NVML's order is the usual one, and the other one is a variant for special
    /// products (`1_SLICE_REV1`, `7_SLICE_NVL`).
    pub fn whole_compute(&self) -> Option<&ComputeProfile> {
        self.compute_of(self.slices)
    }

    /// The profile of a compute instance with this number of slices.
    pub fn compute_of(&self, slices: u32) -> Option<&ComputeProfile> {
        self.compute.iter().find(|compute| compute.slices == slices)
    }
}

/// A size of compute instance within a GPU instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeProfile {
    /// NVML's number.
    pub index: ComputeProfileIndex,
    /// The driver's number.
    pub id: ComputeProfileId,
    /// Compute slices: the `1` of `1c.3g.20gb`.
    pub slices: u32,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// How many of them the GPU instance can have when it has no others.
    pub most: u32,
}

/// Where an instance lies. For a GPU instance in units of memory (8 on an A100 or H100, 4 on an A30, 12 on an RTX PRO
/// 6000), for a compute instance in compute slices within its GPU instance (`nvmlGpuInstancePlacement_t`,
/// `nvmlComputeInstancePlacement_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// The first unit.
    pub start: u32,
    /// How many units.
    pub size: u32,
}

impl Placement {
    /// Whether the two have a unit in common.
    pub fn overlaps(&self, other: &Placement) -> bool {
        let (ours, others) = (u64::from(self.start), u64::from(other.start));
        ours < others + u64::from(other.size) && others < ours + u64::from(self.size)
    }
}

impl fmt::Display for Placement {
    /// `4+2`: two units from unit 4.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start, self.size)
    }
}
