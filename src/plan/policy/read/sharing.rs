//! The `sharing` part of a policy.

use super::entry::{Around, read_split};
use super::sections::{DedicatedSection, Entry, MpsPipe, SharingSection};
use super::turns;
use crate::policy::{MOST_NAMED, MpsSettings, Parts, Placed, Policy, ReplicaNames, Split, Strategy};
use tranche_core::error::Result;
use tranche_core::types::Place;

/// The policy of the section. With `mig_too`, `nvidia.com/gpu` means MIG devices as well.
pub(super) fn read(file: &str, sharing: SharingSection, mig_too: bool, warnings: &mut Vec<String>) -> Result<Policy> {
    let mut policy = Policy {
        file: file.to_owned(),
        whole_device: sharing.whole_device,
        names: sharing.names,
        placement: sharing.placement,
        overcommit_memory: sharing.overcommit.memory.unwrap_or_default(),
        overcommit_compute: sharing.overcommit.compute.unwrap_or_default(),
        wait: sharing.wait,
        quota: sharing.quota,
        queue: sharing.queue,
        calendar: sharing.calendar,
        history: sharing.history,
        page_names: sharing.page_names,
        access: sharing.access,
        monitors: sharing.monitors,
        users: sharing.users,
        ..Policy::default()
    };
    warnings.extend(
        policy
            .users
            .warnings()
            .iter()
            .map(|warning| format!("{file}: {warning}")),
    );
    // NVIDIA's plugin defaults to true for failRequestsGreaterThanOne under MPS, because there a second replica gives a
    // container nothing. Here several shares of a device add up in one claim, so the default is false.
    let around = |strategy, rename_by_default, fail_requests_greater_than_one| Around {
        file,
        strategy,
        mig_too,
        rename_by_default,
        fail_requests_greater_than_one,
    };
    if let Some(Placed { place, value: mps }) = sharing.mps {
        if let Some(pipe) = mps.pipe.filter(|pipe| pipe.value == MpsPipe::Writable) {
            let place = pipe.place.of(file);
            warnings.push(format!(
                "{place}: pipe: writable has no effect: containers can only connect to the daemon; remove the line"
            ));
        }
        policy.mps = MpsSettings {
            daemon: mps.daemon,
            users: mps.users,
            compute_mode: mps.compute_mode,
            enforcement: mps.enforcement,
            blocked: mps.blocked,
            grace: mps.grace,
        };
        let around = around(Strategy::Mps, mps.rename_by_default, mps.fail_requests_greater_than_one);
        read_resources(around, place, "sharing.mps", mps.resources, &mut policy, warnings)?;
    }
    if let Some(Placed { place, value: slicing }) = sharing.time_slicing {
        policy.interval = slicing.interval;
        let (rename, fail) = (slicing.rename_by_default, slicing.fail_requests_greater_than_one);
        let around = around(Strategy::TimeSlicing, rename, fail);
        read_resources(
            around,
            place,
            "sharing.timeSlicing",
            slicing.resources,
            &mut policy,
            warnings,
        )?;
    }
    if let Some(Placed { place, value: section }) = sharing.turns {
        // A claim is a place among the holders, so that a second one of the same device gives nothing.
        let around = around(Strategy::Turns, section.rename_by_default, true);
        turns::read(around, place, section, &mut policy, warnings)?;
    }
    let counts = policy.splits.iter().filter_map(|split| match split.parts {
        Parts::Equal(count) => usize::try_from(count).ok(),
        Parts::Turns(_) | Parts::Named(_) | Parts::Whole => None,
    });
    if policy.names == ReplicaNames::Each && counts.into_iter().any(|count| count > MOST_NAMED) {
        warnings.push(format!(
            "{file}: names: each has no effect on devices with more than {MOST_NAMED} replicas: they have the name any"
        ));
    }
    if let Some(dedicated) = sharing.dedicated {
        let around = around(Strategy::Dedicated, false, false);
        policy.splits.push(read_dedicated(around, dedicated)?);
    }
    Ok(policy)
}

/// Devices that one container has to itself: one entry for all of them.
fn read_dedicated(around: Around<'_>, dedicated: Placed<DedicatedSection>) -> Result<Split> {
    Ok(Split {
        devices: around.each_once(dedicated.value.devices)?,
        place: dedicated.place,
        ..Split::dedicated()
    })
}

fn read_resources(
    around: Around<'_>,
    place: Place,
    section: &str,
    resources: Option<Placed<Vec<Placed<Entry>>>>,
    policy: &mut Policy,
    warnings: &mut Vec<String>,
) -> Result<()> {
    for entry in entries(around, place, section, resources)? {
        policy.splits.push(read_split(around, entry, warnings)?);
    }
    Ok(())
}

/// The entries of the section of a strategy.
///
/// # Errors
/// Returns a usage error if it has no entry.
pub(super) fn entries<T>(
    around: Around<'_>,
    place: Place,
    section: &str,
    resources: Option<Placed<Vec<T>>>,
) -> Result<Vec<T>> {
    const HINT: &str = "say which devices are shared, or remove the section";
    let Some(resources) = resources else {
        return Err(around
            .wrong(place, format!("{section}: resources is missing"))
            .hint(HINT));
    };
    match resources.value.is_empty() {
        true => Err(around.wrong(resources.place, "resources is empty").hint(HINT)),
        false => Ok(resources.value),
    }
}
