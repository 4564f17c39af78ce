//! Device nodes that belong to no single GPU.

use super::node::{Expected, look};
use super::proc::{Majors, MigCapability, MigMinors, capability_minor, numbered};
use super::roots::Roots;
use super::tree::{Tree, is_absence};
use crate::inventory::{ControlNode, ControlRole, DeviceNode, HostMount, ImexChannel, Inventory, Nodes};
use crate::types::{CapMinor, ContainerPath, ImexChannelId, Minor};
use std::collections::{BTreeMap, BTreeSet};

/// Channel numbers are below 2^20 (the module's limit on `imex_channel_count` is lower, and has grown before).
const MAX_CHANNEL: u32 = 1 << 20;

/// Everything but the nodes of GPUs; `gpus` are the minors of those that have an entry of their own.
pub(crate) fn collect(
    roots: &Roots,
    majors: &Majors,
    mig: &MigMinors,
    gpus: &BTreeSet<Minor>,
    inventory: &mut Inventory,
) -> Nodes {
    let mut nodes = Nodes {
        control: control(roots, majors, inventory),
        caps: caps(roots, majors, inventory),
        ..Nodes::default()
    };
    let minors = cap_minors(roots, mig, &[MigCapability::Config, MigCapability::Monitor]);
    let mut cap = |capability| {
        let minor = minors.get(&capability)?;
        cap_node(roots, majors, *minor, inventory)
    };
    nodes.mig_config = cap(MigCapability::Config);
    nodes.mig_monitor = cap(MigCapability::Monitor);
    if !gpus.is_empty() {
        say_missing(&nodes, inventory);
    }
    let names = names(&roots.dev, "/dev", inventory);
    let mut numbered_nodes = |prefix: &str, majors: &[u32], minor_is_number: bool| -> Vec<DeviceNode> {
        let mut found = Vec::new();
        for name in &names {
            let Some(rest) = name.strip_prefix(prefix) else {
                continue;
            };
            let number = numbered(name, prefix);
            if number.is_none() && !rest.is_empty() {
                continue;
            }
            let expected = Expected {
                majors,
                minor: number.filter(|_| minor_is_number),
            };
            found.extend(look(roots, &format!("/dev/{name}"), expected, inventory));
        }
        found
    };
    nodes.nvswitch = numbered_nodes("nvidia-nvswitch", majors.of(&["nvidia-nvswitch"]), true);
    nodes.gds = numbered_nodes("nvidia-fs", majors.of(&["nvidia-fs"]), false);
    nodes.gdrcopy = numbered_nodes("gdrdrv", majors.of(&["gdrdrv"]), false);
    let all = numbered_nodes("nvidia", majors.gpu(), true);
    nodes.orphans = all.into_iter().filter(|n| !gpus.contains(&Minor(n.minor))).collect();
    if names.iter().any(|n| n == "nvidia-nvswitchctl") {
        let expected = Expected {
            majors: majors.of(&["nvidia-nvswitch"]),
            minor: None,
        };
        nodes
            .nvswitch
            .extend(look(roots, "/dev/nvidia-nvswitchctl", expected, inventory));
    }
    nodes.mofed = mofed(roots, inventory);
    nodes.imex_channels = imex(roots, majors, inventory);
    if !nodes.gds.is_empty() {
        nodes.gds_mounts = gds_mounts(&roots.driver, inventory);
    }
    for list in [
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

/// The names in a directory of the device tree; none where it is not there.
fn names(tree: &Tree, dir: &str, inventory: &mut Inventory) -> Vec<String> {
    match tree.list(dir) {
        Ok(entries) => entries.into_iter().map(|e| e.name).collect(),
        Err(e) if is_absence(&e) => {
            inventory.absent(format!("{dir}/*"), [tree.host(dir).as_str().to_owned()]);
            Vec::new()
        }
        Err(e) => {
            inventory.warn(tree.host(dir), format!("cannot be listed: {e}"));
            Vec::new()
        }
    }
}

/// Minors of the control nodes are fixed by the driver (`nv.h`: 255 and 254; the UVM module: 0 and 1).
fn control(roots: &Roots, majors: &Majors, inventory: &mut Inventory) -> Vec<ControlNode> {
    // A driver that registers one name for all does so whether or not the module for mode setting is loaded.
    let mut modeset = majors.of(&["nvidia-modeset"]);
    if modeset.is_empty() && roots.sys.exists("/module/nvidia_modeset") {
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
        let minor = Some(minor);
        let node = look(roots, path, Expected { majors, minor }, inventory)?;
        Some(ControlNode { role, node })
    })
    .collect()
}

/// Says which nodes are missing that every program with a GPU opens. The driver does not make them by itself: somebody
/// must have asked for them since the machine started.
fn say_missing(nodes: &Nodes, inventory: &mut Inventory) {
    for (role, path, remedy) in [
        (ControlRole::Ctl, "/dev/nvidiactl", "nvidia-modprobe"),
        (
            ControlRole::Uvm,
            "/dev/nvidia-uvm",
            "modprobe nvidia-uvm, then nvidia-modprobe -u -c 0",
        ),
    ] {
        let is_there = |c: &ControlNode| c.role == role && c.node.present;
        if !nodes.control.iter().any(is_there) {
            inventory.warn(path, format!("is missing, and no GPU works without it; run {remedy}"));
        }
    }
}

fn caps(roots: &Roots, majors: &Majors, inventory: &mut Inventory) -> Vec<DeviceNode> {
    let majors = majors.of(&["nvidia-caps"]);
    let mut found: Vec<DeviceNode> = names(&roots.dev, "/dev/nvidia-caps", inventory)
        .iter()
        .filter_map(|name| {
            let minor = Some(numbered(name, "nvidia-cap")?);
            look(
                roots,
                &format!("/dev/nvidia-caps/{name}"),
                Expected { majors, minor },
                inventory,
            )
        })
        .collect();
    found.sort();
    found
}

/// The node of a capability, whether or not it was made already.
pub(crate) fn cap_node(
    roots: &Roots,
    majors: &Majors,
    minor: CapMinor,
    inventory: &mut Inventory,
) -> Option<DeviceNode> {
    let expected = Expected {
        majors: majors.of(&["nvidia-caps"]),
        minor: Some(minor.0),
    };
    look(
        roots,
        &format!("/dev/nvidia-caps/nvidia-cap{minor}"),
        expected,
        inventory,
    )
}

/// The minors of these capabilities: each from its own file, which is there while the instance is, else from the table.
pub(crate) fn cap_minors(
    roots: &Roots,
    mig: &MigMinors,
    capabilities: &[MigCapability],
) -> BTreeMap<MigCapability, CapMinor> {
    let mut found = BTreeMap::new();
    let mut rest = Vec::new();
    for capability in capabilities {
        let file = format!("/driver/nvidia/capabilities/{}", capability.file());
        match roots.proc.text(&file).ok().and_then(|text| capability_minor(&text)) {
            Some(minor) => {
                found.insert(*capability, minor);
            }
            None => rest.push(*capability),
        }
    }
    found.extend(mig.find(&rest));
    found
}

fn mofed(roots: &Roots, inventory: &mut Inventory) -> Vec<DeviceNode> {
    const DIR: &str = "/dev/infiniband";
    names(&roots.dev, DIR, inventory)
        .iter()
        .filter(|name| name.as_str() == "rdma_cm" || numbered(name, "uverbs").is_some())
        // Their numbers are the kernel's business, and no driver of ours tells them.
        .filter_map(|name| look(roots, &format!("{DIR}/{name}"), Expected::ANYTHING, inventory))
        .collect()
}

fn imex(roots: &Roots, majors: &Majors, inventory: &mut Inventory) -> Vec<ImexChannel> {
    const DIR: &str = "/dev/nvidia-caps-imex-channels";
    let majors = majors.of(&["nvidia-caps-imex-channels"]);
    let mut found: Vec<ImexChannel> = names(&roots.dev, DIR, inventory)
        .iter()
        .filter_map(|name| {
            let id = numbered(name, "channel").filter(|id| *id < MAX_CHANNEL)?;
            let minor = Some(id);
            let node = look(roots, &format!("{DIR}/{name}"), Expected { majors, minor }, inventory)?;
            let id = ImexChannelId(id);
            Some(ImexChannel { id, node })
        })
        .collect();
    found.sort_by_key(|c| c.id);
    found
}

fn gds_mounts(tree: &Tree, inventory: &mut Inventory) -> Vec<HostMount> {
    let mut found = Vec::new();
    for (path, is_dir) in [("/etc/cufile.json", false), ("/run/udev", true)] {
        match tree.resolve(path) {
            Ok(real) if tree.is_dir(&real) == is_dir => {
                if let Ok(container) = ContainerPath::new(path) {
                    let host = tree.host(&real);
                    found.push(HostMount { host, container });
                }
            }
            Ok(_) => inventory.warn(
                tree.host(path),
                "is not what GPUDirect Storage has there, and is left out",
            ),
            Err(_) => inventory.absent(path, [tree.host(path).as_str().to_owned()]),
        }
    }
    found
}
