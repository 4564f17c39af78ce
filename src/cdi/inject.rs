//! Devices put into an OCI container specification, as an engine with CDI does it.
//!
//! The order and the rules are the reference library's (pkg/cdi, `Cache.InjectDevices` and `ContainerEdits.Apply`). The
//! specification stays a JSON value: what is unknown in it is not touched.

use super::spec::{ContainerEdits, DeviceNode, Hook, Mount, Spec};
use crate::error::{Error, Result};
use serde_json::{Map, Value, json};

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

/// Tells what is at a path of the host; `None` where there is nothing or something else than a device node.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<HostNode>;

/// All edits of `devices` in the order in which they are applied: those of a whole specification once, before its first
/// device.
pub fn collect<'a>(devices: impl IntoIterator<Item = (&'a Spec, &'a super::Device)>) -> ContainerEdits {
    let mut all = ContainerEdits::default();
    let mut seen: Vec<&Spec> = Vec::new();
    for (spec, device) in devices {
        if !seen.iter().any(|s| std::ptr::eq(*s, spec)) {
            seen.push(spec);
            append(&mut all, &spec.edits);
        }
        append(&mut all, &device.edits);
    }
    all
}

fn append(all: &mut ContainerEdits, more: &ContainerEdits) {
    all.env.extend_from_slice(&more.env);
    all.device_nodes.extend_from_slice(&more.device_nodes);
    all.net_devices.extend_from_slice(&more.net_devices);
    all.mounts.extend_from_slice(&more.mounts);
    all.hooks.extend_from_slice(&more.hooks);
    all.additional_gids.extend_from_slice(&more.additional_gids);
    if more.intel_rdt.is_some() {
        all.intel_rdt.clone_from(&more.intel_rdt);
    }
}

/// Applies `edits` to the OCI specification `config`.
///
/// # Errors
/// A device node that is neither on the host nor told in full, and a `config` that is no OCI specification. Nothing is
/// changed then.
pub fn apply(config: &mut Value, edits: &ContainerEdits, lookup: Lookup<'_>) -> Result<()> {
    let mut changed = config.clone();
    env(&mut changed, &edits.env)?;
    for node in &edits.device_nodes {
        device_node(&mut changed, node, lookup)?;
    }
    for net in &edits.net_devices {
        let devices = object_at(&mut changed, &["linux", "netDevices"])?;
        devices.insert(net.host_interface_name.clone(), json!({ "name": net.name }));
    }
    mounts(&mut changed, &edits.mounts)?;
    for one in &edits.hooks {
        array_at(&mut changed, &["hooks"], &one.hook_name)?.push(hook(one));
    }
    if let Some(rdt) = &edits.intel_rdt {
        let value = serde_json::to_value(rdt).map_err(|e| broken("linux.intelRdt").from_source(e))?;
        object_at(&mut changed, &["linux"])?.insert("intelRdt".into(), value);
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
        "is of another kind than OCI says",
    )
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
    let there = array_at(config, &["process"], "env")?;
    for entry in env {
        let name = entry.split_once('=').map_or(entry.as_str(), |(name, _)| name);
        let same = |v: &&mut Value| {
            v.as_str()
                .is_some_and(|t| t.split_once('=').map_or(t, |(n, _)| n) == name)
        };
        match there.iter_mut().find(same) {
            Some(old) => *old = json!(entry),
            None => there.push(json!(entry)),
        }
    }
    Ok(())
}

fn device_node(config: &mut Value, node: &DeviceNode, lookup: Lookup<'_>) -> Result<()> {
    let given = node.node_type.as_deref().filter(|t| !t.is_empty());
    let told = given == Some("p") || (given.is_some() && node.major.is_some_and(|m| m != 0));
    let host = lookup(node.on_host());
    if host.is_none() && !told {
        return Err(Error::failed(node.on_host(), "there is no such device node").hint("is the driver loaded?"));
    }
    let kind = given.map_or_else(
        || host.map_or(String::new(), |h| h.node_type.to_string()),
        str::to_owned,
    );
    let (major, minor) = match host {
        Some(host) if !told => (host.major, host.minor),
        _ => (node.major.unwrap_or(0), node.minor.unwrap_or(0)),
    };
    let mut device = Map::new();
    device.insert("path".into(), json!(node.path));
    device.insert("type".into(), json!(kind));
    if kind != "p" {
        device.insert("major".into(), json!(major));
        device.insert("minor".into(), json!(minor));
    }
    if let Some(mode) = node.file_mode.or(host.map(|h| h.mode)) {
        device.insert("fileMode".into(), json!(mode));
    }
    for (field, given) in [("uid", node.uid), ("gid", node.gid)] {
        let of_process = config
            .pointer(&format!("/process/user/{field}"))
            .and_then(Value::as_u64);
        if let Some(id) = given.map(u64::from).or(of_process.filter(|id| *id > 0)) {
            device.insert(field.into(), json!(id));
        }
    }
    let devices = array_at(config, &["linux"], "devices")?;
    devices.retain(|d| d.get("path").and_then(Value::as_str) != Some(&node.path));
    devices.push(Value::Object(device));
    if kind == "b" || kind == "c" {
        let access = node.permissions.as_deref().filter(|p| !p.is_empty()).unwrap_or("rwm");
        let rule = json!({"allow": true, "type": kind, "major": major, "minor": minor, "access": access});
        array_at(config, &["linux", "resources"], "devices")?.push(rule);
    }
    Ok(())
}

fn mounts(config: &mut Value, mounts: &[Mount]) -> Result<()> {
    if mounts.is_empty() {
        return Ok(());
    }
    let there = array_at(config, &[], "mounts")?;
    for mount in mounts {
        there.retain(|m| m.get("destination").and_then(Value::as_str) != Some(&mount.container_path));
        let mut one = Map::new();
        one.insert("destination".into(), json!(mount.container_path));
        if let Some(mount_type) = mount.mount_type.as_deref().filter(|t| !t.is_empty()) {
            one.insert("type".into(), json!(mount_type));
        }
        one.insert("source".into(), json!(mount.host_path));
        if !mount.options.is_empty() {
            one.insert("options".into(), json!(mount.options));
        }
        there.push(Value::Object(one));
    }
    // What lies deeper is mounted later; among equals the order stays.
    there.sort_by_key(|m| depth(m.get("destination").and_then(Value::as_str).unwrap_or("")));
    Ok(())
}

fn depth(path: &str) -> usize {
    crate::types::ContainerPath::new(path).map_or(0, |p| p.as_str().split('/').filter(|s| !s.is_empty()).count())
}

fn hook(hook: &Hook) -> Value {
    let mut one = Map::new();
    one.insert("path".into(), json!(hook.path));
    if !hook.args.is_empty() {
        one.insert("args".into(), json!(hook.args));
    }
    if !hook.env.is_empty() {
        one.insert("env".into(), json!(hook.env));
    }
    if let Some(timeout) = hook.timeout {
        one.insert("timeout".into(), json!(timeout));
    }
    Value::Object(one)
}

#[cfg(test)]
mod tests {
    use super::super::Device;
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
