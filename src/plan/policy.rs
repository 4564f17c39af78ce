//! How a person wants devices to be shared.
//!
//! Data only. [`read`](mod@read) reads it from `/etc/tranche/config.yaml`, and [`crate::share`] plans it for an
//! inventory. The form is that of NVIDIA's k8s-device-plugin (`version: v1`) with additional keys. The keys that the
//! plugin parses and then ignores (`devices`, `rename`) have an effect here.

mod access;
mod calendar;
mod history;
mod kubernetes;
mod limit_time;
mod mps;
mod page_names;
pub mod read;
mod runtime;
mod turns;
mod users;

pub use access::{Access, Monitors};
pub use calendar::{CalendarSettings, ClearBy, LongTime};
pub use history::HistoryTime;
pub use kubernetes::{Door, KubernetesEntry, KubernetesSection};
pub use mps::{MpsBlocked, MpsComputeMode, MpsDaemonOwner, MpsEnforcement, MpsSettings, MpsUsers};
pub use page_names::PageNames;
pub use runtime::{
    AcceptAnnotations, AcceptEnvironment, ClaimsFromEnvironment, CudaCompatMode, MaxWait, NvidiaCli, RuntimeMode,
    RuntimeSettings,
};

pub use limit_time::LimitTime;
pub use tranche_core::types::{Place, Strategy};
pub use turns::TurnSettings;
pub use users::{AtLimit, QueueSettings, Sourced, TimeLimit, UserLimits, UserPolicy, UserRules};

use crate::mig::Layout;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use tranche_core::error::Error;
use tranche_core::types::{
    CdiKind, DeviceSelector, Interval, MemorySize, MigProfile, Overcommit, Percent, ShareName, WaitTime,
};

/// The largest number of shares with names that an entry may make of a device: each of them costs memory and time
/// wherever a plan is used. Equal replicas are a count, and have no bound but that of their strategy.
pub const MOST_NAMED: usize = 1024;

/// A whole policy. By default, nothing is split.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// The file that it was read from, for messages.
    pub file: String,
    /// Which devices are split, and how.
    pub splits: Vec<Split>,
    /// What the names of a split device as a whole mean.
    pub whole_device: WholeDevice,
    /// Under which names equal replicas are offered.
    pub names: ReplicaNames,
    /// Which of several devices a share is taken of.
    pub placement: Placement,
    /// How much more memory than exists may be promised.
    pub overcommit_memory: Overcommit,
    /// How much more compute than exists may be promised.
    pub overcommit_compute: Overcommit,
    /// Settings for every device under MPS.
    pub mps: MpsSettings,
    /// How long a turn is on every device under time-slicing.
    pub interval: Interval,
    /// How long the start of a container may wait for a share, unless the container says another time.
    pub wait: WaitTime,
    /// What a user other than root may hold.
    pub quota: Quota,
    /// How the queue of users is served.
    pub queue: QueueSettings,
    /// How devices and shares are reserved for later; `None`: by root alone, with the defaults.
    pub calendar: Option<CalendarSettings>,
    /// For how long it is recorded who held what.
    pub history: HistoryTime,
    /// Whether the page of that names users.
    pub page_names: PageNames,
    /// Who may open the device nodes of what is shared.
    pub access: Access,
    /// Who may open them without a claim.
    pub monitors: Monitors,
    /// What it says about users other than root.
    pub users: UserPolicy,
    /// What Kubernetes gets.
    pub kubernetes: KubernetesSection,
    /// How GPUs are divided by MIG; of several for a GPU, the last one counts.
    pub mig_layouts: Vec<Layout>,
    /// The GPUs in MIG mode on which instances are made when somebody asks for one; `None`: on no GPU.
    pub mig_on_demand: Option<DeviceSet>,
}

impl Policy {
    /// A mistake in the policy that was found while planning. `object` is the device or whatever else it is about.
    pub fn wrong(&self, place: Place, object: impl std::fmt::Display, what: impl std::fmt::Display) -> Error {
        Error::usage(place.of(&self.file), format!("{object}: {what}"))
    }
}

