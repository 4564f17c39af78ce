//! Which ResourceSlices a node should have.
//!
//! A node has one pool, with the devices of each GPU in a slice of their own: a change of one GPU sends that slice's
//! devices again, and the other slices differ in their generation alone. The allocator takes the first device that
//! fits, in the order of the names of the slices and then of the devices: that is the order in which devices are to be
//! filled.

use super::attributes::shortened;
use super::devices::{Devices, counters};
use k8s_openapi::api::resource::v1::{CounterSet, Device, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use tranche_protocol::{DraDevice, DraDevices, DraDivided};

/// The most devices of a slice that has taints or counters (`ResourceSliceMaxDevicesWithAdvancedFeatures`). Others may
/// have 128, but a taint that comes must not divide a slice.
pub const MOST_DEVICES: usize = 64;

/// The longest beginning of a name to which the API server adds five characters; it cuts a longer one
/// (`MaxGeneratedNameLength` of `apiserver/pkg/storage/names`).
pub const MOST_GENERATE_NAME: usize = 58;

/// The most counter sets of a slice (`ResourceSliceMaxCounterSets`).
const MOST_SETS: usize = 8;

/// The most counters of a set (`ResourceSliceMaxCountersPerCounterSet`).
pub(super) const MOST_COUNTERS: usize = 32;

/// What the API server can say about a device, from the most to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// With devices that several claims have parts of, with taints, and with counters that devices share: Kubernetes
    /// 1.36.
    Full,
    /// The same without counters: instances of MIG that do not exist are left out.
    Uncounted,
    /// Each share is a device, and what no claim can have is left out: the API server drops the rest.
    Plain,
}

/// The node whose devices these are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRef {
    /// Its name, which is also that of the pool.
    pub name: String,
    /// Its UID: the slices are removed with the node.
    pub uid: String,
}

/// A slice as it should be; its generation depends on what the API server has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredSlice {
    /// What its name begins with. No other slice of the pool has the same.
    pub generate_name: String,
    /// Its devices; empty for a slice of counters.
    pub devices: Vec<Device>,
    /// The counters that devices of the pool share; empty for a slice of devices.
    pub shared_counters: Vec<CounterSet>,
}

/// The slices of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DesiredPool {
    /// The slices, in the order of their names.
    pub slices: Vec<DesiredSlice>,
    /// What was shortened or left out, and why.
    pub warnings: Vec<String>,
}

/// The slices of the devices that `devices` lists. What would break a limit of the API is shortened or left out, with a
/// warning; names of drivers and nodes are taken as valid.
pub fn slices(devices: &DraDevices, driver: &str, node: &NodeRef, form: Form) -> DesiredPool {
    let mut made = Devices::new(devices, driver, form);
    let divided: Vec<&DraDivided> = match form {
        Form::Full => devices.divided.iter().filter(|gpu| made.can_count(gpu)).collect(),
        Form::Uncounted | Form::Plain => Vec::new(),
    };
    let sets: Vec<CounterSet> = divided.iter().map(|gpu| counter_set(gpu)).collect();
    let mut slices: Vec<DesiredSlice> = sets
        .chunks(MOST_SETS)
        .map(|sets| DesiredSlice {
            shared_counters: sets.to_vec(),
            ..DesiredSlice::default()
        })
        .collect();
    let mut existing = by_gpu(&devices.devices);
    // A request for several GPUs gets whole ones while there are any: a container has one MPS share at most.
    existing.sort_by_key(|gpu| gpu.iter().any(|device| device.parts.is_some()));
    let existing = existing
        .iter()
        .map(|gpu| gpu.iter().flat_map(|device| made.of(device)).collect());
    let mut all: Vec<Vec<Device>> = existing.collect();
    // What exists is given away before something is made.
    all.extend(divided.iter().map(|gpu| made.instances(gpu)));
    for devices in &all {
        slices.extend(devices.chunks(MOST_DEVICES).map(|devices| DesiredSlice {
            devices: devices.to_vec(),
            ..DesiredSlice::default()
        }));
    }
    numbered(&mut slices, driver, node);
    DesiredPool {
        slices,
        warnings: made.warnings,
    }
}

/// The counters of a GPU. The set has the name of the GPU, which no other one of the pool has.
fn counter_set(gpu: &DraDivided) -> CounterSet {
    CounterSet {
        name: gpu.gpu.name.clone(),
        counters: counters(&gpu.counters),
    }
}

/// The devices of each GPU, in the order in which the GPUs are first listed.
fn by_gpu(devices: &[DraDevice]) -> Vec<Vec<&DraDevice>> {
    let mut gpus: Vec<Vec<&DraDevice>> = Vec::new();
    for device in devices {
        let is_same = |gpu: &&mut Vec<&DraDevice>| gpu.first().is_some_and(|first| first.gpu.name == device.gpu.name);
        match gpus.iter_mut().find(is_same) {
            Some(gpu) => gpu.push(device),
            None => gpus.push(vec![device]),
        }
    }
    gpus
}

/// Gives each slice the beginning of its name. The number comes first, because the API server cuts a long name at its
/// end, and the order of the names is that of the devices.
///
/// MIG instances that exist do not overlap, and need no counters. Those that are made for claims do: their counter
/// sets, eight in a slice, are slices before all others, because a set is found in any slice of the pool, and the
/// number of GPUs changes less often than that of their devices.
fn numbered(slices: &mut [DesiredSlice], driver: &str, node: &NodeRef) {
    for (number, slice) in slices.iter_mut().enumerate() {
        let name = format!("{number:03}-{driver}-{}", node.name);
        let name = shortened(&name, MOST_GENERATE_NAME - 1).trim_end_matches(['-', '.']);
        slice.generate_name = format!("{name}-");
    }
}

impl DesiredSlice {
    /// The object for the API server.
    pub fn object(&self, driver: &str, node: &NodeRef, pool: ResourcePool) -> ResourceSlice {
        ResourceSlice {
            metadata: ObjectMeta {
                generate_name: Some(self.generate_name.clone()),
                owner_references: Some(vec![owner(node)]),
                ..ObjectMeta::default()
            },
            spec: ResourceSliceSpec {
                driver: driver.to_owned(),
                node_name: Some(node.name.clone()),
                pool,
                devices: Some(self.devices.clone()).filter(|devices| !devices.is_empty()),
                shared_counters: Some(self.shared_counters.clone()).filter(|sets| !sets.is_empty()),
                ..ResourceSliceSpec::default()
            },
        }
    }
}

/// The node as the owner: the slices of a node that is deleted are deleted too.
pub(super) fn owner(node: &NodeRef) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name.clone(),
        uid: node.uid.clone(),
        controller: Some(true),
        ..OwnerReference::default()
    }
}
