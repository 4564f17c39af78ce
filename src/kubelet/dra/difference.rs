//! What has to be sent so that the API server has the desired slices.

use super::quantity::thousandths;
use super::slices::{DesiredSlice, NodeRef};
use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceCapacity, ResourcePool, ResourceSlice};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::{BTreeMap, BTreeSet};

/// The slices that the API server has, by their names.
pub type Actual = BTreeMap<String, ResourceSlice>;

/// The last slices that were published, or were about to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Their generation.
    pub generation: i64,
    /// The slices.
    pub slices: Vec<DesiredSlice>,
}

/// What has to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// The generation of the pool.
    pub generation: i64,
    /// The places of the slices that are missing.
    pub create: Vec<usize>,
    /// The places of those that differ, with their names.
    pub update: Vec<(usize, String)>,
    /// The names of the slices that are left over.
    pub delete: Vec<String>,
}

impl Difference {
    /// Whether nothing has to be sent.
    pub fn is_none(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }
}

/// What has to be sent so that `actual` becomes `desired`. One generation has one content: what is missing or changed
/// of the last publication is restored at its generation, and a new content gets the next one, in all slices.
pub fn difference(
    desired: &[DesiredSlice],
    actual: &Actual,
    published: Option<&Published>,
    node: &NodeRef,
) -> Difference {
    let found = matched(desired, actual, node);
    let newest = actual.values().map(|slice| slice.spec.pool.generation).max();
    let newest = newest.unwrap_or(0);
    let is_kept = |generation: i64| {
        let pool = pool(node, generation, desired);
        found.iter().zip(desired).all(|(name, wanted)| {
            let slice = name.as_ref().and_then(|name| actual.get(name));
            slice.is_some_and(|slice| slice.spec.pool == pool && is_same(wanted, slice, node))
        })
    };
    let generation = match published {
        Some(last) if last.slices == desired && last.generation >= newest => last.generation,
        None if is_kept(newest) => newest,
        last => last.map_or(0, |last| last.generation).max(newest).saturating_add(1),
    };
    let pool = pool(node, generation, desired);
    let mut difference = Difference {
        generation,
        ..Difference::default()
    };
    for (place, (name, wanted)) in found.iter().zip(desired).enumerate() {
        match name.as_ref().and_then(|name| actual.get_key_value(name)) {
            None => difference.create.push(place),
            Some((name, slice)) if slice.spec.pool != pool || !is_same(wanted, slice, node) => {
                difference.update.push((place, name.clone()));
            }
            Some(_) => {}
        }
    }
    let used: BTreeSet<&String> = found.iter().flatten().collect();
    let left_over = actual.keys().filter(|name| !used.contains(name));
    difference.delete = left_over.cloned().collect();
    difference
}

/// The pool of a slice of this generation.
pub fn pool(node: &NodeRef, generation: i64, desired: &[DesiredSlice]) -> ResourcePool {
    ResourcePool {
        generation,
        name: node.name.clone(),
        resource_slice_count: i64::try_from(desired.len()).unwrap_or(i64::MAX),
    }
}

/// The name of the slice that is at the place of each desired one.
fn matched(desired: &[DesiredSlice], actual: &Actual, node: &NodeRef) -> Vec<Option<String>> {
    let is_at = |wanted: &DesiredSlice, name: &str, slice: &ResourceSlice| {
        let rest = name.strip_prefix(&wanted.generate_name);
        // The names of the pool and of the node cannot be changed (`ValidateResourceSliceUpdate`).
        let is_own = slice.spec.pool.name == node.name && slice.spec.node_name.as_ref() == Some(&node.name);
        is_own && rest.is_some_and(|rest| !rest.contains('-')) && slice.metadata.deletion_timestamp.is_none()
    };
    let find = |wanted: &DesiredSlice| {
        let mut all = actual.iter().filter(|(name, slice)| is_at(wanted, name, slice));
        all.next().map(|(name, _)| name.clone())
    };
    desired.iter().map(find).collect()
}

/// Whether a slice has the desired content.
fn is_same(wanted: &DesiredSlice, slice: &ResourceSlice, node: &NodeRef) -> bool {
    let spec = &slice.spec;
    let owners = slice.metadata.owner_references.iter().flatten();
    let counters = spec.shared_counters.as_deref().unwrap_or_default();
    let rest = (spec.all_nodes, &spec.node_selector, spec.per_device_node_selection);
    owners.into_iter().any(|owner| owner.uid == node.uid)
        && rest == (None, &None, None)
        && same_counters(counters, &wanted.shared_counters)
        && same_devices(spec.devices.as_deref().unwrap_or_default(), &wanted.devices)
}

/// Whether counter sets are the same, however their quantities are written.
fn same_counters(one: &[CounterSet], other: &[CounterSet]) -> bool {
    let is_same = |(a, b): (&CounterSet, &CounterSet)| a.name == b.name && normal_counters(a) == normal_counters(b);
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

fn normal_counters(set: &CounterSet) -> BTreeMap<&String, Option<i128>> {
    let counters = set.counters.iter();
    counters
        .map(|(name, counter)| (name, thousandths(&counter.value)))
        .collect()
}

/// Whether devices are the same, however their quantities are written and whenever their taints were added.
pub fn same_devices(one: &[Device], other: &[Device]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a == b || normal(a) == normal(b))
}

fn normal(device: &Device) -> Device {
    let mut device = device.clone();
    for taint in device.taints.iter_mut().flatten() {
        taint.time_added = None;
        taint.value = taint.value.take().filter(|value| !value.is_empty());
    }
    for capacity in device.capacity.iter_mut().flat_map(BTreeMap::values_mut) {
        quantities(capacity).for_each(normalize);
    }
    let consumed = device.consumes_counters.iter_mut().flatten();
    for counter in consumed.flat_map(|consumed| consumed.counters.values_mut()) {
        normalize(&mut counter.value);
    }
    device
}

fn quantities(capacity: &mut DeviceCapacity) -> impl Iterator<Item = &mut Quantity> {
    let policy = capacity.request_policy.iter_mut().flat_map(|policy| {
        let range = policy.valid_range.iter_mut();
        let range = range.flat_map(|range| {
            [&mut range.min]
                .into_iter()
                .chain(&mut range.max)
                .chain(&mut range.step)
        });
        let values = policy.valid_values.iter_mut().flatten();
        policy.default.iter_mut().chain(range).chain(values)
    });
    [&mut capacity.value].into_iter().chain(policy)
}

fn normalize(quantity: &mut Quantity) {
    if let Some(thousandths) = thousandths(quantity) {
        quantity.0 = format!("{thousandths}m");
    }
}
