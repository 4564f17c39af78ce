//! The keys of a policy, as they are written. What they mean together is checked afterwards, in [`super::sharing`] and
//! [`super::entry`].
//!
//! The name of each section in messages is the name of its type for serde.

use crate::inventory::DriverCapability;
use crate::policy::{
    AcceptAnnotations, AcceptEnvironment, Access, Amount, CalendarSettings, ClaimsFromEnvironment, DeviceSet, Door,
    HistoryTime, MaxWait, Monitors, MpsBlocked, MpsComputeMode, MpsDaemonOwner, MpsEnforcement, MpsUsers, PageNames,
    Placed, Placement, Priority, QueueSettings, Quota, ReplicaNames, RuntimeMode, UserPolicy, WholeDevice,
};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Unexpected, Visitor};
use std::fmt;
use std::str::FromStr;
use tranche_core::types::{
    CdiKind, DeviceSelector, HostPath, Interval, MemorySize, Overcommit, Percent, ResourceName, ShareName, WaitTime,
};
use tranche_protocol::PodPlacement;

/// The keys at the top that have an effect here.
#[derive(serde::Deserialize)]
#[serde(rename = "the policy", rename_all = "camelCase")]
pub(super) struct Top {
    pub(super) version: Option<Placed<String>>,
    pub(super) sharing: Option<SharingSection>,
    pub(super) runtime: Option<RuntimeSection>,
    pub(super) kubernetes: Option<KubernetesFields>,
    pub(super) mig: Option<MigFields>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "mig", rename_all = "camelCase")]
pub(super) struct MigFields {
    #[serde(default)]
    pub(super) layout: Vec<Placed<String>>,
    pub(super) on_demand: Option<OnDemandFields>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "onDemand")]
pub(super) struct OnDemandFields {
    pub(super) devices: DeviceSet,
}

#[derive(serde::Deserialize)]
#[serde(rename = "kubernetes")]
pub(super) struct KubernetesFields {
    #[serde(default, deserialize_with = "from_text")]
    pub(super) door: Option<Door>,
    #[serde(default, deserialize_with = "from_text")]
    pub(super) placement: Option<PodPlacement>,
    #[serde(default)]
    pub(super) devices: Vec<Placed<KubernetesDevices>>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "an entry of devices")]
pub(super) struct KubernetesDevices {
    pub(super) devices: DeviceSet,
    #[serde(default, deserialize_with = "from_text")]
    pub(super) door: Option<Door>,
    #[serde(default, deserialize_with = "from_text")]
    pub(super) resource: Option<ResourceName>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "flags", rename_all = "camelCase")]
pub(super) struct FlagsSection {
    pub(super) mig_strategy: Option<Placed<String>>,
    pub(super) plugin: Option<PluginFlags>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "flags.plugin", rename_all = "camelCase")]
pub(super) struct PluginFlags {
    pub(super) shared_devices_allocation_policy: Option<Placed<String>>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "sharing", rename_all = "camelCase")]
pub(super) struct SharingSection {
    pub(super) mps: Option<Placed<MpsSection>>,
    pub(super) time_slicing: Option<Placed<TimeSlicingSection>>,
    pub(super) turns: Option<Placed<TurnsSection>>,
    pub(super) dedicated: Option<Placed<DedicatedSection>>,
    #[serde(default)]
    pub(super) whole_device: WholeDevice,
    #[serde(default)]
    pub(super) names: ReplicaNames,
    #[serde(default)]
    pub(super) placement: Placement,
    #[serde(default)]
    pub(super) overcommit: Overcommits,
    #[serde(default)]
    pub(super) wait: WaitTime,
    #[serde(default)]
    pub(super) quota: Quota,
    #[serde(default)]
    pub(super) queue: QueueSettings,
    pub(super) calendar: Option<CalendarSettings>,
    #[serde(default)]
    pub(super) history: HistoryTime,
    #[serde(default)]
    pub(super) page_names: PageNames,
    #[serde(default)]
    pub(super) access: Access,
    #[serde(default)]
    pub(super) monitors: Monitors,
    #[serde(default)]
    pub(super) users: UserPolicy,
}

#[derive(serde::Deserialize, Default)]
#[serde(rename = "overcommit")]
pub(super) struct Overcommits {
    #[serde(default, deserialize_with = "from_text")]
    pub(super) memory: Option<Overcommit>,
    #[serde(default, deserialize_with = "from_text")]
    pub(super) compute: Option<Overcommit>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "sharing.mps", rename_all = "camelCase")]
pub(super) struct MpsSection {
    #[serde(default)]
    pub(super) daemon: MpsDaemonOwner,
    #[serde(default)]
    pub(super) users: MpsUsers,
    #[serde(default)]
    pub(super) compute_mode: MpsComputeMode,
    pub(super) pipe: Option<Placed<MpsPipe>>,
    #[serde(default)]
    pub(super) enforcement: MpsEnforcement,
    #[serde(default)]
    pub(super) blocked: MpsBlocked,
    pub(super) grace: Option<u32>,
    #[serde(default)]
    pub(super) rename_by_default: bool,
    #[serde(default)]
    pub(super) fail_requests_greater_than_one: bool,
    pub(super) resources: Option<Placed<Vec<Placed<Entry>>>>,
}

