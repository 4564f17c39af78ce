//! Makes a specification from devices and their edits. It declares the lowest CDI version that its content needs.

use super::spec::{ContainerEdits, Device, DeviceNode, Hook, Mount, Spec};
use super::version;
use crate::edits::{Derived, DerivedDevice, Edits};
use std::collections::BTreeMap;
use tranche_core::error::{Error, Result};
use tranche_core::text::some;
use tranche_core::types::{CdiVersion, DeviceName};

/// Something that was left out of a specification, because the requested CDI version does not have it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// The device; `None` if it concerns all devices.
    pub device: Option<DeviceName>,
    /// What was left out.
    pub what: String,
    /// The lowest version of CDI that has it.
    pub needs: CdiVersion,
}

impl LeftOut {
    /// `list` as comments for the header of the file, one for each thing: `Left out: 0 all: additional groups 44 (CDI
    /// 0.7.0)`. `*` means all devices. [`LeftOut::from_comment`] reads them.
    pub fn comments(list: &[LeftOut]) -> Vec<String> {
        Self::by_what(list)
            .into_iter()
            .map(|((needs, what), names)| format!("{MARK}{}: {what} (CDI {needs})", names.join(" ")))
            .collect()
    }

    /// `list` as lines for people about the devices of `kind`, one for each thing. A line names at most eight devices.
    pub fn lines(list: &[LeftOut], kind: &str) -> Vec<String> {
        let line = |((needs, what), names): ((CdiVersion, &str), Vec<&str>)| {
            let names = if names.contains(&"*") {
                "every one".to_owned()
            } else {
                some(&names)
            };
            format!("{kind}: left out, because it needs CDI {needs}: {what}; devices: {names}")
        };
        Self::by_what(list).into_iter().map(line).collect()
    }

    /// The names of the devices that lack the same thing.
    fn by_what(list: &[LeftOut]) -> BTreeMap<(CdiVersion, &str), Vec<&str>> {
        let mut by_what: BTreeMap<(CdiVersion, &str), Vec<&str>> = BTreeMap::new();
        for one in list {
            let name = one.device.as_ref().map_or("*", DeviceName::as_str);
            by_what.entry((one.needs, &one.what)).or_default().push(name);
        }
        by_what
    }

    /// What a line of [`LeftOut::comments`] says about the device `name`; `None` if it is about others, or another
    /// comment.
    pub fn from_comment(line: &str, name: &str) -> Option<String> {
        let (names, what) = line.strip_prefix(MARK)?.split_once(": ")?;
        names.split(' ').any(|n| n == name || n == "*").then(|| what.to_owned())
    }
}

const MARK: &str = "Left out: ";

/// Makes a specification that needs no CDI version newer than `cap`. Returns it with what was left out for that.
///
/// # Errors
/// Returns an error if nothing would be left: `cap` is lower than 0.3.0, or lower than 0.6.0 and the class has a dot,
/// or lower than 0.5.0 and the name of every device begins with a digit.
pub fn build(derived: &Derived, cap: Option<CdiVersion>) -> Result<(Spec, Vec<LeftOut>)> {
    let cap = cap.unwrap_or(CdiVersion::NEWEST);
    let object = format!("CDI version {cap}");
    let mut left_out = Vec::new();
    if cap < CdiVersion::V0_3 {
        return Err(Error::usage(
            object,
            "is too old; every engine that supports CDI reads 0.3.0",
        ));
    }
    if cap < CdiVersion::V0_6 && derived.kind.class().contains('.') {
        let what = format!("does not allow a dot in the class of {}", derived.kind);
        return Err(Error::usage(object, what).hint("it needs 0.6.0"));
    }
    let mut common = edits(&derived.common);
    if cap < CdiVersion::V0_5 && common.device_nodes.iter().any(|n| n.host_path.is_some()) {
        return Err(
            Error::usage(object, "does not allow a device node with another path on the host").hint("it needs 0.5.0"),
        );
    }
    shrink(&mut common, None, cap, &mut left_out);
    let mut devices = Vec::new();
    for one in &derived.devices {
        devices.extend(device(one, cap, &mut left_out));
    }
    if devices.is_empty() {
        let hint = left_out.first().map(|l| l.needs).unwrap_or(CdiVersion::V0_5);
        return Err(match derived.devices.first() {
            None => Error::failed(&derived.kind, "has no device to write"),
            Some(_) => Error::usage(object, "leaves no device").hint(format!("they need {hint}")),
        });
    }
    let mut spec = Spec {
        version: String::new(),
        kind: derived.kind.to_string(),
        annotations: Default::default(),
        devices,
        edits: common,
    };
    spec.version = version::minimum_version(&spec).to_string();
    Ok((spec, left_out))
}

fn device(one: &DerivedDevice, cap: CdiVersion, left_out: &mut Vec<LeftOut>) -> Option<Device> {
    let mut leave_out = |what: &str, needs| {
        left_out.push(LeftOut {
            device: Some(one.name.clone()),
            what: what.to_owned(),
            needs,
        });
    };
    let mut edits = edits(&one.edits);
    if cap < CdiVersion::V0_5 {
        if one.name.begins_with_digit() {
            leave_out("the device: its name begins with a digit", CdiVersion::V0_5);
            return None;
        }
        if edits.device_nodes.iter().any(|n| n.host_path.is_some()) {
            leave_out(
                "the device: one of its nodes has another path on the host",
                CdiVersion::V0_5,
            );
            return None;
        }
    }
    shrink(&mut edits, Some(&one.name), cap, left_out);
    Some(Device {
        name: one.name.to_string(),
        annotations: Default::default(),
        edits,
    })
}

fn shrink(edits: &mut ContainerEdits, device: Option<&DeviceName>, cap: CdiVersion, left_out: &mut Vec<LeftOut>) {
    if cap < CdiVersion::V0_7 && !edits.additional_gids.is_empty() {
        let groups: Vec<String> = edits.additional_gids.iter().map(u32::to_string).collect();
        left_out.push(LeftOut {
            device: device.cloned(),
            what: format!("additional groups {}", groups.join(", ")),
            needs: CdiVersion::V0_7,
        });
        edits.additional_gids.clear();
    }
}

/// `edits` in the form of CDI.
pub fn edits(edits: &Edits) -> ContainerEdits {
    ContainerEdits {
        env: edits
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect(),
        device_nodes: edits
            .nodes
            .iter()
            .map(|(path, node)| DeviceNode {
                path: path.to_string(),
                host_path: (node.host.as_str() != path.as_str()).then(|| node.host.to_string()),
                node_type: node.numbers.map(|_| "c".to_owned()),
                major: node.numbers.map(|(major, _)| major.into()),
                minor: node.numbers.map(|(_, minor)| minor.into()),
                file_mode: node.mode,
                permissions: None,
                uid: None,
                gid: node.gid,
            })
            .collect(),
        mounts: edits
            .mounts
            .iter()
            .map(|(path, mount)| Mount {
                host_path: mount.host.to_string(),
                container_path: path.to_string(),
                options: mount.options.clone(),
                mount_type: None,
            })
            .collect(),
        hooks: edits
            .hooks
            .iter()
            .map(|hook| Hook {
                hook_name: hook.stage.as_str().to_owned(),
                path: hook.path.to_string(),
                args: hook.args.clone(),
                env: hook.env.clone(),
                timeout: hook.timeout.map(i64::from),
            })
            .collect(),
        additional_gids: edits.additional_gids.iter().copied().collect(),
        net_devices: Vec::new(),
        intel_rdt: None,
    }
}
