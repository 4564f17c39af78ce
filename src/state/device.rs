//! A device that is handed out with a claim: what is held of it, and what is free.

use crate::held::names::DeviceNames;
use crate::held::or_dash;
use crate::public_status::PublicDevice;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::ledger::{Books, HeldShare};
use tranche_core::text::some;
use tranche_core::types::{DeviceKey, ShareName};
use tranche_plan::reserve::{InBooks, has_own_amounts};
use tranche_plan::share::SplitDevice;

/// A device that is handed out with a claim.
#[derive(Debug, Serialize)]
pub struct DeviceStatus {
    /// `nvidia.com/gpu=0`.
    pub device: String,
    /// Its key in the ledger.
    pub key: DeviceKey,
    /// The shares that it has under the policy of now, of equal replicas the first thousand.
    pub shares: Vec<String>,
    /// How many those are in all.
    pub count: usize,
    /// Those of them that are held.
    pub held: Vec<String>,
    /// Shares that are held with sizes of their own, which no policy names: those of resource claims of Kubernetes.
    pub held_amounts: Vec<String>,
    /// Shares that are held and that the policy of now does not have.
    pub held_of_earlier_policy: Vec<String>,
    /// Whether it is known what the policy of now says of the device. If not, `shares` is empty, `held` has every
    /// share that is held, and what is free is unknown.
    pub policy_known: bool,
    /// Whether one claim holds all of it.
    pub held_whole: bool,
    /// Whether the device's book in the ledger could be read. If not, it is unknown what is held or free.
    pub readable: bool,
    /// The shares that a container can have now, each of them alone, of equal replicas the first thousand; empty while
    /// the whole device is held.
    pub free: Vec<String>,
    /// How many of all that are free can be had together: beside shares of an earlier policy, not all of them need fit.
    pub free_together: usize,
}

/// The devices that are shared or of which something is held, in the order of their names. `plan_known` says whether
/// host.json could be read, which has the plan.
pub fn devices(names: &DeviceNames, plan_known: bool, books: &Books) -> Vec<DeviceStatus> {
    let shared = names.shared().iter();
    let mut keys: BTreeMap<&DeviceKey, Option<&SplitDevice>> = shared.map(|split| (&split.key, Some(split))).collect();
    for claim in books.claims() {
        keys.entry(&claim.device).or_insert(None);
    }
    let devices = keys.into_iter().map(|(key, split)| {
        let status = DeviceStatus::new(names.device(key), key, split, books);
        if plan_known { status } else { status.without_policy() }
    });
    let mut devices: Vec<DeviceStatus> = devices.collect();
    devices.sort_by(|a, b| (a.device.len(), &a.device).cmp(&(b.device.len(), &b.device)));
    devices
}

impl DeviceStatus {
    /// The device `key`, which is called `device` and which the plan splits as `split` says, if it does.
    fn new(device: String, key: &DeviceKey, split: Option<&SplitDevice>, books: &Books) -> Self {
        let book = books.books.iter().find(|book| book.gpu == *key.gpu());
        let claims = book.into_iter().flat_map(|book| &book.claims);
        let on_it = || claims.clone().filter(|claim| claim.device.overlaps(key));
        let readable = !books.damaged.iter().any(|book| book.may_be_of(key.gpu()));
        let split = split.filter(|split| !split.method.is_whole());
        // A share of an earlier policy may have the name of one of now, and another size.
        let is_of_now = |held: &HeldShare| {
            let share = split.and_then(|split| split.share(&held.name).zip(Some(split)));
            share.is_some_and(|(share, split)| split.promise(share) == held.promise)
        };
        let (mut now, mut amounts, mut earlier) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for claim in on_it() {
            let is_amount = split.is_some_and(|split| has_own_amounts(split, claim));
            for share in claim.part.shares() {
                let list = match is_amount {
                    _ if is_of_now(share) => &mut now,
                    true => &mut amounts,
                    false => &mut earlier,
                };
                list.insert(&share.name);
            }
        }
        let names = |names: BTreeSet<&ShareName>| names.into_iter().map(ToString::to_string).collect();
        let books = InBooks::of(books);
        let (free, free_together) = match split.filter(|_| readable) {
            Some(split) => {
                let free = split.free(&books);
                (free.listed(), books.together(split, &free))
            }
            None => (Vec::new(), 0),
        };
        Self {
            device,
            key: key.clone(),
            shares: split.map_or_else(Vec::new, |split| {
                split.shares.listed().map(|name| name.to_string()).collect()
            }),
            count: split.map_or(0, |split| split.shares.len()),
            held: names(now),
            held_amounts: names(amounts),
            held_of_earlier_policy: names(earlier),
            // Instances of a GPU exclude it as a whole, and the reverse.
            policy_known: true,
            held_whole: on_it().any(|claim| claim.device != *key || claim.part.shares().is_empty()),
            readable,
            free: free.iter().map(ToString::to_string).collect(),
            free_together,
        }
    }

