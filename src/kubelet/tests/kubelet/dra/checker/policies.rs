//! The rules for capacities.

use super::{Found, whole};
use k8s_openapi::api::resource::v1::{CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Which rules a capacity breaks, of a device that allows several claims or one.
pub(super) fn check_capacity(capacity: &DeviceCapacity, allows: bool) -> Found {
    let mut found = Found::new();
    let Some(value) = whole(&capacity.value).filter(|value| *value >= 0) else {
        return vec![format!("the value {}", capacity.value.0)];
    };
    let Some(policy) = &capacity.request_policy else {
        // Not a rule of the API: the first claim would take all of it.
        if allows {
            found.push("no default on a device for several claims".into());
        }
        return found;
    };
    if !allows {
        found.push("a policy on a device for one claim".into());
    }
    check_policy(policy, value, &mut found);
    found
}

fn check_policy(policy: &CapacityRequestPolicy, value: i64, found: &mut Found) {
    let Some(default) = policy.default.as_ref().and_then(whole) else {
        return found.push("no valid default".into());
    };
    let values = policy.valid_values.as_deref().unwrap_or_default();
    match &policy.valid_range {
        Some(_) if !values.is_empty() => found.push("values and a range".into()),
        Some(range) => check_range(range, value, default, found),
        None if values.is_empty() => {}
        None => {
            let all: Vec<Option<i64>> = values.iter().map(whole).collect();
            let is_fit = all.iter().all(|one| one.is_some_and(|one| one <= value));
            if !is_fit || all.len() > 10 || !all.is_sorted() || !all.contains(&Some(default)) {
                found.push("its valid values".into());
            }
        }
    }
}

fn check_range(range: &CapacityRequestPolicyRange, value: i64, default: i64, found: &mut Found) {
    let read = |quantity: &Option<Quantity>| quantity.as_ref().map(|quantity| whole(quantity).unwrap_or(-1));
    let (min, max, step) = (whole(&range.min).unwrap_or(-1), read(&range.max), read(&range.step));
    let mut refuse = |is_wrong: bool, what: &str| {
        if is_wrong {
            found.push(what.to_owned());
        }
    };
    refuse(min < 0 || min > value, "min is not from 0 to the value");
    refuse(default < min, "the default is below min");
    refuse(max.is_some_and(|max| min > max), "min is above max");
    refuse(max.is_some_and(|max| max > value), "max is above the value");
    refuse(max.is_some_and(|max| default > max), "the default is above max");
    if let Some(step) = step {
        refuse(step < 1, "no valid step");
        refuse(min.saturating_add(step) > value, "min and a step are above the value");
        let is_whole = |one: i64| one.saturating_sub(min) % step.max(1) == 0;
        refuse(!is_whole(default), "the default is not on a step");
        refuse(max.is_some_and(|max| !is_whole(max)), "max is not on a step");
    }
}
