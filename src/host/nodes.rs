//! Device nodes that belong to no single GPU.

use super::node::look;
use super::proc::{MigCapability, capability_minor, find_minors, numbered};
use super::scan::Scan;
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::types::{CapMinor, ContainerPath, ImexChannelId, Minor};
use tranche_plan::inventory::{
    ControlNode, ControlRole, Degraded, DeviceNode, HostMount, HostNodes, ImexChannel, PlatformKind, WarningKind,
};

/// Channel numbers are below 2^20: the module's limit on `imex_channel_count` is lower, but it has grown before.
const MAX_CHANNEL: u32 = 1 << 20;

/// All nodes but those of GPUs; `gpus` are the minors of the GPUs that answer.
pub(crate) fn collect(scan: &Scan<'_>, gpus: &BTreeSet<Minor>) -> HostNodes {
    let majors = &scan.majors;
    let minors = cap_minors(scan, &[MigCapability::Config, MigCapability::Monitor]);
    let mut nodes = HostNodes {
        control: control(scan),
        caps: numbered_nodes(scan, "/dev/nvidia-caps", "nvidia-cap", "nvidia-caps"),
        mig_config: minors.get(&MigCapability::Config).and_then(|m| cap_node(scan, *m)),
        mig_monitor: minors.get(&MigCapability::Monitor).and_then(|m| cap_node(scan, *m)),
        mofed: mofed(scan),
        imex_channels: imex(scan),
        ..HostNodes::default()
    };
    if !gpus.is_empty() {
        warn_missing(scan, &nodes);
    }
    for name in names(scan, "/dev") {
        // The number after `prefix`; `Some(None)` without one.
        let number = |prefix: &str| match name.strip_prefix(prefix)? {
            "" => Some(None),
            _ => numbered(&name, prefix).map(Some),
        };
        let node = |majors, minor| look(scan, &format!("/dev/{name}"), majors, minor);
        let switch = majors.of(&["nvidia-nvswitch"]);
        if let Some(minor) = number("nvidia-nvswitch") {
            nodes.nvswitch.extend(node(switch, minor));
        } else if name == "nvidia-nvswitchctl" {
            nodes.nvswitch.extend(node(switch, None));
        } else if number("nvidia-fs").is_some() {
            nodes.gds.extend(node(majors.of(&["nvidia-fs"]), None));
        } else if number("gdrdrv").is_some() {
            nodes.gdrcopy.extend(node(majors.of(&["gdrdrv"]), None));
        } else if let Some(minor) = number("nvidia") {
            let gpu = node(majors.gpu(), minor);
            nodes.orphans.extend(gpu.filter(|n| !gpus.contains(&Minor(n.minor))));
        }
    }
    if !nodes.gds.is_empty() {
        nodes.gds_mounts = gds_mounts(scan);
    }
    for list in [
        &mut nodes.caps,
        &mut nodes.nvswitch,
        &mut nodes.gds,
        &mut nodes.gdrcopy,
        &mut nodes.orphans,
        &mut nodes.mofed,
    ] {
        list.sort();
    }
    nodes
}

/// The names in a directory of device nodes.
fn names(scan: &Scan<'_>, dir: &str) -> Vec<String> {
    scan.names(&scan.roots.dev, dir, format!("{dir}/*"))
}

/// The nodes in `dir` whose names are `prefix` and their minor.
fn numbered_nodes(scan: &Scan<'_>, dir: &str, prefix: &str, driver: &str) -> Vec<DeviceNode> {
    let node = |name: &String| {
        let minor = numbered(name, prefix)?;
        look(scan, &format!("{dir}/{name}"), scan.majors.of(&[driver]), Some(minor))
    };
    names(scan, dir).iter().filter_map(node).collect()
}

/// The driver fixes the minors of the control nodes (`nv.h`: 255 and 254; the UVM module: 0 and 1).
fn control(scan: &Scan<'_>) -> Vec<ControlNode> {
    let majors = &scan.majors;
    // A driver that registers one name for all nodes does so even if the module for mode setting is not loaded.
    let mut modeset = majors.of(&["nvidia-modeset"]);
    if modeset.is_empty() && scan.roots.sys.exists("/module/nvidia_modeset") {
        modeset = majors.gpu();
    }
    let uvm = majors.of(&["nvidia-uvm"]);
    [
        (ControlRole::Ctl, "/dev/nvidiactl", majors.ctl(), 255),
        (ControlRole::Modeset, "/dev/nvidia-modeset", modeset, 254),
        (ControlRole::Uvm, "/dev/nvidia-uvm", uvm, 0),
        (ControlRole::UvmTools, "/dev/nvidia-uvm-tools", uvm, 1),
    ]
    .into_iter()
    .filter_map(|(role, path, majors, minor)| {
        let node = look(scan, path, majors, Some(minor))?;
        Some(ControlNode { role, node })
    })
    .collect()
}

