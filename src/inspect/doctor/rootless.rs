//! Whether users can run engines of their own: user namespaces, and ids to map into them.

use super::subject::exists;
use super::{Diagnosis, DoctorSubject, Finding};
use std::fs;

/// Settings of the kernel: the file, the value that forbids user namespaces to users, and how to allow them. The second
/// one exists in Debian's kernels, the third one in Ubuntu's.
const SETTINGS: [(&str, &str, &str); 3] = [
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "sysctl user.max_user_namespaces=15000",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "sysctl kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "install the engine's AppArmor profile (/etc/apparmor.d/podman), or sysctl \
         kernel.apparmor_restrict_unprivileged_userns=0",
    ),
];

/// Profiles that lift the third setting for an engine.
const PROFILES: [&str; 3] = [
    "/etc/apparmor.d/podman",
    "/etc/apparmor.d/rootlesskit",
    "/etc/apparmor.d/usr.bin.rootlesskit",
];

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if !subject.engines.iter().any(|found| found.engine.facts().is_rootless) {
        return vec![Diagnosis::skipped("podman and docker were not found")];
    }
    let ids = fs::read_to_string(subject.at("/etc/subuid")).unwrap_or_default();
    if ids.trim().is_empty() {
        return vec![Diagnosis::skipped(
            "no user has ids for containers of their own (/etc/subuid)",
        )];
    }
    let why = "a user's own podman or docker starts no container";
    let has_profile = PROFILES.iter().any(|path| exists(&subject.at(path)));
    let mut found: Vec<Diagnosis> = SETTINGS
        .iter()
        .filter(|(file, forbids, _)| {
            let value = fs::read_to_string(subject.at(file)).unwrap_or_default();
            value.trim() == *forbids && !(file.contains("apparmor") && has_profile)
        })
        .map(|(file, forbids, fix)| {
            Diagnosis::advice(Finding::NamespacesForbidden, format!("{file} is {forbids}"), why, *fix)
        })
        .collect();
    let map = ["/usr/bin/newuidmap", "/bin/newuidmap"];
    if !map.iter().any(|path| exists(&subject.at(path))) {
        found.push(Diagnosis::advice(
            Finding::IdMapMissing,
            "newuidmap was not found",
            why,
            "install the package uidmap (Debian, Ubuntu) or shadow-utils (Fedora)",
        ));
    }
    if found.is_empty() {
        found.push(Diagnosis::good("users can make user namespaces and map ids into them"));
    }
    found
}
