//! Adds devices to an OCI container specification, as an engine that supports CDI does.
//!
//! The order and the rules are those of the reference library (pkg/cdi, `Cache.InjectDevices` and
//! `ContainerEdits.Apply`). What is written is built with oci-spec. The rest of the specification stays a JSON value:
//! oci-spec drops fields that it does not know and refuses values that it does not know.

use super::spec::{ContainerEdits, DeviceNode, Spec};
use oci_spec::runtime::{Hook, LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType, LinuxNetDevice, Mount};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use tranche_core::error::{Error, Result};
use tranche_core::types::ContainerPath;

/// A device node of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostNode {
    /// `b`, `c` or `p`.
    pub node_type: char,
    /// Major number.
    pub major: i64,
    /// Minor number.
    pub minor: i64,
    /// Permission bits.
    pub mode: u32,
}

/// Returns the device node at a path of the host; `None` if the path does not exist or is not a device node.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<HostNode>;

/// The device node at `path` on this machine; a [`Lookup`].
pub fn host_node(path: &str) -> Option<HostNode> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    let kind = meta.file_type();
    let types = [
        (kind.is_char_device(), 'c'),
        (kind.is_block_device(), 'b'),
        (kind.is_fifo(), 'p'),
    ];
    let (_, node_type) = types.into_iter().find(|(is_it, _)| *is_it)?;
    let number = meta.rdev();
    Some(HostNode {
        node_type,
        major: i64::try_from(nix::sys::stat::major(number)).ok()?,
        minor: i64::try_from(nix::sys::stat::minor(number)).ok()?,
        mode: meta.mode() & 0o7777,
    })
}

/// All edits of `devices` in the order in which they are applied. The edits of a whole specification come once, before
/// those of its first device.
pub fn collect<'a>(devices: impl IntoIterator<Item = (&'a Spec, &'a super::Device)>) -> ContainerEdits {
    let mut all = ContainerEdits::default();
    let mut seen: Vec<&Spec> = Vec::new();
    for (spec, device) in devices {
        if !seen.iter().any(|s| std::ptr::eq(*s, spec)) {
            seen.push(spec);
            all.append(&spec.edits);
        }
        all.append(&device.edits);
    }
    all
}

/// Applies `edits` to the OCI specification `config`.
///
/// # Errors
/// Returns an error, and changes nothing, if a device node is neither on the host nor fully described, or if `config`
/// is not an OCI specification.
pub fn apply(config: &mut Value, edits: &ContainerEdits, lookup: Lookup<'_>) -> Result<()> {
    let mut changed = config.clone();
    env(&mut changed, &edits.env)?;
    for node in &edits.device_nodes {
        device_node(&mut changed, node, lookup)?;
    }
    for net in &edits.net_devices {
        let mut device = LinuxNetDevice::default();
        device.set_name(Some(net.name.clone()));
        let devices = object_at(&mut changed, &["linux", "netDevices"])?;
        devices.insert(net.host_interface_name.clone(), value(&device)?);
    }
    mounts(&mut changed, edits)?;
    for one in &edits.hooks {
        let mut hook = Hook::default();
        hook.set_path(one.path.clone().into());
        hook.set_args(filled(&one.args));
        hook.set_env(filled(&one.env));
        hook.set_timeout(one.timeout);
        array_at(&mut changed, &["hooks"], &one.hook_name)?.push(value(&hook)?);
    }
    if let Some(rdt) = &edits.intel_rdt {
        object_at(&mut changed, &["linux"])?.insert("intelRdt".into(), value(rdt)?);
    }
    for gid in edits.additional_gids.iter().filter(|gid| **gid != 0) {
        let gids = array_at(&mut changed, &["process", "user"], "additionalGids")?;
        if !gids.contains(&json!(gid)) {
            gids.push(json!(gid));
        }
    }
    *config = changed;
    Ok(())
}

fn broken(what: &str) -> Error {
    Error::failed(
        format!("container specification: {what}"),
        "does not have the type that the OCI runtime specification requires",
    )
}

fn value(part: &impl Serialize) -> Result<Value> {
    serde_json::to_value(part)
        .map_err(|e| Error::failed("container specification", "cannot be written as JSON").from_source(e))
}

/// A list; `None` for an empty one, which is left out.
fn filled(list: &[String]) -> Option<Vec<String>> {
    (!list.is_empty()).then(|| list.to_vec())
}

fn object_at<'a>(config: &'a mut Value, path: &[&str]) -> Result<&'a mut Map<String, Value>> {
    let mut here = config;
    for name in path {
        let object = here.as_object_mut().ok_or_else(|| broken(name))?;
        let next = object.entry(*name).or_insert_with(|| json!({}));
        if next.is_null() {
            *next = json!({});
        }
        here = next;
    }
    here.as_object_mut().ok_or_else(|| broken(&path.join(".")))
}

fn array_at<'a>(config: &'a mut Value, path: &[&str], name: &str) -> Result<&'a mut Vec<Value>> {
    let value = object_at(config, path)?.entry(name).or_insert_with(|| json!([]));
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().ok_or_else(|| broken(name))
}

