//! Whether something keeps the specifications of `tranche cdi refresh` current.

use super::subject::exists;
use super::{Diagnosis, DoctorSubject, Finding, Fix};
use tranche_plan::cdi::registry::Loaded;

/// What keeps them current.
const UNITS: [&str; 2] = ["tranche-cdi-refresh.service", "tranche-cdi-refresh.path"];

/// What `systemctl enable` makes.
const ENABLED: [&str; 2] = [
    "/etc/systemd/system/multi-user.target.wants/tranche-cdi-refresh.service",
    "/etc/systemd/system/multi-user.target.wants/tranche-cdi-refresh.path",
];

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if !subject.registry.files().iter().any(Loaded::is_refreshed) {
        return vec![Diagnosis::skipped("no specification is one of tranche cdi refresh")];
    }
    if !subject.has_systemd() {
        return vec![Diagnosis::skipped(
            "systemd does not run on this host; tranche cdi watch keeps specifications current",
        )];
    }
    match ENABLED.iter().all(|path| exists(&subject.at(path))) {
        true => vec![Diagnosis::good("tranche-cdi-refresh.service and .path are enabled")],
        false => vec![Diagnosis::advice(
            Finding::RefreshDisabled,
            "tranche-cdi-refresh.service and .path are not both enabled",
            "after a boot there is no specification, and after a change of the driver or of MIG devices an old one",
            subject.enable(&UNITS).unwrap_or_else(|| {
                Fix::by_hand("install the units of tranche, which its package has; until then, run tranche cdi watch at each boot")
            }),
        )],
    }
}
