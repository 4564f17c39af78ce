//! The devices of a ResourceSlice that one device of the node becomes.

use super::attributes::{NVIDIA, TRANCHE, attributes};
use super::label_value::label_value;
use super::quantity::{MOST_MIB, mebibytes, number};
use super::slices::{Form, MOST_COUNTERS};
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, Device, DeviceCapacity, DeviceCounterConsumption,
    DeviceTaint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::text::shown;
use tranche_core::types::{MemorySize, Percent, Strategy};
use tranche_protocol::{DraDevice, DraDevices, DraDivided, DraHeld, DraInstance, DraMig, DraParts, DraShare};

/// The longest name of a device, in bytes: it is a DNS label (RFC 1123).
const MOST_LABEL: usize = 63;

/// The capacities that have the same name with NVIDIA's driver.
const NVIDIAS: [&str; 2] = ["memory", "multiprocessors"];

/// All of a device, in percent.
const WHOLE: u64 = 100;

/// Makes the devices of the slices of one pool.
pub(super) struct Devices<'a> {
    node: &'a DraDevices,
    /// The name of the driver: the domain of the capacities that have none.
    driver: &'a str,
    form: Form,
    names: BTreeSet<String>,
    pub(super) warnings: Vec<String>,
}

impl<'a> Devices<'a> {
    pub(super) fn new(node: &'a DraDevices, driver: &'a str, form: Form) -> Self {
        Self {
            node,
            driver,
            form,
            names: BTreeSet::new(),
            warnings: Vec::new(),
        }
    }

    /// What `device` is published as: itself, or its shares.
    pub(super) fn of(&mut self, device: &DraDevice) -> Vec<Device> {
        match &device.parts {
            None => {
                let capacity = [
                    ("memory", device.memory.map(|size| self.memory(device, size))),
                    (
                        "multiprocessors",
                        device.multiprocessors.map(|count| number(count.into())),
                    ),
                ];
                let is_held = !device.held.is_empty();
                let plain = self.plain(&device.name, device, None, capacity, is_held);
                plain.into_iter().collect()
            }
            Some(parts) if parts.equal && self.form != Form::Plain => self.shared(device, parts).into_iter().collect(),
            Some(parts) => {
                let shares = parts.shares.iter();
                shares.filter_map(|share| self.share(device, share)).collect()
            }
        }
    }

    /// Whether the instances of a GPU can be published: its counters are within the limits of the API.
    pub(super) fn can_count(&mut self, gpu: &DraDivided) -> bool {
        let name = &gpu.gpu.name;
        let is_first = |other: &&DraDivided| other.gpu.name == *name;
        let first = self.node.divided.iter().find(is_first);
        let why = if !is_label(name) || !gpu.counters.keys().all(|counter| is_label(counter)) {
            "a name of it or of a counter is not a DNS label"
        } else if !(1..=MOST_COUNTERS).contains(&gpu.counters.len()) {
            "the number of its counters is not valid"
        } else if !first.is_some_and(|first| std::ptr::eq(first, gpu)) {
            "another GPU has the same name"
        } else {
            return true;
        };
        let name: String = name.chars().take(MOST_LABEL).collect();
        self.warnings.push(format!(
            "the instances of \"{}\" are not published: {why}",
            shown(&name)
        ));
        false
    }

    /// The instances that a GPU can have.
    pub(super) fn instances(&mut self, gpu: &DraDivided) -> Vec<Device> {
        gpu.instances.iter().filter_map(|one| self.instance(gpu, one)).collect()
    }

    fn instance(&mut self, gpu: &DraDivided, one: &DraInstance) -> Option<Device> {
        let held = one.held_by.iter().map(|by| DraHeld {
            share: None,
            memory: None,
            compute: None,
            by: by.clone(),
        });
        let device = DraDevice {
            name: one.name.clone(),
            gpu: gpu.gpu.clone(),
            mig: Some(DraMig {
                uuid: None,
                profile: Some(one.profile.clone()),
                engines: one.engines,
            }),
            memory: Some(one.memory),
            multiprocessors: Some(one.multiprocessors),
            strategy: Strategy::Dedicated,
            memory_guarantee: gpu.guarantee.clone(),
            compute_guarantee: gpu.guarantee.clone(),
            parts: None,
            unhealthy: gpu.unhealthy.clone(),
            out_of_service: gpu.out_of_service.clone(),
            held: held.collect(),
        };
        let is_of_set = |(counter, amount): (&String, &u32)| gpu.counters.get(counter).is_some_and(|has| has >= amount);
        if one.consumes.is_empty() || !one.consumes.iter().all(is_of_set) {
            let name = shown(&one.name);
            self.warnings.push(format!(
                "the device \"{name}\" is not published: its GPU lacks what it consumes"
            ));
            return None;
        }
        let consumes = DeviceCounterConsumption {
            counter_set: gpu.gpu.name.clone(),
            counters: counters(&one.consumes),
        };
        let mut devices = self.of(&device);
        for device in &mut devices {
            device.consumes_counters = Some(vec![consumes.clone()]);
        }
        devices.pop()
    }

