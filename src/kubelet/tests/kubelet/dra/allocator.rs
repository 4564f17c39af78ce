//! A small reference of the scheduler's allocator (`dynamic-resource-allocation/structured/internal/incubating`): the
//! first choice that fits, in the order of the slices' names.

use super::checker::whole;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, DeviceCapacity, ResourceSlice};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::{BTreeMap, BTreeSet};

/// One request of a claim.
pub(crate) struct Request<'a> {
    pub(crate) count: usize,
    pub(crate) capacity: Vec<(&'a str, &'a str)>,
    pub(crate) selector: &'a dyn Fn(&Device) -> bool,
}

impl<'a> Request<'a> {
    /// One device of any kind, with these amounts.
    pub(crate) fn amounts(capacity: &[(&'a str, &'a str)]) -> Self {
        Self {
            count: 1,
            capacity: capacity.to_vec(),
            selector: &|_| true,
        }
    }
}

/// Amounts by the names of their capacities.
pub(crate) type Amounts = BTreeMap<String, i64>;

/// A device that a claim gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Got {
    /// The place of its request in the claim.
    pub(crate) request: usize,
    /// Its name.
    pub(crate) device: String,
    /// What the claim consumes of a device that several claims may have.
    pub(crate) consumed: Option<Amounts>,
}

/// The scheduler's view of the pool.
pub(crate) struct Allocator {
    slices: Vec<ResourceSlice>,
    taken: BTreeSet<String>,
    consumed: BTreeMap<String, Amounts>,
}

impl Allocator {
    pub(crate) fn new(mut slices: Vec<ResourceSlice>) -> Self {
        slices.sort_by(|a, b| a.metadata.generate_name.cmp(&b.metadata.generate_name));
        Self {
            slices,
            taken: BTreeSet::new(),
            consumed: BTreeMap::new(),
        }
    }

    /// The slices are published anew; what is allocated stays.
    pub(crate) fn publish(&mut self, slices: Vec<ResourceSlice>) {
        self.slices = Self::new(slices).slices;
    }

    /// A claim with this device ends.
    pub(crate) fn release(&mut self, device: &str) {
        self.taken.remove(device);
        self.consumed.remove(device);
    }

    /// The names of the devices that a claim of one request gets; `None` if it has to wait.
    pub(crate) fn allocate(&mut self, request: &Request<'_>) -> Option<Vec<String>> {
        let got = self.allocate_all(std::slice::from_ref(request), None)?;
        Some(got.into_iter().map(|got| got.device).collect())
    }

