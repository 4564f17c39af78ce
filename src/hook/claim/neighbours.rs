//! A container with an MPS share may have no other GPU.
//!
//! A CUDA process uses one MPS daemon, and the daemon shows it one device. A process with a second device would not see
//! it, or would leave MPS and its limits.
//!
//! Devices are compared by their numbers, because a node can have any name. A container gets the devices in its
//! config.json, and the nodes that its bind mounts bring, alone or in a directory.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use tranche_core::call::{BoundPath, ClaimCall};
use tranche_core::error::{Context, Error, Result};
use tranche_core::oci::{CONFIG_LIMIT, Config, State};
use tranche_core::root::{DeviceNumber, HostDirectory, MountOrigin, RuntimeMount, nodes_brought, number_of};
use tranche_core::types::HostPath;

/// GPUs have the minors below this number. Those above belong to the driver as a whole: `nvidiactl` 255,
/// `nvidia-modeset` 254 (NVIDIA's open kernel modules, `nv-chardev-numbers.h`).
const GPU_MINORS: u32 = 248;

/// Refuses a container that gets the node of another GPU or MIG device than the share's own.
pub(super) fn check(state: &State, call: &ClaimCall) -> Result<()> {
    let config = config(state)?;
    let own = own(&call.nodes, &config)?;
    for device in &config.devices {
        if let Some(number) = device.character {
            refuse(&own, number, &device.path, call)?;
        }
    }
    for mount in config.mounts.iter().filter(|mount| mount.origin == MountOrigin::Host) {
        for (path, number) in bound(&state.bundle, mount, &call.nodes) {
            refuse(&own, number, &path, call)?;
        }
    }
    Ok(())
}

/// The configuration in the bundle of the container.
pub(super) fn config(state: &State) -> Result<Config> {
    let file = OsStr::new("config.json");
    let bytes = HostDirectory::open(&state.bundle).and_then(|bundle| bundle.read(file, CONFIG_LIMIT));
    Config::parse(&bytes.about(state.bundle.join(file).display(), "cannot be read")?)
}

/// The numbers of the share's own nodes, and the majors by which other devices are recognised.
#[derive(Default)]
struct Own {
    numbers: BTreeSet<DeviceNumber>,
    /// Majors of GPUs.
    gpus: BTreeSet<u32>,
    /// Majors of the capabilities of MIG instances.
    capabilities: BTreeSet<u32>,
}

/// The numbers that the share's own nodes have on the host, or in the container if the host has no node yet.
fn own(nodes: &[BoundPath], container: &Config) -> Result<Own> {
    let mut own = Own::default();
    for node in nodes {
        let on_host = number_of(node.host.as_path());
        let in_container = || {
            let mut devices = container.devices.iter();
            devices
                .find(|device| device.path == node.container.as_path())?
                .character
        };
        let number = on_host.or_else(in_container);
        let number = number.ok_or_else(|| {
            Error::failed(&node.host, "is not a device node")
                .hint("load the driver, or write the specification anew: tranche cdi generate")
        })?;
        own.numbers.insert(number);
        if node.container.below("/dev/nvidia-caps").is_some() {
            own.capabilities.insert(number.0);
        } else {
            own.gpus.insert(number.0);
        }
    }
    Ok(own)
}

impl Own {
    fn is_of_another(&self, number: DeviceNumber) -> bool {
        let (major, minor) = number;
        let is_a_devices = (self.gpus.contains(&major) && minor < GPU_MINORS) || self.capabilities.contains(&major);
        is_a_devices && !self.numbers.contains(&number)
    }
}

fn refuse(own: &Own, number: DeviceNumber, path: &Path, call: &ClaimCall) -> Result<()> {
    if !own.is_of_another(number) {
        return Ok(());
    }
    let (major, minor) = number;
    Err(Error::failed(
        format!("{} {}", call.label, path.display()),
        format!(
            "is another device ({major}:{minor}), and a container with an MPS share can have no other, since a process sees \
             one MPS daemon"
        ),
    )
    .hint("give each device a container of its own"))
}

/// The device nodes that a bind mount brings, with their paths in the container.
fn bound(bundle: &Path, mount: &RuntimeMount, own: &[BoundPath]) -> Vec<(PathBuf, DeviceNumber)> {
    let Some(source) = &mount.source else {
        return Vec::new();
    };
    // A relative source is relative to the bundle (config.md, "Mounts").
    let source = bundle.join(source);
    let homes: Vec<HostPath> = own.iter().map(|node| node.host.parent()).collect();
    let nodes = nodes_brought(&source, mount.recursive, homes.iter().map(HostPath::as_path));
    let in_container = |path: PathBuf| match path.strip_prefix(&source) {
        Ok(below) if below == Path::new("") => mount.at.clone(),
        Ok(below) => mount.at.join(below),
        Err(_) => path,
    };
    nodes
        .into_iter()
        .map(|(path, number)| (in_container(path), number))
        .collect()
}
