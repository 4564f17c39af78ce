//! A device that is handed out with a claim: what is held of it, and what is free.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::ledger::{Books, HeldShare};
use tranche_core::text::some;
use tranche_core::types::{DeviceKey, ShareName};
use tranche_plan::share::{Share, SplitDevice};
use tranche_state::held::names::DeviceNames;
use tranche_state::held::or_dash;
use tranche_state::public_status::PublicDevice;

/// A device that is handed out with a claim.
#[derive(Debug, Serialize)]
pub struct DeviceStatus {
    /// `nvidia.com/gpu=0`.
    pub device: String,
    /// Its key in the ledger.
    pub key: DeviceKey,
    /// The shares that it has under the policy of now.
    pub shares: Vec<String>,
    /// Those of them that are held.
    pub held: Vec<String>,
    /// Shares that are held and that the policy of now does not have.
    pub held_of_earlier_policy: Vec<String>,
    /// Whether it is known what the policy of now says of the device. If not, `shares` is empty, `held` has every
    /// share that is held, and what is free is unknown.
    pub policy_known: bool,
    /// Whether one claim holds all of it.
    pub held_whole: bool,
    /// Whether the device's book in the ledger could be read. If not, it is unknown what is held or free.
    pub readable: bool,
    /// The shares that a container can have now, each of them alone; empty while the whole device is held.
    pub free: Vec<String>,
    /// How many of those can be had together: beside shares of an earlier policy, not all of them need fit.
    pub free_together: usize,
}

/// The devices that are shared or of which something is held, in the order of their names. `plan_known` says whether
/// host.json could be read, which has the plan.
pub(super) fn devices(names: &DeviceNames, plan_known: bool, books: &Books) -> Vec<DeviceStatus> {
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
        let siblings = || split.into_iter().flat_map(|split| &split.shares);
        // A share of an earlier policy may have the name of one of now, and another size.
        let is_of_now = |held: &&HeldShare| {
            split.is_some_and(|split| {
                let has = |share: &Share| share.name == held.name && split.promise(share) == held.promise;
                split.shares.iter().any(has)
            })
        };
        let shares = on_it().flat_map(|claim| claim.part.shares());
        let (now, earlier): (Vec<&HeldShare>, Vec<&HeldShare>) = shares.partition(is_of_now);
        let earlier: BTreeSet<String> = earlier.into_iter().map(|share| share.name.to_string()).collect();
        let is_free = |split: &SplitDevice, share: &Share| {
            let part = split.part(std::slice::from_ref(&share.name));
            readable && books.is_free(key, &part, split.bounds())
        };
        let is_free = |share: &&Share| split.is_some_and(|split| is_free(split, share));
        let free: Vec<ShareName> = siblings().filter(is_free).map(|share| share.name.clone()).collect();
        let free_together = match book.zip(split) {
            Some((book, split)) => book.fit_together(key, split.part(&free).shares().to_vec(), split.bounds()),
            None => free.len(),
        };
        let is_held = |share: &&Share| now.iter().any(|held| held.name == share.name);
        let names = |shares: &[&ShareName]| shares.iter().map(ToString::to_string).collect();
        Self {
            device,
            key: key.clone(),
            shares: names(&siblings().map(|share| &share.name).collect::<Vec<_>>()),
            held: names(&siblings().filter(is_held).map(|share| &share.name).collect::<Vec<_>>()),
            held_of_earlier_policy: earlier.into_iter().collect(),
            // Instances of a GPU exclude it as a whole, and the reverse.
            policy_known: true,
            held_whole: on_it().any(|claim| claim.device != *key || claim.part.shares().is_empty()),
            readable,
            free: names(&free.iter().collect::<Vec<_>>()),
            free_together,
        }
    }

    /// The same device where nothing is known of the policy: what is held of it need not be of an earlier one.
    fn without_policy(mut self) -> Self {
        self.held.append(&mut self.held_of_earlier_policy);
        self.policy_known = false;
        self
    }

    /// The device as the broker wrote it down for everybody. `plan_known` says whether the broker knew the policy.
    pub(super) fn of_public(device: &PublicDevice, plan_known: bool) -> Self {
        let status = Self::of_planned(device);
        if plan_known { status } else { status.without_policy() }
    }

    fn of_planned(device: &PublicDevice) -> Self {
        let held = || device.claims.iter().flat_map(|claim| &claim.shares);
        let (now, earlier): (BTreeSet<&String>, BTreeSet<&String>) =
            held().partition(|name| device.shares.contains(name));
        Self {
            device: device.device.clone(),
            key: device.key.clone(),
            shares: device.shares.clone(),
            held: now.into_iter().cloned().collect(),
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
        self.held_whole || !self.held.is_empty() || !self.held_of_earlier_policy.is_empty()
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
            parts.push(format!("{} of {}", self.held.len(), self.shares.len()));
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
            free => ranges(free),
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

    #[test]
    fn numbers_that_follow_are_a_range() {
        let of = |names: &[&str]| ranges(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["3", "4", "5", "9"]), "3–5, 9");
        assert_eq!(of(&["0", "1", "3"]), "0, 1, 3");
        assert_eq!(of(&["a", "0", "007", "8"]), "a, 0, 007, 8");
        assert_eq!(of(&["18446744073709551615", "0"]), "18446744073709551615, 0");
    }
}
