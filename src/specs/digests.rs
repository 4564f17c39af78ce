//! The digests of a host and of a policy: equal as long as they would give the same specifications.

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tranche_core::error::{Context, Result};
use tranche_plan::digest::Digest;
use tranche_plan::inventory::{DeviceNode, FORMAT, HostNodes, Inventory};
use tranche_plan::policy::Access;
use tranche_plan::share::Plan;

/// The digest of everything in `inventory` that a specification can depend on.
///
/// Left out is what changes while the host stays the same for a container: messages, the kernel's version, settings
/// that no edit depends on (compute mode, persistence, the MIG mode after the next reset), and the numbers of nodes
/// that exist. An engine reads those from the node, so a driver may come back with another major number.
///
/// # Errors
/// Returns an error if the inventory cannot be written as JSON.
pub fn of_host(inventory: &Inventory) -> Result<Digest> {
    let mut stable = inventory.clone();
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
    for node in device_nodes_mut(&mut stable) {
        // No specification says who owns a node.
        node.uid = 0;
        if node.present {
            (node.major, node.minor) = (0, 0);
        }
    }
    of(&stable)
}

fn device_nodes_mut(inventory: &mut Inventory) -> impl Iterator<Item = &mut DeviceNode> {
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
    } = &mut inventory.nodes;
    let of_gpus = inventory.gpus.iter_mut().flat_map(|gpu| {
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

/// The digest of all that specifications take from `plan`: the shares, their names, and how long a start waits for one.
/// Messages, and where a policy was read from, do not count: a policy that is only written in another way has the same
/// digest, and one that shares nothing has that of no policy.
///
/// # Errors
/// Returns an error if the plan cannot be written as JSON.
pub fn of_plan(plan: &Plan) -> Result<Digest> {
    let Plan {
        devices,
        whole_device,
        names,
        placement: _,
        wait,
        quota: _,
        queue: _,
        calendar: _,
        history: _,
        page_names: _,
        access,
        monitors: _,
        users: _,
        notes: _,
        warnings: _,
        absent: _,
        kubernetes: _,
    } = plan;
    let shared = (!devices.is_empty()).then_some((devices, whole_device, names, wait));
    match access {
        Access::Open => of(&shared),
        // Specifications then say the modes of nodes in containers.
        Access::Enforce => of(&(shared, access)),
    }
}

/// The digest of `value` as JSON. Equal values of one version of tranche have equal digests.
///
/// # Errors
/// Returns an error if `value` cannot be written as JSON.
pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Digest> {
    let text = serde_json::to_vec(value).about("digest", "cannot be computed")?;
    Ok(Digest(Sha256::digest(text).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_plan::inventory::{ComputeMode, Degraded, MigMode, Warning};
    use tranche_plan::policy::read;
    use tranche_plan::{share, sim};

    fn changed(change: impl FnOnce(&mut Inventory)) -> bool {
        let before = sim::open("dgx-a100-mig").unwrap();
        let mut after = before.clone();
        change(&mut after);
        assert!(before != after, "nothing was changed");
        of_host(&before).unwrap() != of_host(&after).unwrap()
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
            device_nodes_mut(&mut before).for_each(|node| node.present = present);
            let mut after = before.clone();
            device_nodes_mut(&mut after).for_each(|node| node.major += 1);
            let is_equal = of_host(&before).unwrap() == of_host(&after).unwrap();
            assert_eq!(is_equal, present);
        }
    }

    #[test]
    fn every_node_is_reached() {
        let mut inventory = sim::open("hgx-h200").unwrap();
        device_nodes_mut(&mut inventory).for_each(|node| node.present = !node.present);
        let count = device_nodes_mut(&mut inventory).count();
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

    #[test]
    fn a_digest_is_that_of_the_json() {
        // printf '["a",1]' | sha256sum
        let text = "sha256:135f17a475a61afdeeaf3759ad2e45ad1c7abb192395abe47e41fc8e395dc1a9";
        assert_eq!(of(&("a", 1)).unwrap().to_string(), text);
    }

    #[test]
    fn that_of_a_plan_has_what_specifications_take_and_nothing_else() {
        let turns =
            "sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 2}\n";
        let digest = |more: &str| {
            let policy = read::parse("c.yaml", &format!("{turns}{more}")).unwrap().policy;
            of_plan(&share::plan(&policy, &sim::open("t4x2").unwrap()).unwrap()).unwrap()
        };
        assert_ne!(
            digest("  wait: 30s\n"),
            digest(""),
            "hooks have the time in their arguments"
        );
        assert_eq!(digest("  wait: 30s\n"), digest("  wait: 30\n"));
        assert_eq!(
            digest("  quota: {shares: 9}\n"),
            digest(""),
            "no specification has a quota"
        );
    }
}
