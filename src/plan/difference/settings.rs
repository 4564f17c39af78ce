//! Settings of a policy that are not seen in the names of devices and shares.

use super::Difference;
use crate::share::{Plan, SplitDevice};

/// What changes from one plan to the other, apart from the names in `difference`: keys of the policy, and the devices
/// of which something else changes.
pub fn other_settings(before: &Plan, after: &Plan, difference: &Difference<'_>) -> Vec<String> {
    let keys = [
        ("sharing.placement", before.placement == after.placement),
        ("sharing.wait", before.wait == after.wait),
        ("sharing.quota", before.quota == after.quota),
        ("sharing.queue", before.queue == after.queue),
        ("sharing.calendar", before.calendar == after.calendar),
        ("sharing.access", before.access == after.access),
        ("sharing.monitors", before.monitors == after.monitors),
        ("sharing.users", before.users == after.users),
        ("kubernetes", before.kubernetes == after.kubernetes),
    ];
    let keys = keys.into_iter().filter(|(_, is_same)| !is_same);
    let keys = keys.map(|(key, _)| key.to_owned());
    let named = difference.appear.iter().chain(&difference.vanish);
    let named = named.chain(difference.change.iter().map(|change| &change.after));
    let is_named = |split: &SplitDevice| {
        let mut calls = named.clone().filter_map(|offer| offer.call.as_ref());
        calls.any(|call| call.device == split.key)
    };
    let same_device = |split: &SplitDevice| before.devices.iter().find(|one| one.key == split.key);
    let is_other = |split: &&SplitDevice| same_device(split).is_some_and(|one| one != *split) && !is_named(split);
    let devices = after.devices.iter().filter(is_other);
    keys.chain(devices.map(|split| split.device.to_string())).collect()
}
