//! The digest of a host: equal as long as the host would get the same specifications.

use super::{DeviceNode, FORMAT, HostNodes, Inventory};
use crate::digest::Digest;
use crate::error::Result;

impl Inventory {
    /// The digest of everything in this inventory that a specification can depend on.
    ///
    /// Left out is what changes while the host stays the same for a container: messages, the kernel's version, settings
    /// that no edit depends on (compute mode, persistence, the MIG mode after the next reset), and the numbers of nodes
    /// that exist. An engine reads those from the node, so a driver may come back with another major number.
    ///
    /// # Errors
    /// Returns an error if the inventory cannot be written as JSON.
    pub fn digest(&self) -> Result<Digest> {
        let mut stable = self.clone();
        stable.format = FORMAT;
        stable.platform.kernel.clear();
        stable.warnings.clear();
        stable.absent.clear();
        stable.degraded.clear();
        for gpu in &mut stable.gpus {
            gpu.compute_mode = None;
            gpu.persistence = None;
            if let Some(mig) = &mut gpu.mig {
                mig.pending = mig.current;
            }
        }
        for node in stable.device_nodes_mut() {
            // No specification says who owns a node.
            node.uid = 0;
            if node.present {
                (node.major, node.minor) = (0, 0);
            }
        }
        Digest::of(&stable)
    }

    fn device_nodes_mut(&mut self) -> impl Iterator<Item = &mut DeviceNode> {
        let HostNodes {
            control,
            caps,
            mig_config,
            mig_monitor,
            imex_channels,
            nvswitch,
            gds,
            gds_mounts: _,
            mofed,
            gdrcopy,
            orphans,
        } = &mut self.nodes;
        let of_gpus = self.gpus.iter_mut().flat_map(|gpu| {
            let instances = gpu.mig_devices.iter_mut();
            let caps = instances.flat_map(|mig| mig.gpu_instance_cap.iter_mut().chain(&mut mig.compute_instance_cap));
            let dri = gpu.dri.iter_mut().map(|dri| &mut dri.node);
            gpu.node.iter_mut().chain(dri).chain(caps)
        });
        let lists = [caps, nvswitch, gds, mofed, gdrcopy, orphans].into_iter().flatten();
        lists
            .chain(mig_config)
            .chain(mig_monitor)
            .chain(control.iter_mut().map(|control| &mut control.node))
            .chain(imex_channels.iter_mut().map(|channel| &mut channel.node))
            .chain(of_gpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{ComputeMode, Degraded, MigMode, Warning};
    use crate::sim;

    fn changed(change: impl FnOnce(&mut Inventory)) -> bool {
        let before = sim::open("dgx-a100-mig").unwrap();
        let mut after = before.clone();
        change(&mut after);
        assert!(before != after, "nothing was changed");
        before.digest().unwrap() != after.digest().unwrap()
    }

    #[test]
    fn what_no_specification_depends_on_does_not_change_it() {
        let warning = Warning::new("NVML", "is slow");
        let degraded = Degraded::Nvml {
            why: "is silent".into(),
        };
        assert!(!changed(|i| i.warnings.push(warning)));
        assert!(!changed(|i| i.absent.clear()));
        assert!(!changed(|i| i.degraded.push(degraded)));
        assert!(!changed(|i| i.platform.kernel = "6.99".to_owned()));
        assert!(!changed(
            |i| i.gpus[0].compute_mode = Some(ComputeMode::ExclusiveProcess)
        ));
        assert!(!changed(|i| i.gpus[0].persistence = Some(false)));
        assert!(!changed(|i| i.gpus[0].mig.as_mut().unwrap().pending = MigMode::Disabled));
        assert!(!changed(|i| i.nodes.caps[0].uid = 7));
    }

    #[test]
    fn the_numbers_of_a_node_count_only_while_it_does_not_exist() {
        for present in [true, false] {
            let mut before = sim::open("dgx-a100-mig").unwrap();
            before.device_nodes_mut().for_each(|node| node.present = present);
            let mut after = before.clone();
            after.device_nodes_mut().for_each(|node| node.major += 1);
            let is_equal = before.digest().unwrap() == after.digest().unwrap();
            assert_eq!(is_equal, present);
        }
    }

    #[test]
    fn every_node_is_reached() {
        let mut inventory = sim::open("hgx-h200").unwrap();
        inventory
            .device_nodes_mut()
            .for_each(|node| node.present = !node.present);
        let count = inventory.device_nodes_mut().count();
        let text = serde_json::to_string(&inventory).unwrap();
        assert_eq!(text.matches("\"present\":").count(), count);
    }

    #[test]
    fn what_a_specification_depends_on_changes_it() {
        assert!(changed(
            |i| i.driver.as_mut().unwrap().version = "580.1.2".parse().unwrap()
        ));
        assert!(changed(|i| drop(i.driver.as_mut().unwrap().files.pop())));
        assert!(changed(|i| drop(i.gpus.pop())));
        assert!(changed(|i| i.gpus.iter_mut().for_each(|g| g.mig_devices.truncate(1))));
        assert!(changed(|i| {
            let migs = i.gpus.iter_mut().flat_map(|g| &mut g.mig_devices);
            migs.for_each(|mig| mig.uuid = Some("MIG-00000000-0000".parse().unwrap()));
        }));
        assert!(changed(|i| i.nodes.caps[0].gid = 44));
        assert!(changed(|i| i.nodes.caps[0].present = false));
    }
}