    /// The same device where nothing is known of the policy: what is held of it need not be of an earlier one.
    fn without_policy(mut self) -> Self {
        self.held.append(&mut self.held_amounts);
        self.held.append(&mut self.held_of_earlier_policy);
        self.policy_known = false;
        self
    }

    /// The device as the broker wrote it down for everybody. `plan_known` says whether the broker knew the policy.
    pub fn of_public(device: &PublicDevice, plan_known: bool) -> Self {
        let status = Self::of_planned(device);
        if plan_known { status } else { status.without_policy() }
    }

    fn of_planned(device: &PublicDevice) -> Self {
        let count = device.count.unwrap_or(device.shares.len());
        // Of many replicas, not each is in the list.
        let is_counted =
            |name: &str| count > device.shares.len() && name.parse().is_ok_and(|number: usize| number < count);
        let is_of_now = |name: &String| device.shares.contains(name) || is_counted(name);
        let (mut now, mut amounts, mut earlier) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for claim in &device.claims {
            for name in &claim.shares {
                let list = match claim.has_own_amounts {
                    _ if is_of_now(name) => &mut now,
                    true => &mut amounts,
                    false => &mut earlier,
                };
                list.insert(name);
            }
        }
        Self {
            device: device.device.clone(),
            key: device.key.clone(),
            shares: device.shares.clone(),
            count,
            held: now.into_iter().cloned().collect(),
            held_amounts: amounts.into_iter().cloned().collect(),
            held_of_earlier_policy: earlier.into_iter().cloned().collect(),
            policy_known: true,
            held_whole: device.claims.iter().any(|claim| claim.shares.is_empty()),
            readable: device.readable,
            free: device.free.clone(),
            free_together: device.free_together.unwrap_or(device.free.len()),
        }
    }

    /// Whether something of it is held.
    pub fn is_held(&self) -> bool {
        let held = [&self.held, &self.held_amounts, &self.held_of_earlier_policy];
        self.held_whole || held.iter().any(|shares| !shares.is_empty())
    }

    /// What is held of it, in a table.
    pub fn held_text(&self) -> String {
        if !self.readable {
            return "unknown".to_owned();
        }
        if self.held_whole {
            return "whole".to_owned();
        }
        let mut parts = Vec::new();
        if !self.policy_known && !self.held.is_empty() {
            parts.push(self.held.len().to_string());
        }
        if !self.shares.is_empty() {
            parts.push(format!("{} of {}", self.held.len(), self.count));
        }
        if !self.held_amounts.is_empty() {
            parts.push(format!("{} of own size", self.held_amounts.len()));
        }
        if !self.held_of_earlier_policy.is_empty() {
            parts.push(format!("{} of an earlier policy", self.held_of_earlier_policy.len()));
        }
        or_dash(Some(parts.join(", ")).filter(|parts| !parts.is_empty()))
    }

    /// What of it is free, in a table.
    pub fn free_text(&self) -> String {
        match &self.free[..] {
            _ if !self.readable || !self.policy_known => "unknown".to_owned(),
            [] if self.shares.is_empty() && !self.held_whole && self.held_of_earlier_policy.is_empty() => {
                "whole".to_owned()
            }
            [] => "-".to_owned(),
            free if self.free_together < free.len() => {
                format!("{} ({} fit together)", ranges(free), self.free_together)
            }
            free => match self.free_together - free.len() {
                0 => ranges(free),
                more => format!("{} and {more} more", ranges(free)),
            },
        }
    }
}