/// One entry under `resources`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// How the parts are kept apart.
    pub strategy: Strategy,
    /// The devices among which the entry chooses.
    pub resource: Resource,
    /// The kind under which the shares are offered.
    pub kind: CdiKind,
    /// Its choice.
    pub devices: DeviceSet,
    /// The parts.
    pub parts: Parts,
    /// Refuse a request for more than one part of a device.
    pub fail_requests_greater_than_one: bool,
    /// Where the entry is in the file.
    pub place: Place,
}

impl Split {
    /// The entry for devices that stay whole without an entry of the policy, because each container that has one must
    /// hold it in the ledger.
    pub fn dedicated() -> Self {
        Self {
            strategy: Strategy::Dedicated,
            resource: Resource::Every,
            kind: CdiKind::nvidia_gpu(),
            devices: DeviceSet::All,
            parts: Parts::Whole,
            fail_requests_greater_than_one: false,
            place: Place::default(),
        }
    }
}

/// A value with its place in the file, so that every message can name it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Placed<T> {
    /// The place.
    pub place: Place,
    /// The value.
    pub value: T,
}

/// Which devices of its resource an entry means: the value of `devices`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DeviceSet {
    /// Every one.
    #[default]
    All,
    /// The first ones by index, in this number.
    Count(u32),
    /// Those that are named.
    List(Vec<Placed<DeviceSelector>>),
}

/// What the `name` of an entry means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// `nvidia.com/gpu`: GPUs that are not in MIG mode, and every device that the entry names itself.
    Gpu,
    /// `nvidia.com/mig-1g.10gb`: MIG devices of one profile.
    Mig(MigProfile),
    /// Every device: GPUs that are not in MIG mode, and MIG devices of any profile.
    Every,
}

/// The parts of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parts {
    /// This number of equal parts.
    Equal(u32),
    /// The whole device for each of several holders, one after another.
    Turns(TurnSettings),
    /// Parts of their own size and name each.
    Named(Vec<ShareAsk>),
    /// The device stays whole.
    Whole,
}

/// A part with a name, as the policy asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// Memory, as the policy asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// A size.
    Size(MemorySize),
    /// A part of what the device has.
    Percent(Percent),
}

impl FromStr for Amount {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.ends_with('%') {
            return text.parse().map(Self::Percent);
        }
        let size: MemorySize = text.parse()?;
        if size.mib() > 0 {
            return Ok(Self::Size(size));
        }
        let what = match text.bytes().any(|b| !b.is_ascii_digit()) {
            true => "is less than 1 MiB",
            false => "has no unit, so it is in bytes, which is less than 1 MiB",
        };
        Err(Error::usage(format!("\"{text}\""), what).hint("write a size like 7000Mi or 7Gi, or a percentage like 30%"))
    }
}

/// `CUDA_MPS_CLIENT_PRIORITY`, which is only a hint to the scheduler.
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
    /// They claim the whole device: they are refused while a share is held, and shares are refused while the device is
    /// held.
    #[default]
    Claim,
    /// They give the device to every container that requests it, with no claim.
    Open,
    /// They do not exist.
    Hide,
}

/// The names of equal replicas: `0.any`, which means any free one, and possibly `0.0`, `0.1` and so on.
///
/// Engines read every name at every start of a container, so many names make each start slower.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaNames {
    /// `0.any`, and a number for each replica of a device that has at most [`ReplicaNames::FEW`] of them.
    #[default]
    Few,
    /// `0.any`, and a number for each replica of a device that has at most [`MOST_NAMED`] of them.
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
            Self::Each => replicas <= MOST_NAMED,
            Self::Any => false,
        }
    }
}

/// Which of several devices that serve a request equally well is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The one of which the most is in use, so that whole devices stay free.
    #[default]
    Packed,
    /// The one of which the least is in use, so that tenants disturb one another less.
    Spread,
}

impl Placement {
    /// Whether the policy says nothing else.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What users other than root may hold at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "sharing.quota", deny_unknown_fields, default)]
pub struct Quota {
    /// The most shares of one user, of all devices together. A whole device counts as one share.
    pub shares: u32,
    /// The most shares of all users together; `None` for all but one of those that the policy makes. A whole device
    /// counts as all shares of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<u32>,
}

impl Default for Quota {
    fn default() -> Self {
        Self { shares: 4, all: None }
    }
}
