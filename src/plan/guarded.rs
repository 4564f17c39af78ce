//! Devices that a container gets only with a claim, and their device numbers.
//!
//! Any specification may have nodes for any device. What the plan splits or dedicates is found by its numbers, because
//! a node can have any name, so that no name of a specification is a way around the plan (DESIGN, section 12).

use crate::cdi::ContainerEdits;
use crate::cdi::inject::host_node;
use crate::inventory::{DeviceNode, HostDevice, Inventory};
use crate::policy::WholeDevice;
use crate::share::{Plan, SplitDevice};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use tranche_core::call::ClaimCall;
use tranche_core::error::Error;
use tranche_core::root::{DeviceNumber, nodes_brought};
use tranche_core::text::some;
use tranche_core::types::{CdiKind, DeviceKey, ShareName};

/// The devices of a host that a container gets only with a claim.
#[derive(Debug, Default)]
pub struct GuardedDevices {
    devices: Vec<GuardedDevice>,
    /// The device that each number gives, by its place in the list above.
    numbers: BTreeMap<DeviceNumber, usize>,
    /// The directories of the host with their nodes.
    homes: BTreeSet<PathBuf>,
}

/// A device that a container gets only with a claim.
#[derive(Debug)]
pub struct GuardedDevice {
    /// Its key in the ledger.
    pub key: DeviceKey,
    /// As people name it: `gpu 0`.
    pub label: String,
    why: &'static str,
    /// What a container can ask for instead.
    ask: String,
}

/// A device node by which a container would get a guarded device without a claim.
#[derive(Debug)]
pub struct OpenNode<'a> {
    /// Where the node is.
    pub path: PathBuf,
    /// The device.
    pub device: &'a GuardedDevice,
}

impl GuardedDevices {
    /// The devices that `plan` splits or dedicates, and those of which something is held under an earlier policy: their
    /// keys are in `held`. A device that the policy leaves open to every container (`wholeDevice: open`) is not one
    /// of them.
    pub fn of(plan: &Plan, held: &BTreeSet<DeviceKey>, inventory: &Inventory) -> Self {
        let mut guarded = Self::default();
        for device in inventory.catalogue().usable() {
            let key = device.key();
            let split = plan.split(device.device());
            let is_open = |split: &SplitDevice| plan.whole_device == WholeDevice::Open && !split.method.is_whole();
            let (why, ask) = match split {
                Some(split) if is_open(split) => continue,
                Some(split) if split.method.is_whole() => ("dedicated by the policy", whole(device)),
                Some(split) => ("split by the policy", shares(plan, split)),
                None if held.iter().any(|held| held.overlaps(&key)) => {
                    ("held in part under an earlier policy", whole(device))
                }
                None => continue,
            };
            let at = guarded.devices.len();
            for node in nodes(device) {
                guarded.numbers.insert((node.major, node.minor), at);
                guarded.homes.insert(node.host.parent().as_path().to_owned());
            }
            guarded.devices.push(GuardedDevice {
                key,
                label: device.to_string(),
                why,
                ask,
            });
        }
        guarded
    }

    /// Whether every container may have every device.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// The first node in `edits` by which a container would get a guarded device without a claim on it. Nodes count by
    /// the numbers that the specification gives, and by those that they have on the host; and so do nodes that a
    /// bind mount brings.
    pub fn open_node<'e>(&self, edits: impl Iterator<Item = &'e ContainerEdits> + Clone) -> Option<OpenNode<'_>> {
        if self.is_empty() {
            return None;
        }
        let claims: Vec<ClaimCall> = edits
            .clone()
            .flat_map(|edits| &edits.hooks)
            .filter_map(|hook| ClaimCall::of_hook(&hook.args))
            .collect();
        let nodes = edits
            .clone()
            .flat_map(|edits| &edits.device_nodes)
            .flat_map(|node| {
                let number = |number: Option<i64>| u32::try_from(number.unwrap_or(0)).ok();
                let is_character = !matches!(node.node_type.as_deref(), Some("b" | "p"));
                let given = (is_character && node.major.is_some()).then(|| number(node.major).zip(number(node.minor)));
                let on_host = host_node(node.on_host())
                    .filter(|host| host.node_type == 'c')
                    .and_then(|host| number(Some(host.major)).zip(number(Some(host.minor))));
                let path = PathBuf::from(&node.path);
                [given.flatten(), on_host].map(|number| Some((path.clone(), number?)))
            })
            .flatten();
        let mounts = edits.flat_map(|edits| &edits.mounts).flat_map(|mount| {
            let is_bind = |option: &str| mount.options.iter().any(|word| word == option);
            let is_recursive = is_bind("rbind") || !is_bind("bind");
            self.brought(Path::new(&mount.host_path), is_recursive)
        });
        self.first_open(nodes.chain(mounts), &claims)
    }

    /// The nodes that a bind mount of `source` brings, each with its path on the host.
    pub fn brought(&self, source: &Path, is_recursive: bool) -> Vec<(PathBuf, DeviceNumber)> {
        nodes_brought(source, is_recursive, self.homes.iter().map(PathBuf::as_path))
    }

    /// The first of `nodes` that is of a guarded device on which none of `claims` is.
    pub fn first_open(
        &self,
        nodes: impl Iterator<Item = (PathBuf, DeviceNumber)>,
        claims: &[ClaimCall],
    ) -> Option<OpenNode<'_>> {
        let of_guarded = nodes.filter_map(|(path, number)| {
            let device = self.devices.get(*self.numbers.get(&number)?)?;
            Some(OpenNode { path, device })
        });
        let mut open = of_guarded.filter(|node| !claims.iter().any(|claim| claim.device == node.device.key));
        open.next()
    }
}

impl OpenNode<'_> {
    /// The refusal of `object`, which has the node.
    pub fn refusal(&self, object: impl fmt::Display) -> Error {
        let Self { path, device } = self;
        let what = format!(
            "has {} of {}, which is {} and needs a claim",
            path.display(),
            device.label,
            device.why
        );
        Error::failed(object, what).hint(format!("ask for {}", device.ask))
    }
}

/// The nodes that make a device usable: those of a GPU, and of a MIG device the capability of its compute instance,
/// because the nodes of its GPU and of its GPU instance belong to other devices as well. Where that one is not known,
/// the GPU's.
fn nodes(device: HostDevice<'_>) -> Vec<&DeviceNode> {
    let HostDevice { gpu, mig } = device;
    match mig {
        None => gpu.node.iter().chain(gpu.dri.iter().map(|dri| &dri.node)).collect(),
        Some(mig) => mig.compute_instance_cap.iter().chain(&gpu.node).take(1).collect(),
    }
}

fn whole(device: HostDevice<'_>) -> String {
    format!("{}={}", CdiKind::nvidia_gpu(), device.name())
}

fn shares(plan: &Plan, split: &SplitDevice) -> String {
    let name = |share: &str| format!("{}={}.{share}", split.kind, split.device.cdi_name());
    match split.replica() {
        Some(_) => name(ShareName::ANY),
        None => {
            let shares = plan.named_shares(split);
            some(&shares.map(|share| name(share.as_str())).collect::<Vec<_>>())
        }
    }
}