/// How earlier versions could mount the daemon's directory in a container. It is read-only now, whatever is written.
#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MpsPipe {
    Writable,
    ReadOnly,
}

#[derive(serde::Deserialize)]
#[serde(rename = "sharing.timeSlicing", rename_all = "camelCase")]
pub(super) struct TimeSlicingSection {
    #[serde(default)]
    pub(super) interval: Interval,
    #[serde(default)]
    pub(super) rename_by_default: bool,
    #[serde(default)]
    pub(super) fail_requests_greater_than_one: bool,
    pub(super) resources: Option<Placed<Vec<Placed<Entry>>>>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "sharing.turns", rename_all = "camelCase")]
pub(super) struct TurnsSection {
    #[serde(default)]
    pub(super) assume_tested: bool,
    #[serde(default)]
    pub(super) rename_by_default: bool,
    pub(super) resources: Option<Placed<Vec<Placed<TurnsEntry>>>>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "an entry of resources", rename_all = "camelCase")]
pub(super) struct TurnsEntry {
    pub(super) name: Option<Placed<String>>,
    pub(super) rename: Option<Placed<String>>,
    #[serde(default)]
    pub(super) devices: DeviceSet,
    pub(super) holders: Option<u32>,
    pub(super) turn: Option<WaitTime>,
    pub(super) idle: Option<WaitTime>,
    #[serde(default, deserialize_with = "from_text")]
    pub(super) host_memory: Option<MemorySize>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "sharing.dedicated")]
pub(super) struct DedicatedSection {
    pub(super) devices: DeviceSet,
}

#[derive(serde::Deserialize)]
#[serde(rename = "an entry of resources")]
pub(super) struct Entry {
    pub(super) name: Option<Placed<String>>,
    pub(super) rename: Option<Placed<String>>,
    #[serde(default)]
    pub(super) devices: DeviceSet,
    pub(super) replicas: Option<Placed<u32>>,
    pub(super) shares: Option<Placed<Vec<Placed<ShareSection>>>>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "a share")]
pub(super) struct ShareSection {
    pub(super) name: Option<Placed<ShareName>>,
    #[serde(default, deserialize_with = "from_text")]
    pub(super) compute: Option<Percent>,
    #[serde(default, deserialize_with = "from_text")]
    pub(super) memory: Option<Amount>,
    pub(super) priority: Option<Priority>,
}

#[derive(serde::Deserialize)]
#[serde(rename = "runtime", rename_all = "camelCase")]
pub(super) struct RuntimeSection {
    #[serde(default)]
    pub(super) accept_environment: AcceptEnvironment,
    pub(super) accept_annotations: Option<AcceptAnnotations>,
    #[serde(default)]
    pub(super) accept_volume_mounts: bool,
    #[serde(default)]
    pub(super) claims_from_environment: ClaimsFromEnvironment,
    #[serde(default)]
    pub(super) max_wait: MaxWait,
    pub(super) unchecked_kinds: Option<Vec<CdiKind>>,
    pub(super) swarm_resource: Option<Vec<Placed<String>>>,
    pub(super) supported_capabilities: Option<NotEmpty<DriverCapability>>,
    #[serde(default)]
    pub(super) disable_require: bool,
    pub(super) runtimes: Option<NotEmpty<Placed<String>>>,
    pub(super) annotation_prefixes: Option<NotEmpty<Placed<String>>>,
    pub(super) spec_dirs: Option<NotEmpty<HostPath>>,
    pub(super) default_kind: Option<CdiKind>,
    #[serde(default)]
    pub(super) ignore_imex_channels: bool,
    #[serde(default)]
    pub(super) mode: RuntimeMode,
    pub(super) additional_gids: Option<bool>,
    pub(super) disabled_hooks: Option<Vec<Placed<String>>>,
    pub(super) driver_root: Option<HostPath>,
    pub(super) log: Option<HostPath>,
    pub(super) nvidia_container_cli: Option<HostPath>,
}

/// A list that has at least one item.
pub(super) struct NotEmpty<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NotEmpty<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::deserialize(deserializer)?;
        match list.is_empty() {
            true => Err(D::Error::custom(
                "the list is empty; write at least one item, or leave the key out",
            )),
            false => Ok(Self(list)),
        }
    }
}

/// Reads types from text that are numbers elsewhere, such as `80%`.
fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err = tranche_core::error::Error>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(Error::custom)
}

impl<'de> Deserialize<'de> for DeviceSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DevicesVisitor)
    }
}

struct DevicesVisitor;

impl<'de> Visitor<'de> for DevicesVisitor {
    type Value = DeviceSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all, a number of devices, or a list of indices and UUIDs like [0, \"1:0\", GPU-…]")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<DeviceSet, E> {
        match text {
            "all" => Ok(DeviceSet::All),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<DeviceSet, E> {
        match u32::try_from(number) {
            Ok(count @ 1..) => Ok(DeviceSet::Count(count)),
            _ => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<DeviceSet, A::Error> {
        let list: Vec<Placed<DeviceSelector>> = Vec::deserialize(SeqAccessDeserializer::new(list))?;
        match list.is_empty() {
            false => Ok(DeviceSet::List(list)),
            true => Err(A::Error::custom("the list is empty; write all, or at least one device")),
        }
    }
}