/// Names as a list, where numbers that follow one another are a range: `0, 3–9`.
fn ranges(names: &[String]) -> String {
    let mut parts: Vec<(String, Option<u64>, Option<u64>)> = Vec::new();
    for name in names {
        // A name like `007` is not the number 7.
        let number = name.parse::<u64>().ok().filter(|n| n.to_string() == *name);
        match parts.last_mut() {
            Some((_, Some(_), last)) if number.is_some() && number == last.and_then(|l| l.checked_add(1)) => {
                *last = number;
            }
            _ => parts.push((name.clone(), number, number)),
        }
    }
    let part = |(name, first, last): (String, Option<u64>, Option<u64>)| match (first, last) {
        (Some(first), Some(last)) if first.checked_add(1) == Some(last) => format!("{first}, {last}"),
        (Some(first), Some(last)) if last > first => format!("{first}–{last}"),
        _ => name,
    };
    some(&parts.into_iter().map(part).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public_status::{PublicClaim, PublicStatus};
    use tranche_core::claims::{ClaimPart, Claims};
    use tranche_core::ledger::{ClaimState, HeldPart, KubernetesObject};
    use tranche_core::types::{MemorySize, Percent, Promise, Strategy};

    #[test]
    fn numbers_that_follow_are_a_range() {
        let of = |names: &[&str]| ranges(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["3", "4", "5", "9"]), "3–5, 9");
        assert_eq!(of(&["0", "1", "3"]), "0, 1, 3");
        assert_eq!(of(&["a", "0", "007", "8"]), "a, 0, 007, 8");
        assert_eq!(of(&["18446744073709551615", "0"]), "18446744073709551615, 0");
    }

    /// Of five thousand replicas, the lists have the first thousand.
    #[test]
    fn what_is_not_listed_is_counted() {
        let claim = |share: &str| PublicClaim {
            shares: vec![share.to_owned()],
            state: ClaimState::Held,
            since: 0,
            has_own_amounts: share.len() > 4,
        };
        let names = |from: usize| (from..1024).map(|n| n.to_string()).collect();
        let device = PublicDevice {
            device: "nvidia.com/gpu=0".to_owned(),
            key: "GPU-8188460b-0e3a".parse().unwrap(),
            strategy: Some(Strategy::TimeSlicing),
            shares: names(0),
            count: Some(5000),
            free: names(1),
            free_together: Some(4998),
            readable: true,
            claims: vec![claim("0"), claim("3000"), claim("5000"), claim("8a1c-2d3e")],
            daemon: None,
            turns: None,
        };
        let status = DeviceStatus::of_public(&device, true);
        assert_eq!(status.held_text(), "2 of 5000, 1 of own size, 1 of an earlier policy");
        assert_eq!(status.free_text(), "1–1023 and 3975 more");
    }

    /// What a cluster's scheduler gives away has sizes that no policy names, and is not left of an earlier one.
    #[test]
    fn a_resource_claim_with_an_amount_is_of_no_earlier_policy() {
        let policy = "sharing: {mps: {resources: [{name: nvidia.com/gpu, devices: [0], replicas: 10}]}}";
        let policy = tranche_plan::policy::read::parse("c.yaml", policy).unwrap().policy;
        let plan = tranche_plan::share::plan(&policy, &tranche_plan::sim::open("t4x2").unwrap()).unwrap();
        let split = &plan.devices[0];
        let top = tempfile::tempdir().unwrap();
        let claims = Claims::open(top.path()).unwrap();
        let claim = KubernetesObject {
            namespace: "lab".to_owned(),
            name: "train".to_owned(),
            uid: "u".to_owned(),
        };
        let promise = Promise::Mps {
            memory: Some(MemorySize::from_mib(2048)),
            compute: Some(Percent::of_sum(30)),
        };
        let part = ClaimPart {
            device: split.key.clone(),
            part: HeldPart::share("8a1c".parse().unwrap(), promise),
            bounds: split.bounds(),
            name: claim.claim_on("gpu-0-8a1c"),
            asked_as: "nvidia.com/claim=u-gpu-0-8a1c".to_owned(),
        };
        claims.lock().unwrap().reserve_for(&claim, &[part]).unwrap();
        let books = claims.books().unwrap();
        let public = PublicStatus::of(Some(&plan), &books, &[], 0);
        for status in [
            DeviceStatus::new("nvidia.com/gpu=0".to_owned(), &split.key, Some(split), &books),
            DeviceStatus::of_public(&public.devices[0], true),
        ] {
            assert_eq!(status.held_of_earlier_policy, [""; 0]);
            assert_eq!(status.held_text(), "0 of 10, 1 of own size");
            assert!(status.is_held());
        }
        // Under a policy that shares the device in another way, it is one of an earlier policy.
        let turns = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [0], replicas: 10}]}}";
        let turns = tranche_plan::policy::read::parse("c.yaml", turns).unwrap().policy;
        let turns = tranche_plan::share::plan(&turns, &tranche_plan::sim::open("t4x2").unwrap()).unwrap();
        let status = DeviceStatus::new("gpu 0".to_owned(), &split.key, Some(&turns.devices[0]), &books);
        assert_eq!(status.held_of_earlier_policy, ["8a1c"]);
    }
}
