//! The rules that an API server of Kubernetes 1.36 has for the slices of a pool (`pkg/apis/resource/validation` and the
//! limits of `pkg/apis/resource/types.go`), and those by which the scheduler takes a pool for complete and valid
//! (`structured/internal/incubating/pools_incubating.go`).

mod policies;

use k8s_openapi::api::resource::v1::{CounterSet, Device, DeviceAttribute, ResourceSlice};
use policies::check_capacity;
use std::collections::{BTreeMap, BTreeSet};
use tranche_kubelet::dra::quantity::thousandths;

/// What is found.
pub(super) type Found = Vec<String>;

/// Which rules the slices of one pool break.
pub(crate) fn check(slices: &[ResourceSlice]) -> Found {
    let mut found = Found::new();
    let mut names = BTreeSet::new();
    let mut sets: BTreeMap<&str, &CounterSet> = BTreeMap::new();
    let mut begins = BTreeSet::new();
    for slice in slices {
        check_slice(slice, &mut found);
        let devices = slice.spec.devices.iter().flatten();
        let double = devices.filter(|device| !names.insert(device.name.clone()));
        found.extend(double.map(|device| format!("{}: listed twice in the pool", device.name)));
        for set in slice.spec.shared_counters.iter().flatten() {
            if sets.insert(&set.name, set).is_some() {
                found.push(format!("{}: the counter set is listed twice in the pool", set.name));
            }
        }
        if !begins.insert(&slice.metadata.generate_name) {
            found.push("two slices have the same place".into());
        }
        if slice.spec.pool.resource_slice_count != slices.len() as i64 {
            found.push("the number of slices is wrong".into());
        }
        let pool = (&slice.spec.pool, &slice.spec.driver, &slice.spec.node_name);
        if pool != (&slices[0].spec.pool, &slices[0].spec.driver, &slices[0].spec.node_name) {
            found.push("slices of one pool differ in its name, generation, driver or node".into());
        }
    }
    if !slices.is_sorted_by_key(|slice| &slice.metadata.generate_name) {
        found.push("the order of the names is not that of the slices".into());
    }
    for device in slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten()) {
        for consumed in device.consumes_counters.iter().flatten() {
            let set = sets.get(consumed.counter_set.as_str());
            let is_known = |name: &String| set.is_some_and(|set| set.counters.contains_key(name));
            if !consumed.counters.keys().all(is_known) {
                found.push(format!("{}: a counter is not in the pool", device.name));
            }
        }
    }
    found
}

fn check_slice(slice: &ResourceSlice, found: &mut Found) {
    let spec = &slice.spec;
    let begin = slice.metadata.generate_name.as_deref().unwrap_or_default();
    if begin.len() > 58 || !is_subdomain(&format!("{begin}x7k2p")) {
        found.push(format!("generateName {begin}"));
    }
    for owner in slice.metadata.owner_references.iter().flatten() {
        if [&owner.api_version, &owner.kind, &owner.name, &owner.uid]
            .iter()
            .any(|text| text.is_empty())
        {
            found.push("an owner without a version, kind, name or uid".into());
        }
    }
    if spec.driver.len() > 63 || !is_subdomain(&spec.driver) {
        found.push(format!("driver {}", spec.driver));
    }
    if spec.pool.name.len() > 253 || !spec.pool.name.split('/').all(is_subdomain) {
        found.push(format!("pool {}", spec.pool.name));
    }
    if spec.pool.generation < 0 || spec.pool.resource_slice_count < 1 {
        found.push("generation or number of slices".into());
    }
    let nodes = [
        spec.node_name.as_ref().is_some_and(|name| is_subdomain(name)),
        spec.node_selector.is_some(),
        spec.all_nodes == Some(true),
        spec.per_device_node_selection == Some(true),
    ];
    if nodes.iter().filter(|is_set| **is_set).count() != 1 || spec.all_nodes == Some(false) {
        found.push("exactly one of nodeName, nodeSelector, allNodes, perDeviceNodeSelection".into());
    }
    // The API server allows neither; a slice with neither is of no use.
    if spec.devices.as_ref().is_some_and(|all| !all.is_empty())
        == spec.shared_counters.as_ref().is_some_and(|all| !all.is_empty())
    {
        found.push("exactly one of devices, sharedCounters".into());
    }
    let devices = spec.devices.as_deref().unwrap_or_default();
    let is_advanced = |device: &Device| {
        device.taints.iter().flatten().next().is_some() || device.consumes_counters.iter().flatten().next().is_some()
    };
    let most = if devices.iter().any(is_advanced) { 64 } else { 128 };
    if devices.len() > most {
        found.push(format!("{} devices", devices.len()));
    }
    devices.iter().for_each(|device| check_device(device, found));
    let sets = spec.shared_counters.as_deref().unwrap_or_default();
    if sets.len() > 8 {
        found.push(format!("{} counter sets", sets.len()));
    }
    for set in sets {
        check_counters(&set.name, set.counters.keys(), found);
    }
}