fn env(config: &mut Value, env: &[String]) -> Result<()> {
    if env.is_empty() {
        return Ok(());
    }
    let present = array_at(config, &["process"], "env")?;
    for entry in env {
        let name = entry.split_once('=').map_or(entry.as_str(), |(name, _)| name);
        let same = |v: &&mut Value| {
            v.as_str()
                .is_some_and(|t| t.split_once('=').map_or(t, |(n, _)| n) == name)
        };
        // Of two entries of the same name the last one is replaced.
        match present.iter_mut().rfind(same) {
            Some(old) => *old = json!(entry),
            None => present.push(json!(entry)),
        }
    }
    Ok(())
}

/// The type and the numbers of `node`: its own if it has both, otherwise those of the host's node.
fn kind_and_numbers(node: &DeviceNode, host: Option<HostNode>) -> Result<(LinuxDeviceType, i64, i64)> {
    let given = node.node_type.as_deref().filter(|t| !t.is_empty());
    let major = node.major.filter(|major| *major != 0);
    let kind = match (given, host) {
        (Some(kind), _) if major.is_some() || kind == "p" => kind.to_owned(),
        (_, None) => {
            return Err(Error::failed(node.on_host(), "device node not found").hint("is the driver loaded?"));
        }
        (Some(kind), Some(host)) if *kind != host.node_type.to_string() => {
            let what = format!("has type {}, and the specification says {kind}", host.node_type);
            return Err(Error::failed(node.on_host(), what).hint("correct the CDI specification"));
        }
        (_, Some(host)) => host.node_type.to_string(),
    };
    let kind: LinuxDeviceType = kind.parse().map_err(|_| broken(&node.path))?;
    let (major, minor) = match (major, host) {
        (None, Some(host)) if kind != LinuxDeviceType::P => (host.major, host.minor),
        _ => (major.unwrap_or(0), node.minor.unwrap_or(0)),
    };
    Ok((kind, major, minor))
}

fn device_node(config: &mut Value, node: &DeviceNode, lookup: Lookup<'_>) -> Result<()> {
    let host = lookup(node.on_host());
    let (kind, major, minor) = kind_and_numbers(node, host)?;
    let owner = |given: Option<u32>, field: &str| {
        let of_process = config.pointer(field).and_then(Value::as_u64);
        given.or(of_process.and_then(|id| u32::try_from(id).ok()).filter(|id| *id > 0))
    };
    let mut device = LinuxDevice::default();
    device.set_path(node.path.clone().into());
    device.set_typ(kind);
    device.set_major(major);
    device.set_minor(minor);
    device.set_file_mode(node.file_mode.or(host.map(|h| h.mode)));
    device.set_uid(owner(node.uid, "/process/user/uid"));
    device.set_gid(owner(node.gid, "/process/user/gid"));
    let mut device = value(&device)?;
    // oci-spec always writes numbers. A FIFO has none (runtime-spec, config-linux.md, "Devices"), and the reference
    // library writes none.
    if kind == LinuxDeviceType::P
        && major == 0
        && minor == 0
        && let Some(device) = device.as_object_mut()
    {
        device.shift_remove("major");
        device.shift_remove("minor");
    }
    let devices = array_at(config, &["linux"], "devices")?;
    remove_first(devices, "path", &node.path);
    // A configuration may list a path twice: the second entry is replaced where it is.
    let same = |d: &&mut Value| d.get("path").and_then(Value::as_str) == Some(&node.path);
    match devices.iter_mut().find(same) {
        Some(old) => *old = device,
        None => devices.push(device),
    }
    if matches!(kind, LinuxDeviceType::B | LinuxDeviceType::C) {
        let access = node.permissions.as_deref().filter(|p| !p.is_empty()).unwrap_or("rwm");
        let mut rule = LinuxDeviceCgroup::default();
        rule.set_allow(true);
        rule.set_typ(Some(kind));
        rule.set_major(Some(major));
        rule.set_minor(Some(minor));
        rule.set_access(Some(access.to_owned()));
        array_at(config, &["linux", "resources"], "devices")?.push(value(&rule)?);
    }
    Ok(())
}

fn mounts(config: &mut Value, edits: &ContainerEdits) -> Result<()> {
    if edits.mounts.is_empty() {
        return Ok(());
    }
    let present = array_at(config, &[], "mounts")?;
    for one in &edits.mounts {
        remove_first(present, "destination", &one.container_path);
        let mut mount = Mount::default();
        mount.set_destination(one.container_path.clone().into());
        mount.set_typ(one.mount_type.clone().filter(|t| !t.is_empty()));
        mount.set_source(Some(one.host_path.clone().into()));
        mount.set_options(filled(&one.options));
        present.push(value(&mount)?);
    }
    // A deeper path is mounted later; the order of equally deep paths is kept.
    present.sort_by_key(|m| depth(m.get("destination").and_then(Value::as_str).unwrap_or("")));
    Ok(())
}

/// Removes the first of `items` whose field `name` is `text`; the reference library keeps the others.
fn remove_first(items: &mut Vec<Value>, name: &str, text: &str) {
    let same = |item: &Value| item.get(name).and_then(Value::as_str) == Some(text);
    if let Some(at) = items.iter().position(same) {
        items.remove(at);
    }
}

