//! The checks that the CDI reference library makes before it accepts a file (pkg/cdi, `Spec.validate` and
//! `ContainerEdits.Validate`).
//!
//! The library stops at the first fault and refuses the whole file; here every fault is reported. One check is added:
//! what makes an engine crash. [`super::references`] checks whether the host has what a file refers to.

use super::spec::{ContainerEdits, DeviceNode, Hook, IntelRdt, Spec};
use super::tree::PathStep;
use super::version::minimum_version;
use std::collections::BTreeSet;
use std::fmt;
use tranche_core::types::{CdiKind, CdiVersion, DeviceName};

/// Something that an engine refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where it is in the file.
    pub at: Vec<PathStep>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Fault {
    /// `devices[0].containerEdits.env[1]: what`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.at.iter().enumerate() {
            match step {
                PathStep::Field(name) if i == 0 => f.write_str(name)?,
                PathStep::Field(name) => write!(f, ".{name}")?,
                PathStep::Item(n) => write!(f, "[{n}]")?,
            }
        }
        write!(f, ": {}", self.what)
    }
}

/// Collects faults on a walk through a specification.
#[derive(Default)]
pub(super) struct Faults {
    /// Where the walk is.
    at: Vec<PathStep>,
    pub(super) found: Vec<Fault>,
}

impl Faults {
    fn add(&mut self, what: impl Into<String>) {
        self.found.push(Fault {
            at: self.at.clone(),
            what: what.into(),
        });
    }

    /// Adds a fault of the field `name`.
    pub(super) fn add_at(&mut self, name: &'static str, what: impl Into<String>) {
        self.field(name, |faults| faults.add(what));
    }

    fn require(&mut self, name: &'static str, value: &str) {
        if value.is_empty() {
            self.add_at(name, "is empty");
        }
    }

    fn below(&mut self, steps: &[PathStep], look: impl FnOnce(&mut Self)) {
        let depth = self.at.len();
        self.at.extend_from_slice(steps);
        look(self);
        self.at.truncate(depth);
    }

    /// Walks to the field `name` and back.
    pub(super) fn field(&mut self, name: &'static str, look: impl FnOnce(&mut Self)) {
        self.below(&[PathStep::Field(name)], look);
    }

    /// Walks to each of `items`, which are the list `name`, and back.
    pub(super) fn each<'a, T>(&mut self, name: &'static str, items: &'a [T], mut look: impl FnMut(&mut Self, &'a T)) {
        for (i, item) in items.iter().enumerate() {
            self.below(&[PathStep::Field(name), PathStep::Item(i)], |faults| look(faults, item));
        }
    }
}

/// Everything in `spec` for which an engine refuses it. A valid specification has no faults.
pub fn validate(spec: &Spec) -> Vec<Fault> {
    let mut faults = Faults::default();
    declared_version(&mut faults, spec);
    let kind = &spec.kind;
    match kind.parse::<CdiKind>() {
        Err(e) => faults.add_at("kind", format!("\"{kind}\" is not a valid vendor/class: {e}")),
        Ok(parsed) if parsed.crashes_engines() => {
            let what = format!("\"{kind}\" has a vendor or a class of one letter, which makes engines crash");
            faults.add_at("kind", what);
        }
        Ok(_) => {}
    }
    if spec.devices.is_empty() {
        faults.add_at("devices", "the list has no device");
    }
    let mut names = BTreeSet::new();
    faults.each("devices", &spec.devices, |faults, device| {
        let name = &device.name;
        if name.parse::<DeviceName>().is_err() {
            faults.add_at("name", format!("\"{name}\" is not a valid CDI device name"));
        }
        if !names.insert(name) {
            faults.add_at("name", format!("\"{name}\" is listed twice"));
        }
        faults.field("containerEdits", |f| {
            if device.edits.is_empty() {
                f.add(format!("device \"{name}\" does nothing to a container"));
            }
            container_edits(f, &device.edits);
        });
    });
    faults.field("containerEdits", |f| container_edits(f, &spec.edits));
    faults.found
}

fn declared_version(faults: &mut Faults, spec: &Spec) {
    let text = spec.version.strip_prefix('v').unwrap_or(&spec.version);
    let known = text.parse::<CdiVersion>().ok().filter(|v| v.as_str() == text);
    let needed = minimum_version(spec);
    match known {
        None => {
            let (found, newest) = (&spec.version, CdiVersion::NEWEST);
            let what = format!("\"{found}\" is not a version of CDI; expected one from 0.1.0 to {newest}");
            faults.add_at("cdiVersion", what);
        }
        Some(declared) if declared < needed => {
            let what = format!("{declared} is declared, and the content needs {needed}");
            faults.add_at("cdiVersion", what);
        }
        Some(_) => {}
    }
}