/// Warns about missing nodes that every program with a GPU opens. The driver makes them only on request, and nothing
/// has requested them since the machine started. An engine can make such a node if its numbers are known; otherwise the
/// host is not complete.
fn warn_missing(scan: &Scan<'_>, nodes: &HostNodes) {
    for (role, path, remedy) in [
        (ControlRole::Ctl, "/dev/nvidiactl", "nvidia-modprobe"),
        (
            ControlRole::Uvm,
            "/dev/nvidia-uvm",
            "modprobe nvidia-uvm, then nvidia-modprobe -u -c 0",
        ),
    ] {
        let is_present = |c: &ControlNode| c.role == role && c.node.present;
        if !nodes.control.iter().any(is_present) {
            let text = format!("is missing, and no GPU works without it; run {remedy}");
            scan.findings.warn_of(WarningKind::MissingNode, path, text);
        }
        let is_linux = scan.platform.kind == PlatformKind::Linux;
        if is_linux && !nodes.control.iter().any(|control| control.role == role) {
            scan.findings.degrade(Degraded::ControlNode { path: path.to_owned() });
        }
    }
}

/// The node of a capability, which need not exist yet.
pub(crate) fn cap_node(scan: &Scan<'_>, minor: CapMinor) -> Option<DeviceNode> {
    let majors = scan.majors.of(&["nvidia-caps"]);
    look(
        scan,
        &format!("/dev/nvidia-caps/nvidia-cap{minor}"),
        majors,
        Some(minor.0),
    )
}

/// The minors of these capabilities. Each comes from its own file, which exists as long as the instance does, else from
/// the table of all capabilities.
pub(crate) fn cap_minors(scan: &Scan<'_>, capabilities: &[MigCapability]) -> BTreeMap<MigCapability, CapMinor> {
    let mut found = BTreeMap::new();
    let mut rest = Vec::new();
    for capability in capabilities {
        let file = format!("/driver/nvidia/capabilities/{}", capability.file());
        match scan.roots.proc.text(&file).ok().and_then(|t| capability_minor(&t)) {
            Some(minor) => {
                found.insert(*capability, minor);
            }
            None => rest.push(*capability),
        }
    }
    found.extend(find_minors(scan.mig_minors(), &rest));
    found
}

fn mofed(scan: &Scan<'_>) -> Vec<DeviceNode> {
    const DIR: &str = "/dev/infiniband";
    names(scan, DIR)
        .iter()
        .filter(|name| name.as_str() == "rdma_cm" || numbered(name, "uverbs").is_some())
        // The kernel numbers them, and NVIDIA's driver does not report their numbers.
        .filter_map(|name| look(scan, &format!("{DIR}/{name}"), &[], None))
        .collect()
}

fn imex(scan: &Scan<'_>) -> Vec<ImexChannel> {
    const NAME: &str = "nvidia-caps-imex-channels";
    let mut found: Vec<ImexChannel> = numbered_nodes(scan, &format!("/dev/{NAME}"), "channel", NAME)
        .into_iter()
        .filter(|node| node.minor < MAX_CHANNEL)
        .map(|node| ImexChannel {
            id: ImexChannelId(node.minor),
            node,
        })
        .collect();
    found.sort_by_key(|c| c.id);
    found
}

fn gds_mounts(scan: &Scan<'_>) -> Vec<HostMount> {
    let tree = &scan.roots.driver;
    let mut found = Vec::new();
    for (path, is_dir) in [("/etc/cufile.json", false), ("/run/udev", true)] {
        match tree.resolve(path) {
            Ok(real) if real.is_dir() == is_dir => {
                if let Ok(container) = ContainerPath::new(path) {
                    let host = real.host();
                    found.push(HostMount { host, container });
                }
            }
            Ok(_) => {
                let kind = if is_dir { "a directory" } else { "a file" };
                let text = format!("is not {kind}, which GPUDirect Storage needs, and is left out");
                scan.findings.warn(tree.host(path), text);
            }
            Err(_) => scan.findings.absent(path, [tree.host(path)]),
        }
    }
    found
}