    /// The devices that a claim gets, in the order of its requests; `None` if it has to wait. With `matching`, all of
    /// them have the same value of this attribute.
    pub(crate) fn allocate_all(&mut self, requests: &[Request<'_>], matching: Option<&str>) -> Option<Vec<Got>> {
        let each = requests.iter().enumerate();
        let wanted: Vec<_> = each
            .flat_map(|(place, request)| vec![(place, request); request.count])
            .collect();
        let mut got = Vec::new();
        self.search(&wanted, matching, None, &mut got).then_some(got)
    }

    /// Whether there are devices for `wanted`, which are charged and added to `got` then. `value` is what the attribute
    /// `matching` of those before has.
    fn search(
        &mut self,
        wanted: &[(usize, &Request<'_>)],
        matching: Option<&str>,
        value: Option<&DeviceAttribute>,
        got: &mut Vec<Got>,
    ) -> bool {
        let Some(((place, request), rest)) = wanted.split_first() else {
            return true;
        };
        let devices = self.slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        let fitting = devices.filter(|device| (request.selector)(device));
        let fitting = fitting.filter_map(|device| Some((device.clone(), self.fits(device, request)?)));
        for (device, amounts) in fitting.collect::<Vec<_>>() {
            let own = matching.map(|name| device.attributes.as_ref().and_then(|all| all.get(name)));
            let own = match own {
                Some(None) => continue,
                Some(Some(own)) if value.is_some_and(|value| value != own) => continue,
                own => own.flatten(),
            };
            let before = (self.taken.clone(), self.consumed.clone());
            got.push(Got {
                request: *place,
                device: device.name.clone(),
                consumed: self.charge(&device, amounts),
            });
            if self.search(rest, matching, own, got) {
                return true;
            }
            got.pop();
            (self.taken, self.consumed) = before;
        }
        false
    }

    /// Charges a device, and returns what is consumed of one that several claims may have.
    fn charge(&mut self, device: &Device, amounts: Amounts) -> Option<Amounts> {
        if device.allow_multiple_allocations != Some(true) {
            self.taken.insert(device.name.clone());
            return None;
        }
        let consumed = self.consumed.entry(device.name.clone()).or_default();
        for (key, amount) in &amounts {
            *consumed.entry(key.clone()).or_default() += amount;
        }
        Some(amounts)
    }

    /// What a claim would consume of a device; `None` if it cannot have it.
    fn fits(&self, device: &Device, request: &Request<'_>) -> Option<Amounts> {
        let keeps_away = |effect: &str| matches!(effect, "NoSchedule" | "NoExecute");
        if device.taints.iter().flatten().any(|taint| keeps_away(&taint.effect)) || self.taken.contains(&device.name) {
            return None;
        }
        let capacities = device.capacity.clone().unwrap_or_default();
        if !request.capacity.iter().all(|(key, _)| capacities.contains_key(*key)) {
            return None;
        }
        let mut amounts = Amounts::new();
        for (key, capacity) in &capacities {
            let wanted = request.capacity.iter().find(|(name, _)| name == key);
            let amount = consumes(capacity, wanted.map(|(_, text)| Quantity((*text).into())))?;
            let before = self.consumed.get(&device.name).and_then(|consumed| consumed.get(key));
            if before.copied().unwrap_or(0) + amount > whole(&capacity.value)? {
                return None;
            }
            amounts.insert(key.clone(), amount);
        }
        (self.consumed.contains_key(&device.name) || self.has_counters(device)).then_some(amounts)
    }

    /// Whether the counters are left that a device needs. They are charged with its first share.
    fn has_counters(&self, device: &Device) -> bool {
        let all = || self.slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        let used = all().filter(|one| self.taken.contains(&one.name) || self.consumed.contains_key(&one.name));
        let charged: Vec<&Device> = used.chain([device]).collect();
        let sets = self
            .slices
            .iter()
            .flat_map(|slice| slice.spec.shared_counters.iter().flatten());
        sets.into_iter().all(|set| {
            set.counters.iter().all(|(name, counter)| {
                let consumed = charged
                    .iter()
                    .flat_map(|device| device.consumes_counters.iter().flatten());
                let consumed = consumed.filter(|consumed| consumed.counter_set == set.name);
                let sum: i64 = consumed
                    .filter_map(|consumed| whole(&consumed.counters.get(name)?.value))
                    .sum();
                whole(&counter.value).is_some_and(|value| sum <= value)
            })
        })
    }
}

/// `calculateConsumedCapacity` and `violatesPolicy`: an amount that is missing is the default or else all, and one that
/// is named is rounded up; `None` if the policy refuses it.
fn consumes(capacity: &DeviceCapacity, wanted: Option<Quantity>) -> Option<i64> {
    let policy = capacity.request_policy.as_ref();
    let default = policy.and_then(|policy| policy.default.as_ref());
    let Some(wanted) = wanted else {
        return whole(default.unwrap_or(&capacity.value));
    };
    let wanted = whole(&wanted)?;
    let Some(range) = policy.and_then(|policy| policy.valid_range.as_ref()) else {
        return Some(wanted);
    };
    let min = whole(&range.min)?;
    let step = range.step.as_ref().and_then(whole);
    let amount = match step {
        _ if wanted < min => min,
        None => wanted,
        Some(step) => min + (wanted - min + step - 1) / step * step,
    };
    let max = range.max.as_ref().and_then(whole);
    max.is_none_or(|max| amount <= max).then_some(amount)
}
