//! Whether AppArmor confines programs of tranche, which no profile of tranche's does.

use super::{Diagnosis, DoctorSubject, Finding};
use std::fs;
use tranche_core::text::some;

/// The programs that engines start.
const PROGRAMS: [&str; 2] = ["tranche-oci", "tranche-runtime"];

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    match fs::read_to_string(subject.at("/sys/module/apparmor/parameters/enabled")) {
        Ok(text) if text.trim() == "Y" => {}
        Ok(_) => return vec![Diagnosis::good("it is not enabled")],
        Err(_) => return vec![Diagnosis::skipped("this host has no AppArmor")],
    }
    // A line each: the name of a profile, and its mode in brackets (apparmorfs).
    let Ok(profiles) = fs::read_to_string(subject.at("/sys/kernel/security/apparmor/profiles")) else {
        return vec![Diagnosis::skipped("only root can read its profiles")];
    };
    let enforced = profiles.lines().filter_map(|line| line.strip_suffix(" (enforce)"));
    let confining: Vec<&str> = enforced
        .filter(|name| PROGRAMS.iter().any(|program| name.rsplit('/').next() == Some(program)))
        .collect();
    match confining.is_empty() {
        true => vec![Diagnosis::good("enabled, and no profile confines programs of tranche")],
        false => vec![Diagnosis::advice(
            Finding::ApparmorConfines,
            format!("enabled, and these profiles are enforced: {}", some(&confining)),
            "a hook that may not write where it has to refuses every container with a GPU",
            "look for apparmor=\"DENIED\" in the kernel's log, and allow that, or unload the profile (apparmor_parser -R)",
        )],
    }
}
