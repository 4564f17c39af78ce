//! Whether the policy can be read and applied to this host.

use super::{Diagnosis, DoctorSubject, Finding, Fix};

/// What a policy that is wrong has as a consequence.
const STAYS: &str = "the policy that the last refresh has applied stays in force, if there is one, and nothing of this one \
                     counts; tranche cdi generate writes nothing";

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let policy = &subject.policy;
    let Some(file) = &policy.file else {
        return vec![Diagnosis::skipped("this host has no policy")];
    };
    if let Some(error) = &policy.invalid {
        return vec![Diagnosis::wrong(
            Finding::PolicyInvalid,
            error.found.clone(),
            STAYS,
            error.fix_or("correct the file; tranche policy check reads it and changes nothing"),
        )];
    }
    let mut found = Vec::new();
    if let Some(error) = policy.unfit.as_ref().filter(|_| !subject.has_no_gpu()) {
        found.push(Diagnosis::wrong(
            Finding::PolicyUnfit,
            error.found.clone(),
            STAYS,
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
    found.extend(policy.untried.iter().map(|(line, command)| {
        Diagnosis::wrong(
            Finding::TurnsNotTried,
            line.clone(),
            "no container or program gets a share of the device",
            Fix::by_hand(format!(
                "while nobody uses the device: {command}; assumeTested: true below sharing.turns relies on the driver"
            )),
        )
    }));
    found.extend(policy.warnings.iter().map(|line| {
        Diagnosis::advice(
            Finding::PolicyWarning,
            line.clone(),
            "that part of the policy may not do what its author expects",
            "change that line of the policy",
        )
    }));
    if found.is_empty() && !subject.has_no_gpu() {
        found.extend(without_effect(subject));
    }
    if found.is_empty() {
        found.push(Diagnosis::good(format!(
            "{file} is valid; {} of {}",
            tranche_core::text::counted(policy.shares, "share"),
            tranche_core::text::counted(policy.devices, "device")
        )));
    }
    found
}

/// That the policy gives nothing to anybody, although each line of it may be right.
fn without_effect(subject: &DoctorSubject) -> Option<Diagnosis> {
    let policy = &subject.policy;
    let file = policy.file.as_deref()?;
    if policy.devices > 0 || policy.says_more || policy.makes_instances {
        return None;
    }
    let what = match policy.entries {
        0 => "shares no device".to_owned(),
        entries => format!(
            "has {} that share devices, and this host has none of these devices",
            entries_of(entries)
        ),
    };
    Some(Diagnosis::advice(
        Finding::PolicyEmpty,
        format!("{file} {what}"),
        "no share can be asked for, and every container that requests a GPU gets it together with all others",
        "name a device of this host under sharing (tranche plan shows them), or remove the file",
    ))
}

fn entries_of(count: usize) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    }
}
