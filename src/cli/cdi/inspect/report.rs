//! What `cdi inspect` reports, as JSON and as text.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use tranche_core::text::shown;
use tranche_core::types::CdiVersion;
use tranche_plan::cdi::inject::Lookup;
use tranche_plan::cdi::registry::FoundDevice;
use tranche_plan::cdi::{ContainerEdits, DeviceNode, LeftOut, minimum_version};

/// Everything that a container with some devices gets.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report<'a> {
    devices: Vec<DeviceReport<'a>>,
    container_edits: &'a ContainerEdits,
    nodes_on_host: Vec<NodeReport<'a>>,
    /// Sources of mounts and programs of hooks that do not exist.
    missing_on_host: Vec<&'a str>,
    /// What the headers of the files say was left out for an old version of CDI.
    left_out: BTreeSet<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeviceReport<'a> {
    name: &'a str,
    file: &'a Path,
    cdi_version: &'a str,
    minimum_version: CdiVersion,
    #[serde(skip)]
    annotations: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeReport<'a> {
    path: &'a str,
    host_path: &'a str,
    missing: bool,
    #[serde(rename = "type")]
    node_type: Option<String>,
    major: Option<i64>,
    minor: Option<i64>,
    #[serde(skip)]
    mode: u32,
}

impl<'a> Report<'a> {
    /// The report on the devices `found`, which were asked for by `names`, and on their `edits`.
    pub(super) fn new(
        names: &'a [String],
        found: &[FoundDevice<'a>],
        edits: &'a ContainerEdits,
        lookup: Lookup<'_>,
    ) -> Self {
        let devices = names.iter().zip(found).map(|(name, one)| DeviceReport {
            name,
            file: &one.file.path,
            cdi_version: &one.file.spec.version,
            minimum_version: minimum_version(&one.file.spec),
            annotations: &one.device.annotations,
        });
        let sources = edits.mounts.iter().map(|m| m.host_path.as_str());
        let programs = edits.hooks.iter().map(|h| h.path.as_str());
        let left_out = found.iter().flat_map(|f| {
            let comments = f.file.comments.iter();
            comments.filter_map(|line| LeftOut::from_comment(line, &f.device.name))
        });
        Self {
            devices: devices.collect(),
            container_edits: edits,
            nodes_on_host: edits
                .device_nodes
                .iter()
                .map(|node| NodeReport::new(node, lookup))
                .collect(),
            missing_on_host: sources
                .chain(programs)
                .filter(|path| !Path::new(path).exists())
                .collect(),
            left_out: left_out.collect(),
        }
    }
}

impl<'a> NodeReport<'a> {
    fn new(node: &'a DeviceNode, lookup: Lookup<'_>) -> Self {
        let host = lookup(node.on_host());
        Self {
            path: &node.path,
            host_path: node.on_host(),
            missing: host.is_none(),
            node_type: host.map(|h| h.node_type.to_string()).or_else(|| node.node_type.clone()),
            major: host.map(|h| h.major).or(node.major),
            minor: host.map(|h| h.minor).or(node.minor),
            mode: host.map_or(0, |h| h.mode),
        }
    }

    /// Its type, numbers and permission bits.
    fn describe(&self) -> String {
        let minor = self.minor.unwrap_or(0);
        match (&self.node_type, self.major) {
            (Some(kind), Some(major)) if !self.missing => format!("{kind} {major}:{minor} {:04o}", self.mode),
            (Some(kind), Some(major)) if major != 0 => {
                format!("{kind} {major}:{minor} (not on the host; made from these numbers)")
            }
            _ => "MISSING ON THE HOST: no container starts with it".to_owned(),
        }
    }
}

impl fmt::Display for Report<'_> {
    /// One line for each thing. Names, paths and variables come from files of any vendor, so they are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |what: &str, value: &str| writeln!(f, "{what:<9} {}", shown(value));
        let is_missing = |path: &String| self.missing_on_host.contains(&path.as_str());
        for device in &self.devices {
            line("device", device.name)?;
            let (file, version, needed) = (device.file.display(), device.cdi_version, device.minimum_version);
            line("from", &format!("{file} (declares CDI {version}, needs {needed})"))?;
            for (key, value) in device.annotations {
                line("note", &format!("{key}={value}"))?;
            }
        }
        let edits = self.container_edits;
        for entry in &edits.env {
            line("env", entry)?;
        }
        for node in &self.nodes_on_host {
            let from = from(node.host_path, node.path);
            line("node", &format!("{}{from}  {}", node.path, node.describe()))?;
        }
        for net in &edits.net_devices {
            line("network", &format!("{} from {}", net.name, net.host_interface_name))?;
        }
        for mount in &edits.mounts {
            let missing = match is_missing(&mount.host_path) {
                true => "  MISSING ON THE HOST: no container starts with it",
                false => "",
            };
            let (path, options) = (&mount.container_path, mount.options.join(","));
            let from = from(&mount.host_path, path);
            line("mount", &format!("{path}{from}  {options}{missing}"))?;
        }
        for hook in &edits.hooks {
            let missing = if is_missing(&hook.path) {
                "  (MISSING ON THE HOST)"
            } else {
                ""
            };
            line("hook", &format!("{} {}{missing}", hook.hook_name, hook.path))?;
            for argument in &hook.args {
                line("", &format!("  {argument}"))?;
            }
        }
        for gid in &edits.additional_gids {
            line("group", &gid.to_string())?;
        }
        for what in &self.left_out {
            line("left out", what)?;
        }
        Ok(())
    }
}

fn from(host: &str, container: &str) -> String {
    match host == container {
        true => String::new(),
        false => format!(" from {host}"),
    }
}
