//! The content of a specification: exactly the fields of CDI 1.1.0.
//!
//! As in the reference library, an unknown field makes the file invalid, because an engine would refuse it, and `null`
//! is an empty list.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// A whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The version of CDI that a reader must support.
    #[serde(rename = "cdiVersion")]
    pub version: String,
    /// `vendor/class`.
    pub kind: String,
    /// Annotations (0.6.0).
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The devices.
    #[serde(default, deserialize_with = "or_empty")]
    pub devices: Vec<Device>,
    /// Edits that are made once for a container that gets any of the devices.
    #[serde(
        default,
        rename = "containerEdits",
        deserialize_with = "or_empty",
        skip_serializing_if = "ContainerEdits::is_empty"
    )]
    pub edits: ContainerEdits,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name within the kind.
    #[serde(serialize_with = "quoted")]
    pub name: String,
    /// Annotations (0.6.0).
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What it does to a container.
    #[serde(default, rename = "containerEdits", deserialize_with = "or_empty")]
    pub edits: ContainerEdits,
}

/// Changes to a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ContainerEdits {
    /// Environment, `NAME=value`.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Network devices (1.1.0).
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub net_devices: Vec<NetDevice>,
    /// Mounts.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Hooks.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Intel's resource director (0.7.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<IntelRdt>,
    /// Groups for the container's process (0.7.0).
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
}

impl ContainerEdits {
    /// Whether it has no edits.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the edits of `more` behind its own, as an engine collects the edits of several devices.
    pub fn append(&mut self, more: &ContainerEdits) {
        self.env.extend_from_slice(&more.env);
        self.device_nodes.extend_from_slice(&more.device_nodes);
        self.net_devices.extend_from_slice(&more.net_devices);
        self.mounts.extend_from_slice(&more.mounts);
        self.hooks.extend_from_slice(&more.hooks);
        self.additional_gids.extend_from_slice(&more.additional_gids);
        if more.intel_rdt.is_some() {
            self.intel_rdt.clone_from(&more.intel_rdt);
        }
    }
}

/// A device node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct DeviceNode {
    /// In the container, and on the host unless `host_path` says otherwise.
    pub path: String,
    /// On the host (0.5.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// `b`, `c`, `u` or `p`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub node_type: Option<String>,
    /// Major number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major: Option<i64>,
    /// Minor number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<i64>,
    /// Permission bits, a decimal number in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// What the container's cgroup allows: some of `rwm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

impl DeviceNode {
    /// Where the node is on the host.
    pub fn on_host(&self) -> &str {
        match self.host_path.as_deref() {
            Some(path) if !path.is_empty() => path,
            _ => &self.path,
        }
    }
}

/// A network device (1.1.0).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NetDevice {
    /// On the host.
    pub host_interface_name: String,
    /// In the container.
    pub name: String,
}

/// A mount.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Mount {
    /// On the host.
    pub host_path: String,
    /// In the container.
    pub container_path: String,
    /// Options.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// File system type (0.4.0).
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub mount_type: Option<String>,
}

/// A hook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Hook {
    /// `prestart`, `createRuntime`, `createContainer`, `startContainer`, `poststart` or `poststop`.
    pub hook_name: String,
    /// The program.
    pub path: String,
    /// Its arguments, its own name first.
    #[serde(
        default,
        deserialize_with = "or_empty",
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "short_in_one_line"
    )]
    pub args: Vec<String>,
    /// Its environment.
    #[serde(default, deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

/// Intel's resource director (0.7.0).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntelRdt {
    /// Class of service.
    #[serde(default, rename = "closID", skip_serializing_if = "Option::is_none")]
    pub clos_id: Option<String>,
    /// Cache.
    #[serde(default, rename = "l3CacheSchema", skip_serializing_if = "Option::is_none")]
    pub l3_cache_schema: Option<String>,
    /// Bandwidth.
    #[serde(default, rename = "memBwSchema", skip_serializing_if = "Option::is_none")]
    pub mem_bw_schema: Option<String>,
    /// Lines for the schemata file (1.1.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schemata: Option<Vec<String>>,
    /// A monitoring group of its own (1.1.0).
    #[serde(default, rename = "enableMonitoring", skip_serializing_if = "Option::is_none")]
    pub enable_monitoring: Option<bool>,
    /// Until 1.0.0.
    #[serde(default, rename = "enableCMT", skip_serializing_if = "Option::is_none")]
    pub enable_cmt: Option<bool>,
    /// Until 1.0.0.
    #[serde(default, rename = "enableMBM", skip_serializing_if = "Option::is_none")]
    pub enable_mbm: Option<bool>,
}

fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Writes a name in quotes: to a YAML parser `0` is a number, and to some `0:1` is one in base 60.
fn quoted<S: Serializer>(name: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serde_saphyr::DoubleQuoted(name).serialize(serializer)
}

/// Writes a short command in one line of YAML: a specification has one for each name of a share, and each start of a
/// container parses them all. A longer one, with the driver's many links, has a line for each argument.
fn short_in_one_line<S: Serializer>(args: &Vec<String>, serializer: S) -> Result<S::Ok, S::Error> {
    if args.iter().map(String::len).sum::<usize>() <= 256 {
        serde_saphyr::FlowSeq(args).serialize(serializer)
    } else {
        args.serialize(serializer)
    }
}
