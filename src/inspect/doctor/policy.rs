//! Whether the policy can be read and applied to this host.

use super::{Diagnosis, DoctorSubject, Finding};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let policy = &subject.policy;
    let Some(file) = &policy.file else {
        return vec![Diagnosis::skipped("this host has no policy")];
    };
    if let Some(error) = &policy.invalid {
        return vec![Diagnosis::wrong(
            Finding::PolicyInvalid,
            error.found.clone(),
            "tranche cdi refresh and tranche cdi generate write nothing, and containers keep what an earlier policy gave them",
            error.fix_or("correct the file; tranche policy check reads it and changes nothing"),
        )];
    }
    let mut found = Vec::new();
    if let Some(error) = policy.unfit.as_ref().filter(|_| !subject.has_no_gpu()) {
        found.push(Diagnosis::wrong(
            Finding::PolicyUnfit,
            error.found.clone(),
            "tranche cdi refresh and tranche cdi generate write nothing, and no share of the policy can be used",
            error.fix_or("change the policy; tranche plan shows what the host has"),
        ));
    }
    // Without a GPU, each of its devices is missing for one reason, which the check of the driver reports.
    for line in policy.missing.iter().filter(|_| !subject.has_no_gpu()) {
        found.push(Diagnosis::wrong(
            Finding::PolicyDeviceMissing,
            line.clone(),
            "a container that requests a share of it is refused; the other devices of the policy can be used",
            "name a device of this host in the policy, or take the entry out",
        ));
    }
    found.extend(policy.warnings.iter().map(|line| {
        Diagnosis::advice(
            Finding::PolicyWarning,
            line.clone(),
            "that part of the policy may not do what its author expects",
            "change that line of the policy",
        )
    }));
    if found.is_empty() {
        found.push(Diagnosis::good(format!(
            "{file} is valid; {} of {}",
            tranche_core::text::counted(policy.shares, "share"),
            tranche_core::text::counted(policy.devices, "device")
        )));
    }
    found
}
