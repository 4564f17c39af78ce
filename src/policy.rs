//! How devices are to be shared: what a person wrote, once it has been read and found whole.
//!
//! Data only. [`read`](mod@read) makes it from `/etc/tranche/config.yaml`; [`crate::share`] turns it and an inventory into a plan. The form is
//! that of NVIDIA's k8s-device-plugin (`version: v1`), with what the plugin parses and then drops (`devices`, `rename`)
//! put to use, and keys of ours beside it.

mod place;
#[cfg(feature = "cli")]
pub mod read;
mod selector;
#[cfg(feature = "cli")]
mod yaml;

pub use crate::types::Place;
pub use place::Placed;
pub use selector::DeviceSet;

use crate::error::Error;
pub use crate::types::Strategy;
use crate::types::{CdiKind, MemorySize, MigProfile, Overcommit, Percent, ShareName};
use serde::{Deserialize, Serialize};

/// A whole policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The file that it was read from, for messages.
    pub file: String,
    /// Which devices are split, and how.
    pub splits: Vec<Split>,
    /// What the names of a split device as a whole mean.
    pub whole_device: WholeDevice,
    /// Under which names equal replicas are offered.
    pub names: ReplicaNames,
    /// How much more memory than there is may be promised.
    pub overcommit_memory: Overcommit,
    /// How much more compute than there is may be promised.
    pub overcommit_compute: Overcommit,
    /// For every device under MPS.
    pub mps: MpsSettings,
    /// For every device under time-slicing.
    pub time_slicing: TimeSlicingSettings,
}

impl Default for Policy {
    /// Nothing is split.
    fn default() -> Self {
        Self {
            file: String::new(),
            splits: Vec::new(),
            whole_device: WholeDevice::default(),
            names: ReplicaNames::default(),
            overcommit_memory: Overcommit::NONE,
            overcommit_compute: Overcommit::NONE,
            mps: MpsSettings::default(),
            time_slicing: TimeSlicingSettings::default(),
        }
    }
}

impl Policy {
    /// A mistake in the policy that was found while planning: `object` is the device, or whatever else the policy cannot do
    /// this to.
    pub fn wrong(&self, place: Place, object: impl std::fmt::Display, what: impl std::fmt::Display) -> Error {
        Error::usage(place.of(&self.file), format!("{object}: {what}"))
    }
}

/// One entry under `resources`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// How the parts are kept apart.
    pub strategy: Strategy,
    /// Which devices the entry can mean at all.
    pub resource: Resource,
    /// The kind under which the shares are offered.
    pub kind: CdiKind,
    /// Which of them it means.
    pub devices: DeviceSet,
    /// The parts.
    pub parts: Parts,
    /// Refuse a request for more than one part of a device.
    pub fail_requests_greater_than_one: bool,
    /// Where the entry is in the file.
    pub place: Place,
}

/// What an entry's `name` stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// `nvidia.com/gpu`: GPUs that are not in MIG mode, and every device that the entry names itself.
    Gpu,
    /// `nvidia.com/mig-1g.10gb`: MIG devices of one profile.
    Mig(MigProfile),
    /// Every device: GPUs that are not in MIG mode, and MIG devices of any profile.
    Every,
}

/// The parts of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Parts {
    /// So many equal ones.
    Equal(u32),
    /// These, by name.
    Named(Vec<ShareAsk>),
    /// The device stays whole.
    Whole,
}

/// A part that somebody asked for by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareAsk {
    /// Where it is in the file.
    pub place: Place,
    /// Its name.
    pub name: ShareName,
    /// Compute.
    pub compute: Option<Percent>,
    /// Memory.
    pub memory: Option<Amount>,
    /// MPS's hint about whose work goes first.
    pub priority: Priority,
}

/// Memory as somebody asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Amount {
    /// So much.
    Size(MemorySize),
    /// So much of what the device has.
    Percent(Percent),
}

/// `CUDA_MPS_CLIENT_PRIORITY`: a hint to the scheduler, no more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// 0
    #[default]
    Normal,
    /// 1
    BelowNormal,
}

/// What the names of a split device as a whole mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WholeDevice {
    /// The whole device is one more thing to hold: refused while a share is held, and the other way round.
    #[default]
    Claim,
    /// Given to whoever asks, beside the shares.
    Open,
    /// Not offered.
    Hide,
}

/// Under which names equal replicas are offered: `0.any`, which means any free one, and perhaps `0.0`, `0.1` and so on.
///
/// Engines read every name at every start of a container, so many names make each start slower.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaNames {
    /// `0.any`, and a number for each replica of a device that has at most [`ReplicaNames::FEW`] of them.
    #[default]
    Few,
    /// `0.any`, and a number for each replica.
    Each,
    /// `0.any` alone.
    Any,
}

impl ReplicaNames {
    /// The largest number of replicas that have numbered names when the policy does not ask for them.
    pub const FEW: usize = 32;

    /// Whether each of `replicas` replicas of a device has a numbered name.
    pub fn numbered(self, replicas: usize) -> bool {
        match self {
            Self::Few => replicas <= Self::FEW,
            Self::Each => true,
            Self::Any => false,
        }
    }
}

/// For every device under MPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MpsSettings {
    /// Whose processes one daemon serves.
    pub users: MpsUsers,
    /// What becomes of the device's compute mode.
    pub compute_mode: MpsComputeMode,
    /// Seconds that a device without a claim stays as it is before it is put back.
    pub grace: u32,
}

impl Default for MpsSettings {
    fn default() -> Self {
        Self {
            users: MpsUsers::default(),
            compute_mode: MpsComputeMode::default(),
            grace: 30,
        }
    }
}

/// Whose processes one daemon serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpsUsers {
    /// Everybody's, by one server (`-multiuser-server`, Volta and later).
    #[default]
    Many,
    /// One user's at a time.
    One,
}

/// What becomes of a device's compute mode under MPS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpsComputeMode {
    /// EXCLUSIVE_PROCESS: a process that leaves MPS gets no device.
    #[default]
    Exclusive,
    /// It stays; a process that leaves MPS runs without limits.
    Keep,
}

/// For every device under time-slicing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeSlicingSettings {
    /// How long a turn is.
    pub interval: Interval,
}

/// How long a turn is (`nvidia-smi compute-policy --set-timeslice`, 0 to 3). NVIDIA does not say in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interval {
    /// The driver's own.
    #[default]
    Default,
    /// Short.
    Short,
    /// Medium.
    Medium,
    /// Long.
    Long,
}
