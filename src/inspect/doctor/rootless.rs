//! Whether users can run engines of their own: user namespaces, and ids to map into them.

use super::subject::exists;
use super::{Diagnosis, DoctorSubject, Finding, Fix};
use std::fs;
use std::path::PathBuf;

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

/// What gives users ids for containers of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdMaps {
    /// Programs that map ids and have no right to do so.
    pub powerless: Vec<PowerlessProgram>,
    /// The user who asks, if the lists of the machine give that user no ids.
    pub without_ids: Option<String>,
    /// The first id that nobody has.
    pub first_free: u64,
}

/// A program that needs the rights of its owner, and does not get them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerlessProgram {
    /// The program.
    pub path: PathBuf,
    /// Where its file system is mounted, if that ignores such rights; `None` if the file has none.
    pub nosuid: Option<PathBuf>,
}

/// How many ids a user gets by default (`SUB_UID_COUNT` of login.defs(5)).
const IDS: u64 = 65536;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if !subject.engines.iter().any(|found| found.engine.facts().is_rootless) {
        return vec![Diagnosis::skipped("podman and docker were not found")];
    }
    let maps = &subject.id_maps;
    let ids = fs::read_to_string(subject.at("/etc/subuid")).unwrap_or_default();
    if ids.trim().is_empty() && maps.without_ids.is_none() {
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
    found.extend(maps.powerless.iter().map(powerless));
    found.extend(maps.without_ids.as_ref().map(|user| {
        let (first, last) = (maps.first_free, maps.first_free.saturating_add(IDS - 1));
        Diagnosis::advice(
            Finding::UserWithoutIds,
            format!("user {user} has no ids in /etc/subuid and /etc/subgid"),
            "an own podman or docker of this user starts no container whose image has files of more than one user",
            Fix::command(format!(
                "usermod --add-subuids {first}-{last} --add-subgids {first}-{last} {user}"
            )),
        )
    }));
    if found.is_empty() {
        found.push(Diagnosis::good("users can make user namespaces and map ids into them"));
    }
    found
}

/// The result for a program that cannot map ids.
fn powerless(program: &PowerlessProgram) -> Diagnosis {
    let path = program.path.display();
    let (what, fix) = match &program.nosuid {
        Some(mount) => (
            format!("{path} is on {}, which is mounted with nosuid", mount.display()),
            Fix::command(format!("mount -o remount,suid {}", mount.display())),
        ),
        None => (
            format!("{path} has neither the setuid bit nor a capability"),
            Fix::command(format!("chmod u+s {path}")),
        ),
    };
    let why = "a user's own podman or docker starts no container: newuidmap: write to uid_map failed";
    Diagnosis::advice(Finding::IdMapPowerless, what, why, fix)
}
