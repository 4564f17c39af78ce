//! Whether SELinux lets confined containers use the devices and the MPS daemons (docs/how-to/selinux.md).

use super::subject::exists;
use super::{Diagnosis, DoctorSubject, Finding, Fix};
use std::fs;
use std::path::{Path, PathBuf};
use tranche_core::text::some;
use tranche_specs::device_files::{NodeSet, nodes};

/// Lets containers use the nodes of graphics devices of the host, to which those of NVIDIA's driver belong.
/// container-selinux has it from version 2.232 on.
const GRAPHICS: &str = "container_use_xserver_devices";

/// Lets containers use the nodes of all devices of the host.
const ALL_DEVICES: &str = "container_use_devices";

/// Both, and first the one that allows less.
const BOOLEANS: [&str; 2] = [GRAPHICS, ALL_DEVICES];

/// The type that packaging/selinux/tranche.cil declares, of the directories of MPS sockets and what is in them.
const PIPE_TYPE: &str = "tranche_mps_run_t";

/// Where the packages put the module, and where `make install` does.
const MODULES: [&str; 2] = [
    "/usr/share/selinux/packages/tranche.cil",
    "/usr/local/share/selinux/packages/tranche.cil",
];

/// The type of a file in /dev that was made without regard to the policy.
const ANY_DEVICE: &str = "device_t";

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    match fs::read_to_string(subject.at("/sys/fs/selinux/enforce")) {
        Ok(text) if text.trim() == "1" => {}
        Ok(_) => return vec![Diagnosis::good("it is not enforced")],
        Err(_) => return vec![Diagnosis::skipped("this host has no SELinux")],
    }
    let mut found: Vec<Diagnosis> = [booleans(subject), device_nodes(subject), pipes(subject)]
        .into_iter()
        .flatten()
        .collect();
    if found.is_empty() {
        let on: Vec<&str> = BOOLEANS.into_iter().filter(|boolean| is_on(subject, boolean)).collect();
        found.push(Diagnosis::good(format!("enforced, with {} on", on.join(" and "))));
    }
    found
}

/// Whether a boolean of the policy is on.
fn is_on(subject: &DoctorSubject, boolean: &str) -> bool {
    // Two numbers: the value in force, and the one that is pending (security_get_boolean_active(3)).
    let text = fs::read_to_string(path_of(subject, boolean));
    text.is_ok_and(|text| text.trim().starts_with('1'))
}

fn path_of(subject: &DoctorSubject, boolean: &str) -> PathBuf {
    subject.at("/sys/fs/selinux/booleans").join(boolean)
}

/// That no boolean is on with which containers may use device nodes of the host.
fn booleans(subject: &DoctorSubject) -> Option<Diagnosis> {
    if BOOLEANS.iter().any(|boolean| is_on(subject, boolean)) {
        return None;
    }
    let known = BOOLEANS.iter().find(|boolean| path_of(subject, boolean).exists());
    let disable = "start the container with --security-opt label=disable";
    Some(Diagnosis::advice(
        Finding::SelinuxNodes,
        format!("enforced, and neither {GRAPHICS} nor {ALL_DEVICES} is on"),
        "containers are denied the driver's device nodes if their engine mounts them, as rootless podman does",
        match known {
            Some(boolean) => format!("setsebool -P {boolean} on, or {disable}"),
            None => disable.to_owned(),
        },
    ))
}

/// That device nodes have a type that only the wider boolean lets containers use.
fn device_nodes(subject: &DoctorSubject) -> Option<Diagnosis> {
    if is_on(subject, ALL_DEVICES) {
        return None;
    }
    let nodes = nodes(&subject.inventory, NodeSet::All);
    let paths = nodes.iter().map(|file| file.node.host.as_path());
    let has_type = |path: &&Path| subject.labels.get(*path).and_then(|context| type_of(context)) == Some(ANY_DEVICE);
    let wrong: Vec<String> = paths.filter(has_type).map(|path| path.display().to_string()).collect();
    (!wrong.is_empty()).then(|| {
        Diagnosis::advice(
            Finding::SelinuxNodeLabels,
            format!("labelled {ANY_DEVICE}: {}", some(&wrong)),
            format!("{GRAPHICS} does not let containers use nodes with this label"),
            Fix::command("restorecon -R /dev/nvidia*"),
        )
    })
}

/// What keeps confined containers from the MPS daemons of their shares.
fn pipes(subject: &DoctorSubject) -> Option<Diagnosis> {
    if subject.mps.pipes.is_empty() {
        return None;
    }
    if !is_module_installed(subject) {
        let module = MODULES.into_iter().find(|path| exists(&subject.at(path)));
        let module = module.unwrap_or(MODULES[0]);
        return Some(Diagnosis::advice(
            Finding::SelinuxModule,
            "enforced, the policy has shares under MPS, and the SELinux module of tranche is not installed",
            "confined containers are denied the sockets of the MPS daemon, and CUDA then runs without MPS and its limits, or \
             not at all",
            Fix::command(format!("semodule -i {module} && restorecon -RF /run/tranche")),
        ));
    }
    let parents = subject.mps.pipes.iter().filter_map(|pipe| pipe.parent());
    let mut directories: Vec<&Path> = parents.chain(subject.mps.pipes.iter().map(AsRef::as_ref)).collect();
    directories.sort_unstable();
    directories.dedup();
    let wrong: Vec<String> = directories
        .into_iter()
        .filter_map(|path| Some((path, subject.labels.get(path)?)))
        .filter(|(_, context)| type_of(context) != Some(PIPE_TYPE) || has_categories(context))
        .map(|(path, context)| format!("{} ({context})", path.display()))
        .collect();
    (!wrong.is_empty()).then(|| {
        Diagnosis::wrong(
            Finding::SelinuxPipeLabels,
            format!("not labelled {PIPE_TYPE}:s0: {}", some(&wrong)),
            "confined containers are denied the sockets of the MPS daemon there",
            Fix::command("restorecon -RF /run/tranche"),
        )
    })
}

/// Whether the module is installed: then the file contexts of the policy have its type. Only root can list modules.
fn is_module_installed(subject: &DoctorSubject) -> bool {
    let config = fs::read_to_string(subject.at("/etc/selinux/config")).unwrap_or_default();
    // selinux_config(5). Without the key, libselinux takes the policy "targeted".
    let name = config.lines().find_map(|line| line.trim().strip_prefix("SELINUXTYPE="));
    let name = name.map_or("targeted", str::trim);
    let contexts = subject
        .at("/etc/selinux")
        .join(name)
        .join("contexts/files/file_contexts");
    fs::read(contexts).is_ok_and(|text| String::from_utf8_lossy(&text).contains(PIPE_TYPE))
}

/// The type in a context: USER:ROLE:TYPE:LEVEL.
fn type_of(context: &str) -> Option<&str> {
    context.split(':').nth(2)
}

/// Whether the level of a context has categories, as that of a container has: s0:c1,c2.
fn has_categories(context: &str) -> bool {
    context.split(':').nth(4).is_some()
}
