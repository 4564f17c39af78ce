//! Device nodes.

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{Gid, Uid, chown};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tranche_core::error::{Context, Error, Result};
use tranche_core::types::HostPath;
use tranche_plan::access::NodeParams;
use tranche_plan::inventory::{DeviceNode, Inventory};

/// The nodes of a host that are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeSet {
    /// Those of the driver as a whole: nvidiactl, nvidia-modeset, nvidia-uvm and nvidia-uvm-tools.
    Control,
    /// In addition those of GPUs, of MIG instances and of MIG's configuration and monitoring.
    All,
}

/// A device node that belongs on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFile<'a> {
    /// Where it belongs, what its numbers are, and whether it exists.
    pub node: &'a DeviceNode,
    /// The permission bits that it gets if it is made; `None` for those of the driver's parameters.
    pub mode: Option<u32>,
    /// The permission bits that it gets if it is made on a machine that closes nodes to users without a claim.
    pub closed: u32,
}

/// The nodes in `inventory`, by path. A node whose numbers are unknown is not among them.
pub fn nodes(inventory: &Inventory, set: NodeSet) -> Vec<DeviceFile<'_>> {
    // The modes of capabilities are those of /proc/driver/nvidia/capabilities ("Device Nodes and Capabilities" in
    // NVIDIA's MIG user guide): only root may configure MIG.
    const READABLE: Option<u32> = Some(0o444);
    const ONLY_ROOT: Option<u32> = Some(0o400);
    let host = &inventory.nodes;
    // Every user needs those of the driver as a whole (tranche_plan::access).
    let control = host.control.iter().map(|control| (&control.node, None, 0o666));
    let gpus = inventory
        .gpus
        .iter()
        .filter_map(|gpu| Some((gpu.node.as_ref()?, None, 0o660)));
    let instances = inventory.mig_devices().flat_map(|(_, mig)| {
        let caps = [&mig.gpu_instance_cap, &mig.compute_instance_cap];
        caps.into_iter().flatten().map(|node| (node, READABLE, 0o440))
    });
    let config = host.mig_config.iter().map(|node| (node, ONLY_ROOT, 0o400));
    let monitor = host.mig_monitor.iter().map(|node| (node, READABLE, 0o440));
    let others = gpus
        .chain(instances)
        .chain(config)
        .chain(monitor)
        .filter(|_| set == NodeSet::All);
    // Instances of one GPU instance share its node.
    let by_path: BTreeMap<&HostPath, DeviceFile<'_>> = control
        .chain(others)
        .map(|(node, mode, closed)| (&node.host, DeviceFile { node, mode, closed }))
        .collect();
    by_path.into_values().collect()
}

/// Makes the nodes of `set` that do not exist, as [`DeviceFile::make`] does. Returns the paths of those that were made,
/// and the errors of the others.
pub fn make_missing(
    inventory: &Inventory,
    set: NodeSet,
    params: NodeParams,
    is_closed: bool,
) -> (Vec<HostPath>, Vec<Error>) {
    let (mut made, mut wrong) = (Vec::new(), Vec::new());
    for file in nodes(inventory, set).iter().filter(|file| !file.node.present) {
        match file.make(params, is_closed) {
            Ok(()) => made.push(file.node.host.clone()),
            Err(error) => wrong.push(error),
        }
    }
    (made, wrong)
}

impl DeviceFile<'_> {
    /// Makes the node, which does not exist, with the owner and the mode of `params` where it has no mode of its own;
    /// with `is_closed`, so that root alone may open what needs a claim.
    ///
    /// # Errors
    /// Returns an error if it cannot be made, or if something is at its place by now.
    pub fn make(&self, params: NodeParams, is_closed: bool) -> Result<()> {
        let path = self.node.host.as_path();
        let about = self.node.host.as_str();
        let (mode, uid, gid) = match is_closed {
            true => (self.closed, 0, 0),
            false => (self.mode.unwrap_or(params.mode), params.uid, params.gid),
        };
        if let Some(directory) = path.parent() {
            make_directory(directory)?;
        }
        let number = makedev(u64::from(self.node.major), u64::from(self.node.minor));
        // Nobody may open it before it has its owner.
        mknod(path, SFlag::S_IFCHR, Mode::empty(), number).about(about, "cannot be created")?;
        let finished = chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
            .about(about, "its owner cannot be set")
            .and_then(|()| {
                let set = fs::set_permissions(path, Permissions::from_mode(mode));
                set.about(about, "its mode cannot be set")
            });
        if finished.is_err() {
            fs::remove_file(path).about(about, "cannot be removed, and has not its owner and mode")?;
        }
        finished
    }
}

/// Makes `/dev/nvidia-caps`, in which every user may search, if it does not exist.
fn make_directory(directory: &Path) -> Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Error::failed(directory.display(), "cannot be created").from_source(error)),
        Ok(()) => {
            let open = fs::set_permissions(directory, Permissions::from_mode(0o755));
            open.about(directory.display(), "its mode cannot be set")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sets_differ_by_the_nodes_of_devices() {
        let inventory = tranche_plan::sim::open("dgx-a100-mig").unwrap();
        let names = |set| -> Vec<String> {
            let names = nodes(&inventory, set).into_iter();
            names.map(|file| file.node.host.to_string()).collect()
        };
        assert_eq!(
            names(NodeSet::Control),
            [
                "/dev/nvidia-modeset",
                "/dev/nvidia-uvm",
                "/dev/nvidia-uvm-tools",
                "/dev/nvidiactl"
            ]
        );
        let all = names(NodeSet::All);
        for name in ["/dev/nvidia0", "/dev/nvidia7", "/dev/nvidiactl"] {
            assert_eq!(all.iter().filter(|one| *one == name).count(), 1, "{name}");
        }
        let modes: BTreeMap<u32, usize> = nodes(&inventory, NodeSet::All)
            .iter()
            .filter_map(|file| file.mode)
            .fold(BTreeMap::new(), |mut count, mode| {
                *count.entry(mode).or_default() += 1;
                count
            });
        assert_eq!(modes.get(&0o400), Some(&1), "only MIG's configuration is root's alone");
        assert!(modes.get(&0o444).is_some_and(|count| *count > 10), "{modes:?}");
    }
}
