//! The lowest version of CDI that a specification needs.
//!
//! An engine refuses a file of a version that it does not know, with a misleading message (podman 4.3: the device is
//! "unresolvable"). So a file declares the lowest version that it needs (SPEC.md, "Released versions"; the reference
//! library's specs-go/version.go).

use super::{ContainerEdits, Spec};
use tranche_core::types::CdiVersion;

/// The lowest version of CDI with which `spec` can be read, whatever `spec.version` declares.
pub fn minimum_version(spec: &Spec) -> CdiVersion {
    let mut needed = CdiVersion::V0_3;
    let class = spec.kind.split_once('/').map_or("", |(_, class)| class);
    if !spec.annotations.is_empty() || class.contains('.') {
        needed = needed.max(CdiVersion::V0_6);
    }
    for device in &spec.devices {
        if device.name.starts_with(|c: char| c.is_ascii_digit()) {
            needed = needed.max(CdiVersion::V0_5);
        }
        if !device.annotations.is_empty() {
            needed = needed.max(CdiVersion::V0_6);
        }
        needed = needed.max(edits(&device.edits));
    }
    needed.max(edits(&spec.edits))
}

/// The lowest version with which `edits` can be read.
pub fn edits(edits: &ContainerEdits) -> CdiVersion {
    let mut needed = CdiVersion::V0_3;
    if edits.mounts.iter().any(|m| is_set(m.mount_type.as_deref())) {
        needed = needed.max(CdiVersion::V0_4);
    }
    if edits.device_nodes.iter().any(|n| is_set(n.host_path.as_deref())) {
        needed = needed.max(CdiVersion::V0_5);
    }
    if edits.intel_rdt.is_some() || !edits.additional_gids.is_empty() {
        needed = needed.max(CdiVersion::V0_7);
    }
    let newer_rdt = edits
        .intel_rdt
        .as_ref()
        .is_some_and(|rdt| rdt.schemata.is_some() || rdt.enable_monitoring == Some(true));
    if !edits.net_devices.is_empty() || newer_rdt {
        needed = needed.max(CdiVersion::V1_1);
    }
    needed
}

fn is_set(text: Option<&str>) -> bool {
    text.is_some_and(|t| !t.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::{Device, DeviceNode, IntelRdt, Mount, NetDevice};
    use super::*;

    fn spec(change: impl FnOnce(&mut Spec)) -> CdiVersion {
        let mut spec = Spec {
            kind: "vendor.com/class".into(),
            devices: vec![Device {
                name: "a".into(),
                ..Device::default()
            }],
            ..Spec::default()
        };
        change(&mut spec);
        minimum_version(&spec)
    }

    #[test]
    fn each_feature_has_its_version() {
        assert_eq!(spec(|_| ()), CdiVersion::V0_3);
        let mount = |t: &str| Mount {
            mount_type: Some(t.into()),
            ..Mount::default()
        };
        assert_eq!(spec(|s| s.edits.mounts.push(mount("bind"))), CdiVersion::V0_4);
        assert_eq!(spec(|s| s.edits.mounts.push(mount(""))), CdiVersion::V0_3);
        assert_eq!(spec(|s| s.devices[0].name = "0".into()), CdiVersion::V0_5);
        let node = DeviceNode {
            host_path: Some("/dev/x".into()),
            ..DeviceNode::default()
        };
        assert_eq!(spec(|s| s.devices[0].edits.device_nodes.push(node)), CdiVersion::V0_5);
        assert_eq!(spec(|s| s.kind = "vendor.com/a.b".into()), CdiVersion::V0_6);
        assert_eq!(
            spec(|s| drop(s.annotations.insert("a".into(), "b".into()))),
            CdiVersion::V0_6
        );
        assert_eq!(
            spec(|s| drop(s.devices[0].annotations.insert("a".into(), "b".into()))),
            CdiVersion::V0_6
        );
        assert_eq!(spec(|s| s.edits.additional_gids.push(44)), CdiVersion::V0_7);
        assert_eq!(
            spec(|s| s.edits.intel_rdt = Some(IntelRdt::default())),
            CdiVersion::V0_7
        );
        let rdt = IntelRdt {
            schemata: Some(Vec::new()),
            ..IntelRdt::default()
        };
        assert_eq!(spec(|s| s.edits.intel_rdt = Some(rdt)), CdiVersion::V1_1);
        assert_eq!(
            spec(|s| s.devices[0].edits.net_devices.push(NetDevice::default())),
            CdiVersion::V1_1
        );
    }
}
