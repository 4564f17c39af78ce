//! The plan in `host.json`: of equal replicas only the first one, and how many there are, so that neither the file nor
//! the time to read it grows with a number in the policy.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::policy::MOST_PARTS;
use crate::share::{Plan, Share, SplitDevice};
use tranche_core::types::{DeviceKey, ShareName};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CountedPlan<'a> {
    /// How many equal replicas a device has of which `plan` has only the first.
    replicas: BTreeMap<DeviceKey, u32>,
    plan: Cow<'a, Plan>,
}

pub(super) fn serialize<S: Serializer>(plan: &Plan, serializer: S) -> Result<S::Ok, S::Error> {
    let counted = plan.devices.iter().filter_map(|split| Some((split, count(split)?)));
    let replicas: BTreeMap<DeviceKey, u32> = counted.map(|(split, count)| (split.key.clone(), count)).collect();
    let mut plan = Cow::Borrowed(plan);
    if !replicas.is_empty() {
        let devices = plan.to_mut().devices.iter_mut();
        let counted = devices.filter(|split| replicas.contains_key(&split.key));
        counted.for_each(|split| split.shares.truncate(1));
    }
    CountedPlan { replicas, plan }.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Plan, D::Error> {
    let CountedPlan { replicas, plan } = CountedPlan::deserialize(deserializer)?;
    let mut plan = plan.into_owned();
    for (key, count) in replicas {
        let device = plan.devices.iter_mut().find(|split| split.key == key);
        let replica = device.filter(|split| split.shares.len() == 1 && split.replica().is_some());
        let Some(split) = replica.filter(|_| (2..=MOST_PARTS).contains(&count)) else {
            return Err(D::Error::custom(format!("{key} cannot have {count} replicas")));
        };
        let first = split.shares.pop();
        split.shares = first.iter().flat_map(|first| replicas_of(first, count)).collect();
    }
    Ok(plan)
}

/// How many replicas the device has, if they are equal but for their numbers, which count from 0.
fn count(split: &SplitDevice) -> Option<u32> {
    let first = split.replica()?;
    let count = u32::try_from(split.shares.len()).ok()?;
    let is_equal = count > 1 && split.shares.iter().eq(replicas_of(first, count).iter());
    is_equal.then_some(count)
}

/// So many replicas like this one.
fn replicas_of(first: &Share, count: u32) -> Vec<Share> {
    let numbered = |number| Share {
        name: ShareName::replica(number),
        ..first.clone()
    };
    (0..count).map(numbered).collect()
}