/// The number of slashes in a path without `.`, `..` and doubled slashes, by which the reference library sorts: `/` and
/// `/a` have the same depth. A relative path, which runtimes before runc 1.2 accept, has one less.
fn depth(path: &str) -> usize {
    let slashes = |path: &str| ContainerPath::new(path).map_or(0, |clean| clean.as_str().matches('/').count());
    match path.strip_prefix('/') {
        Some(_) => slashes(path),
        None => slashes(&format!("/{path}")).saturating_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Device, Hook, Mount};
    use super::*;

    fn node(path: &str) -> DeviceNode {
        DeviceNode {
            path: path.into(),
            ..DeviceNode::default()
        }
    }

    fn nvidia0(path: &str) -> Option<HostNode> {
        (path == "/dev/nvidia0").then_some(HostNode {
            node_type: 'c',
            major: 195,
            minor: 0,
            mode: 0o666,
        })
    }

    #[test]
    fn everything_lands_where_a_runtime_looks() {
        let mut config = json!({
            "x-unknown": 1,
            "process": {"env": ["A=old", "B=1"], "user": {"uid": 7, "gid": 0}},
            "mounts": [{"destination": "/dev/shm"}, {"destination": "/proc"}, {"destination": "/a/b/"}],
        });
        let edits = ContainerEdits {
            env: vec!["A=new".into(), "C=1".into()],
            device_nodes: vec![
                node("/dev/nvidia0"),
                DeviceNode {
                    node_type: Some("c".into()),
                    major: Some(240),
                    minor: Some(3),
                    file_mode: Some(0o444),
                    gid: Some(44),
                    ..node("/dev/later")
                },
            ],
            mounts: vec![Mount {
                host_path: "/h".into(),
                container_path: "/lib".into(),
                options: vec!["ro".into()],
                ..Mount::default()
            }],
            hooks: vec![Hook {
                hook_name: "createContainer".into(),
                path: "/h".into(),
                timeout: Some(5),
                ..Hook::default()
            }],
            additional_gids: vec![0, 44, 44],
            ..ContainerEdits::default()
        };
        apply(&mut config, &edits, &nvidia0).unwrap();
        assert_eq!(
            config,
            json!({
                "x-unknown": 1,
                "process": {"env": ["A=new", "B=1", "C=1"], "user": {"uid": 7, "gid": 0, "additionalGids": [44]}},
                "mounts": [
                    {"destination": "/proc"},
                    {"destination": "/lib", "source": "/h", "options": ["ro"]},
                    {"destination": "/dev/shm"},
                    {"destination": "/a/b/"},
                ],
                "linux": {
                    "devices": [
                        {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "fileMode": 0o666, "uid": 7},
                        {"path": "/dev/later", "type": "c", "major": 240, "minor": 3, "fileMode": 0o444, "uid": 7, "gid": 44},
                    ],
                    "resources": {"devices": [
                        {"allow": true, "type": "c", "major": 195, "minor": 0, "access": "rwm"},
                        {"allow": true, "type": "c", "major": 240, "minor": 3, "access": "rwm"},
                    ]},
                },
                "hooks": {"createContainer": [{"path": "/h", "timeout": 5}]},
            })
        );
    }

    #[test]
    fn a_fifo_has_no_numbers_and_no_cgroup_rule() {
        let mut config = json!({});
        let fifo = DeviceNode {
            node_type: Some("p".into()),
            ..node("/dev/fifo")
        };
        let edits = ContainerEdits {
            device_nodes: vec![fifo],
            ..ContainerEdits::default()
        };
        apply(&mut config, &edits, &nvidia0).unwrap();
        assert_eq!(
            config,
            json!({"linux": {"devices": [{"path": "/dev/fifo", "type": "p"}]}})
        );
    }

    #[test]
    fn nothing_changes_on_failure() {
        let mut config = json!({"process": {"env": []}});
        let edits = ContainerEdits {
            env: vec!["A=1".into()],
            device_nodes: vec![node("/dev/nvidia7")],
            ..ContainerEdits::default()
        };
        let e = apply(&mut config, &edits, &nvidia0).unwrap_err().to_string();
        assert!(e.contains("/dev/nvidia7"), "{e}");
        assert_eq!(config, json!({"process": {"env": []}}));
        assert!(apply(&mut json!({"process": []}), &edits, &nvidia0).is_err());
    }

    #[test]
    fn edits_of_a_file_come_once_and_first() {
        let with = |env: &str| ContainerEdits {
            env: vec![env.into()],
            ..ContainerEdits::default()
        };
        let device = |env: &str| Device {
            edits: with(env),
            ..Device::default()
        };
        let spec = Spec {
            edits: with("S=1"),
            devices: vec![device("A=1"), device("B=1")],
            ..Spec::default()
        };
        let all = collect(spec.devices.iter().map(|d| (&spec, d)));
        assert_eq!(all.env, ["S=1", "A=1", "B=1"]);
    }
}