fn check_counters<'a>(set: &str, counters: impl ExactSizeIterator<Item = &'a String>, found: &mut Found) {
    if !is_label(set) || !(1..=32).contains(&counters.len()) {
        found.push(format!("the counter set {set}"));
    }
    found.extend(
        counters
            .filter(|name| !is_label(name))
            .map(|name| format!("the counter {name}")),
    );
}

fn check_device(device: &Device, found: &mut Found) {
    let name = &device.name;
    let mut wrong = |what: &str| found.push(format!("{name}: {what}"));
    if !is_label(name) {
        wrong("its name is not a DNS label");
    }
    let attributes = device.attributes.iter().flatten();
    let capacities = device.capacity.iter().flatten();
    if attributes.clone().count() + capacities.clone().count() > 32 {
        wrong("more than 32 attributes and capacities");
    }
    let keys = attributes
        .clone()
        .map(|(key, _)| key)
        .chain(capacities.clone().map(|(key, _)| key));
    keys.filter(|key| !is_qualified(key)).for_each(|key| wrong(key));
    attributes
        .filter(|(_, value)| !is_attribute(value))
        .for_each(|(key, _)| wrong(&format!("the value of {key}")));
    let allows = device.allow_multiple_allocations == Some(true);
    for (key, capacity) in capacities {
        check_capacity(capacity, allows)
            .iter()
            .for_each(|what| wrong(&format!("{key}: {what}")));
    }
    let taints = device.taints.as_deref().unwrap_or_default();
    // 16 from 1.36, 4 before.
    if taints.len() > 4 {
        wrong("too many taints");
    }
    for taint in taints {
        let value = taint.value.as_deref().unwrap_or_default();
        let is_effect = matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute" | "None");
        if !is_label_name(&taint.key) || !is_effect || !(value.is_empty() || is_name(value)) {
            wrong("a taint");
        }
    }
    let consumes = device.consumes_counters.as_deref().unwrap_or_default();
    let sets: BTreeSet<&String> = consumes.iter().map(|consumed| &consumed.counter_set).collect();
    if consumes.len() > 2 || sets.len() != consumes.len() {
        wrong("its counter sets");
    }
    if device.node_name.is_some() || device.node_selector.is_some() || device.all_nodes.is_some() {
        wrong("a node of its own without perDeviceNodeSelection");
    }
    for consumed in consumes {
        check_counters(&consumed.counter_set, consumed.counters.keys(), found);
    }
}

fn is_attribute(value: &DeviceAttribute) -> bool {
    let texts = [&value.string, &value.version];
    let set = [
        value.bool.is_some(),
        value.int.is_some(),
        value.string.is_some(),
        value.version.is_some(),
    ];
    set.iter().filter(|is_set| **is_set).count() == 1
        && texts
            .iter()
            .all(|text| text.as_ref().is_none_or(|text| text.len() <= 64))
        && value.version.as_ref().is_none_or(|version| is_semver(version))
}

/// `semverRe`, without its parts for prereleases and builds, which nothing here has.
fn is_semver(version: &str) -> bool {
    let parts: Vec<&str> = version.split('.').collect();
    let is_number = |part: &&str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part.len() == 1 || !part.starts_with('0'))
    };
    // A selector reads the numbers with 64 bits.
    parts.len() == 3 && parts.iter().all(is_number) && parts.iter().all(|part| part.parse::<u64>().is_ok())
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// A DNS label of any length.
fn is_part(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter().all(|end| end.is_some_and(is_alphanumeric))
        && text.bytes().all(|byte| is_alphanumeric(byte) || byte == b'-')
}

pub(super) fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

/// The name of a label or its value.
fn is_name(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    text.len() <= 63
        && ends
            .iter()
            .all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn is_label_name(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_name(name),
        None => is_name(key),
    }
}

fn is_qualified(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    domain.is_none_or(|domain| domain.len() <= 63 && is_subdomain(domain))
        && (1..=32).contains(&name.len())
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(is_inner)
}

/// A quantity as the scheduler reads it with `Value()`: whole, rounded up, and with 63 bits.
pub(super) fn whole(quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> Option<i64> {
    let thousandths = thousandths(quantity)?;
    i64::try_from(thousandths.div_euclid(1000) + i128::from(thousandths.rem_euclid(1000) != 0)).ok()
}