    /// A share that is published alone.
    fn share(&mut self, device: &DraDevice, share: &DraShare) -> Option<Device> {
        let capacity = [
            ("memory", share.memory.map(|size| self.memory(device, size))),
            ("compute", share.compute.map(|percent| number(percent.get().into()))),
        ];
        let is_held = |held: &DraHeld| held.share.as_ref().is_none_or(|name| *name == share.name);
        let is_held = device.held.iter().any(is_held);
        self.plain(&share.device, device, Some(share), capacity, is_held)
    }

    fn plain<const N: usize>(
        &mut self,
        name: &str,
        device: &DraDevice,
        share: Option<&DraShare>,
        capacity: [(&'static str, Option<Quantity>); N],
        is_held: bool,
    ) -> Option<Device> {
        let amounts = capacity.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let amounts: Vec<(&'static str, Quantity)> = amounts.collect();
        let own = amounts.iter().map(|(name, value)| {
            let value = DeviceCapacity {
                value: value.clone(),
                request_policy: None,
            };
            ((*name).to_owned(), value)
        });
        let mut capacity = own.collect();
        let nvidias = amounts.into_iter().filter(|(name, _)| NVIDIAS.contains(name));
        self.add_nvidias(&mut capacity, nvidias.chain(engines(device)), None);
        self.device(name, device, share, capacity, is_held)
    }

    /// One device that several claims have a part of. The scheduler charges every capacity of it to every claim, and
    /// one without a default as a whole (`fillEmptyRequest` of the allocator): each has a default, and what nobody
    /// shares, such as multiprocessors, is left out.
    fn shared(&mut self, device: &DraDevice, parts: &DraParts) -> Option<Device> {
        let first = parts.shares.first();
        let mut capacity = BTreeMap::new();
        let mut is_held = device.held.iter().any(|held| held.share.is_none());
        let mut publish = |name: &str, part: Divided, unit: fn(u64) -> Quantity| {
            is_held |= part.left == 0;
            capacity.insert(name.to_owned(), part.capacity(unit));
        };
        if let Some(most) = parts.most_memory.map(MemorySize::mib) {
            let mib = |size: Option<MemorySize>| size.map(MemorySize::mib);
            let held = held(device, parts, |held| mib(held.memory), |share| mib(share.memory));
            let left = self.bounded(device, most).saturating_sub(held);
            let part = Divided {
                left,
                default: mib(first.and_then(|share| share.memory)).unwrap_or(most).min(MOST_MIB),
                most: mib(device.memory).unwrap_or(left),
            };
            publish("memory", part, mebibytes);
        }
        if let Some(most) = parts.most_compute {
            let compute = |percent: Option<Percent>| percent.map(|percent| u64::from(percent.get()));
            let held = held(
                device,
                parts,
                |held| compute(held.compute),
                |share| compute(share.compute),
            );
            let part = Divided {
                left: u64::from(most.get()).saturating_sub(held),
                default: compute(first.and_then(|share| share.compute)).unwrap_or(WHOLE),
                most: WHOLE,
            };
            publish("compute", part, number);
        }
        let left = u64::from(parts.most_claims).saturating_sub(device.held.len() as u64);
        let claims = Divided {
            left,
            default: 1,
            most: left,
        };
        publish("shares", claims, number);
        // What the whole device has is for selectors: a claim gets nothing of these, and is charged nothing.
        let nothing = CapacityRequestPolicy {
            default: Some(number(0)),
            valid_range: None,
            valid_values: Some(vec![number(0)]),
        };
        let memory = device.memory.map(|size| ("memory", self.memory(device, size)));
        let sms = device
            .multiprocessors
            .map(|count| ("multiprocessors", number(count.into())));
        let whole: Vec<_> = memory.into_iter().chain(sms).chain(engines(device)).collect();
        self.add_nvidias(&mut capacity, whole.into_iter(), Some(&nothing));
        let mut shared = self.device(&device.name, device, None, capacity, is_held)?;
        shared.allow_multiple_allocations = Some(true);
        Some(shared)
    }

    /// Adds what NVIDIA's driver publishes, under its domain, where no capacity has the same name already.
    fn add_nvidias(
        &self,
        capacity: &mut BTreeMap<String, DeviceCapacity>,
        amounts: impl Iterator<Item = (&'static str, Quantity)>,
        policy: Option<&CapacityRequestPolicy>,
    ) {
        for (name, value) in amounts {
            let name = match self.driver == NVIDIA {
                true => name.to_owned(),
                false => format!("{NVIDIA}/{name}"),
            };
            capacity.entry(name).or_insert(DeviceCapacity {
                value,
                request_policy: policy.cloned(),
            });
        }
    }

    fn device(
        &mut self,
        name: &str,
        device: &DraDevice,
        share: Option<&DraShare>,
        capacity: BTreeMap<String, DeviceCapacity>,
        is_held: bool,
    ) -> Option<Device> {
        let mut taints: Vec<DeviceTaint> = [(is_held, "held"), (device.unhealthy.is_some(), "unhealthy")]
            .into_iter()
            .filter(|(counts, _)| *counts)
            .map(|(_, key)| taint(key))
            .collect();
        taints.extend(device.out_of_service.as_deref().map(|why| DeviceTaint {
            // The key says it already, and a value is short.
            value:
                Some(label_value(why.strip_prefix("out of service ").unwrap_or(why))).filter(|value| !value.is_empty()),
            ..taint("out-of-service")
        }));
        if self.form == Form::Plain && !taints.is_empty() {
            return None;
        }
        if !self.is_new_name(name) {
            return None;
        }
        Some(Device {
            name: name.to_owned(),
            attributes: Some(attributes(self.node, self.driver, device, share, &mut self.warnings)),
            capacity: Some(capacity).filter(|capacity| !capacity.is_empty()),
            taints: Some(taints).filter(|taints| !taints.is_empty()),
            ..Device::default()
        })
    }

    /// Whether a device can have this name. The driver gets the name back from the scheduler, so another one is no
    /// help.
    fn is_new_name(&mut self, name: &str) -> bool {
        let why = if !is_label(name) {
            "its name is not a DNS label"
        } else if !self.names.insert(name.to_owned()) {
            "another device has the same name"
        } else {
            return true;
        };
        let name: String = name.chars().take(MOST_LABEL).collect();
        self.warnings
            .push(format!("the device \"{}\" is not published: {why}", shown(&name)));
        false
    }

    fn memory(&mut self, device: &DraDevice, size: MemorySize) -> Quantity {
        mebibytes(self.bounded(device, size.mib()))
    }

    fn bounded(&mut self, device: &DraDevice, mib: u64) -> u64 {
        if mib > MOST_MIB {
            let name = shown(&device.name);
            self.warnings.push(format!(
                "{name}: its memory of {mib} MiB is published as {MOST_MIB} MiB, the most that is valid"
            ));
        }
        mib.min(MOST_MIB)
    }
}

/// The engines of a MIG device, by NVIDIA's names.
fn engines(device: &DraDevice) -> impl Iterator<Item = (&'static str, Quantity)> + use<> {
    let engines = device.mig.as_ref().and_then(|mig| mig.engines);
    let named = engines.map(|engines| {
        [
            ("copyEngines", engines.copy),
            ("decoders", engines.decoders),
            ("encoders", engines.encoders),
            ("jpegEngines", engines.jpeg),
            ("ofaEngines", engines.ofa),
        ]
    });
    let named = named.into_iter().flatten();
    named.map(|(name, count)| (name, number(count.into())))
}

/// Amounts as counters.
pub(super) fn counters(amounts: &BTreeMap<String, u32>) -> BTreeMap<String, Counter> {
    let counter = |(name, amount): (&String, &u32)| {
        let value = number(u64::from(*amount));
        (name.clone(), Counter { value })
    };
    amounts.iter().map(counter).collect()
}

/// How much of something others hold, by what was promised to them or by what their share has.
fn held(
    device: &DraDevice,
    parts: &DraParts,
    promised: impl Fn(&DraHeld) -> Option<u64>,
    of_share: impl Fn(&DraShare) -> Option<u64>,
) -> u64 {
    let amounts = device.held.iter().map(|held| {
        let share = || {
            parts
                .shares
                .iter()
                .find(|share| held.share.as_ref() == Some(&share.name))
        };
        promised(held).or_else(|| share().and_then(&of_share)).unwrap_or(0)
    });
    amounts.fold(0, u64::saturating_add)
}

/// An amount that claims have parts of, in whole units.
struct Divided {
    /// What all claims together may have.
    left: u64,
    /// What a claim has that does not name an amount.
    default: u64,
    /// The most that one claim may have.
    most: u64,
}

impl Divided {
    /// The rules are those of `validateRequestPolicyRange` (`pkg/apis/resource/validation`): `min`, `min` + `step` and
    /// `max` may not be above the value, and the default not above `max`. Where less is left than the default, `max` is
    /// left out: the value alone refuses a claim then, and a claim that names a smaller amount still fits.
    fn capacity(self, unit: fn(u64) -> Quantity) -> DeviceCapacity {
        let default = self.default.max(1);
        let max = self.left.min(self.most);
        let range = CapacityRequestPolicyRange {
            min: unit(1),
            max: (default <= max).then(|| unit(max)),
            step: (self.left > 1).then(|| unit(1)),
        };
        DeviceCapacity {
            value: unit(self.left),
            request_policy: Some(CapacityRequestPolicy {
                default: Some(unit(default)),
                valid_range: (self.left > 0).then_some(range),
                valid_values: None,
            }),
        }
    }
}

fn taint(key: &str) -> DeviceTaint {
    DeviceTaint {
        effect: "NoSchedule".to_owned(),
        key: format!("{TRANCHE}/{key}"),
        ..DeviceTaint::default()
    }
}

/// Whether `name` is a DNS label: small letters, digits and hyphens, the latter not at an end (RFC 1123).
fn is_label(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_outer = |at: Option<&u8>| at.is_some_and(|byte| *byte != b'-');
    let bytes = name.as_bytes();
    bytes.len() <= MOST_LABEL
        && is_outer(bytes.first())
        && is_outer(bytes.last())
        && bytes.iter().all(|byte| is_inner(*byte))
}
