//! Whether work is suspended that a change of the driver, or of tranche, would lose.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use tranche_core::types::DeviceKey;
use tranche_state::turns::{ClaimKey, HolderRecord, TurnRecord};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let Some(by_turns) = &subject.by_turns else {
        return vec![Diagnosis::skipped("it cannot be read what is recorded of turns")];
    };
    let of_each = by_turns
        .iter()
        .flat_map(|(device, record)| of_device(subject, device, record));
    let found: Vec<Diagnosis> = of_each.collect();
    match found.is_empty() {
        true => vec![Diagnosis::good("no work is suspended")],
        false => found,
    }
}

fn of_device(subject: &DoctorSubject, device: &DeviceKey, record: &TurnRecord) -> Vec<Diagnosis> {
    let catalogue = subject.inventory.catalogue();
    let named = catalogue.all().find(|known| known.key() == *device);
    let name = named.map_or_else(|| device.to_string(), |known| known.to_string());
    let now = subject.inventory.driver.as_ref().map(|driver| &driver.version);
    let is_of_other = |(key, _): &(&ClaimKey, &HolderRecord)| record.suspended_by_other(key, now).is_some();
    let (lost, kept): (Vec<_>, Vec<_>) = record.suspended().partition(is_of_other);
    let [lost, kept] = [lost, kept].map(|all| all.into_iter().map(|(_, holder)| holder).collect::<Vec<_>>());
    let of = |holders: &[&HolderRecord]| {
        let mib = holders.iter().map(|holder| holder.bytes).sum::<u64>() >> 20;
        format!(
            "{name}: {} suspended, with {mib} MiB in the memory of the machine",
            holders.len()
        )
    };
    let mut found = Vec::new();
    if let Some(version) = lost.first().and_then(|holder| holder.driver_version.as_ref()) {
        found.push(Diagnosis::wrong(
            Finding::SuspendedByOtherDriver,
            format!("{}, by driver {version}", of(&lost)),
            "only the driver that suspended work can resume it",
            Fix::by_hand("end the holders, which tranche claim list names"),
        ));
    }
    if !kept.is_empty() {
        found.push(Diagnosis::advice(
            Finding::WorkSuspended,
            of(&kept),
            "no other driver can resume it, and nothing does without tranche",
            Fix::by_hand("before the driver is updated or tranche is removed: let each holder end"),
        ));
    }
    found
}