fn container_edits(faults: &mut Faults, edits: &ContainerEdits) {
    faults.each("env", &edits.env, |f, entry| env(f, entry));
    faults.each("deviceNodes", &edits.device_nodes, device_node);
    let mut on_host = BTreeSet::new();
    let mut in_container = BTreeSet::new();
    faults.each("netDevices", &edits.net_devices, |f, net| {
        if net.host_interface_name.is_empty() || net.name.is_empty() {
            f.add("hostInterfaceName and name must both be given");
        }
        if !on_host.insert(net.host_interface_name.as_str()) || !in_container.insert(net.name.as_str()) {
            f.add("this network device is listed twice");
        }
    });
    faults.each("mounts", &edits.mounts, |f, mount| {
        f.require("hostPath", &mount.host_path);
        f.require("containerPath", &mount.container_path);
    });
    faults.each("hooks", &edits.hooks, hook);
    if let Some(rdt) = &edits.intel_rdt {
        faults.field("intelRdt", |f| intel_rdt(f, rdt));
    }
}

fn env(faults: &mut Faults, entry: &str) {
    if entry.find('=').is_none_or(|at| at == 0) {
        faults.add(format!("\"{entry}\" is not of the form NAME=value"));
    }
}

fn device_node(faults: &mut Faults, node: &DeviceNode) {
    faults.require("path", &node.path);
    let node_type = node.node_type.as_deref().unwrap_or("");
    if !["", "b", "c", "u", "p"].contains(&node_type) {
        let what = format!("\"{node_type}\" is not a type of device node; expected b, c, u or p");
        faults.add_at("type", what);
    }
    let permissions = node.permissions.as_deref().unwrap_or("");
    if permissions.chars().any(|c| !"rwm".contains(c)) {
        let what = format!("\"{permissions}\" has other letters than r, w and m");
        faults.add_at("permissions", what);
    }
}

fn hook(faults: &mut Faults, hook: &Hook) {
    const STAGES: [&str; 6] = [
        "prestart",
        "createRuntime",
        "createContainer",
        "startContainer",
        "poststart",
        "poststop",
    ];
    let name = hook.hook_name.as_str();
    if !STAGES.contains(&name) {
        let what = format!("\"{name}\" is not a stage; expected {}", STAGES.join(", "));
        faults.add_at("hookName", what);
    }
    faults.require("path", &hook.path);
    faults.each("env", &hook.env, |f, entry| env(f, entry));
}

fn intel_rdt(faults: &mut Faults, rdt: &IntelRdt) {
    // It becomes a directory's name in /sys/fs/resctrl.
    let id = rdt.clos_id.as_deref().unwrap_or("");
    if id.len() >= 4096 || id == "." || id == ".." || id.contains(['/', '\n']) {
        faults.add_at("closID", "cannot be the name of a directory");
    }
}

#[cfg(test)]
mod tests {
    use super::super::Device;
    use super::*;

    fn good() -> Spec {
        Spec {
            version: "0.5.0".into(),
            kind: "nvidia.com/gpu".into(),
            devices: vec![Device {
                name: "0".into(),
                edits: ContainerEdits {
                    env: vec!["A=b".into()],
                    ..ContainerEdits::default()
                },
                ..Device::default()
            }],
            ..Spec::default()
        }
    }

    #[test]
    fn a_good_one_passes() {
        assert_eq!(validate(&good()), []);
    }

    /// Each row is refused by the reference library too.
    #[test]
    fn each_fault_is_named_with_its_place() {
        let said = |change: fn(&mut Spec)| {
            let mut spec = good();
            change(&mut spec);
            let faults: Vec<String> = validate(&spec).iter().map(Fault::to_string).collect();
            assert_eq!(faults.len(), 1, "{faults:?}");
            faults[0].clone()
        };
        for (change, part) in [
            (
                (|s| s.version = "0.4.0".into()) as fn(&mut Spec),
                "cdiVersion: 0.4.0 is declared, and the content needs 0.5.0",
            ),
            (|s| s.version = "0.5".into(), "cdiVersion: \"0.5\" is not a version"),
            (|s| s.kind = "gpu".into(), "kind: \"gpu\""),
            (
                |s| s.kind = "x.com/y".into(),
                "kind: \"x.com/y\" has a vendor or a class of one letter",
            ),
            (
                |s| s.kind = "x/gpu".into(),
                "kind: \"x/gpu\" has a vendor or a class of one letter",
            ),
            (|s| s.devices.clear(), "devices: the list has no device"),
            (
                |s| s.devices.push(s.devices[0].clone()),
                "devices[1].name: \"0\" is listed twice",
            ),
            (|s| s.devices[0].name = "0-".into(), "devices[0].name: \"0-\""),
            (
                |s| s.devices[0].edits = ContainerEdits::default(),
                "devices[0].containerEdits: device \"0\" does nothing",
            ),
            (|s| s.edits.env.push("=x".into()), "containerEdits.env[0]: \"=x\""),
            (
                |s| s.edits.device_nodes.push(DeviceNode::default()),
                "containerEdits.deviceNodes[0].path: is empty",
            ),
            (
                |s| {
                    s.edits.device_nodes.push(DeviceNode {
                        path: "/dev/x".into(),
                        permissions: Some("rx".into()),
                        ..DeviceNode::default()
                    });
                },
                "deviceNodes[0].permissions: \"rx\"",
            ),
            (
                |s| {
                    s.edits.hooks.push(Hook {
                        hook_name: "later".into(),
                        path: "/x".into(),
                        ..Hook::default()
                    });
                },
                "hooks[0].hookName: \"later\" is not a stage",
            ),
        ] {
            let line = said(change);
            assert!(line.contains(part), "{line}\n{part}");
        }
    }
}
