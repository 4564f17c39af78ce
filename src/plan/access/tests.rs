use super::*;
use crate::policy::read;
use crate::{share, sim};

const MIG: &str = "dgx-a100-mig";

/// The host `name` with the plan of a policy that dedicates `devices` under `access`.
fn host(name: &str, access: &str, devices: &str) -> (Inventory, Plan) {
    let inventory = sim::open(name).unwrap();
    let text = format!("sharing:\n  access: {access}\n  dedicated: {{devices: {devices}}}\n");
    let policy = read::parse("c.yaml", &text).unwrap().policy;
    let plan = share::plan(&policy, &inventory).unwrap();
    (inventory, plan)
}

fn holds(device: &DeviceKey, uids: &[u32]) -> Opener {
    Opener {
        device: device.clone(),
        uids: uids.iter().copied().collect(),
    }
}

/// Who may open the node `path`.
fn opening(nodes: &[NodeAccess<'_>], path: &str) -> Opening {
    let mut of_path = nodes.iter().filter(|one| one.node.host.as_str() == path);
    let found = of_path.next().unwrap_or_else(|| panic!("{path} is not kept"));
    assert!(of_path.next().is_none(), "{path} is listed twice");
    found.opening.clone()
}

fn listed(nodes: &[NodeAccess<'_>], path: &str) -> (u32, Vec<u32>) {
    match opening(nodes, path) {
        Opening::Listed(list) => (list.mode(), list.users().collect()),
        other => panic!("{path}: {other:?}"),
    }
}

#[test]
fn holders_may_open_what_they_hold_and_nothing_else() {
    let (inventory, plan) = host("t4x2", "enforce", "all");
    let [first, second] = [0, 1].map(|at: usize| DeviceKey::whole(inventory.gpus[at].uuid.clone()));
    let openers = [
        holds(&first, &[1000, 0]),
        holds(&first, &[1001]),
        holds(&second, &[1002, 100_000]),
    ];
    let of = nodes(&inventory, &plan, &openers, &MonitorIds::default());
    assert_eq!(listed(&of, "/dev/nvidia0"), (0o660, vec![1000, 1001]));
    assert_eq!(listed(&of, "/dev/nvidia1"), (0o660, vec![1002, 100_000]));
    assert_eq!(opening(&of, "/dev/nvidiactl"), Opening::Everybody(0o666));
    assert!(of.iter().all(|one| !one.node.host.as_str().contains("uvm")));
}

#[test]
fn a_device_without_claims_stays_as_the_driver_has_it() {
    let (inventory, plan) = host("t4x2", "enforce", "[1]");
    let of = nodes(&inventory, &plan, &[], &MonitorIds::default());
    assert_eq!(opening(&of, "/dev/nvidia0"), Opening::ByDriver);
    assert_eq!(listed(&of, "/dev/nvidia1"), (0o660, vec![]));
    for (name, devices) in [("t4x2", "all"), (MIG, "['0:0']")] {
        let (inventory, plan) = host(name, "open", devices);
        let held = holds(&plan.devices[0].key, &[1000]);
        let of = nodes(&inventory, &plan, &[held], &MonitorIds::default());
        assert!(!of.is_empty());
        assert!(
            of.iter().all(|one| !matches!(one.opening, Opening::Listed(_))),
            "{name}"
        );
    }
}

#[test]
fn a_mig_device_opens_its_gpu_and_its_own_capabilities() {
    let (inventory, plan) = host(MIG, "enforce", "['0:0', '0:1']");
    let (gpu, mig) = inventory.mig_devices().next().unwrap();
    let key = DeviceKey::mig(gpu.uuid.clone(), mig.gpu_instance, mig.compute_instance);
    let of = nodes(&inventory, &plan, &[holds(&key, &[1000])], &MonitorIds::default());
    let mut expected: BTreeSet<&str> = BTreeSet::from([gpu.node.as_ref().unwrap().host.as_str()]);
    expected.extend(capabilities(mig).map(|(node, _)| node.host.as_str()));
    assert_eq!(expected.len(), 3);
    let opened = of.iter().filter(|one| match &one.opening {
        Opening::Listed(list) => list.users().eq([1000]),
        _ => false,
    });
    assert_eq!(
        opened.map(|one| one.node.host.as_str()).collect::<BTreeSet<_>>(),
        expected
    );
    let config = inventory.nodes.mig_config.as_ref().unwrap();
    assert!(of.iter().all(|one| one.node.host != config.host), "it is root's alone");
    let monitor = inventory.nodes.mig_monitor.as_ref().unwrap().host.as_str();
    assert_eq!(listed(&of, monitor), (0o440, vec![]));
}

#[test]
fn monitors_may_open_everything() {
    let (inventory, plan) = host(MIG, "enforce", "['0:0']");
    let monitors = MonitorIds {
        uids: BTreeSet::from([101]),
        gids: BTreeSet::from([44]),
    };
    let of = nodes(&inventory, &plan, &[], &monitors);
    let closed = of.iter().filter_map(|one| match &one.opening {
        Opening::Listed(list) => Some(list),
        _ => None,
    });
    assert!(closed.clone().count() > 10);
    assert!(
        closed
            .into_iter()
            .all(|list| list.users().eq([101]) && list.attribute().is_some())
    );
}

#[test]
fn a_list_has_the_form_of_the_kernel() {
    let list = AccessList::new(Right::ReadAndWrite, [1001, 0, 1000, 1001].into_iter(), [44].into_iter());
    let entry = |tag: u16, right: u16, id: u32| {
        let parts = [&tag.to_le_bytes()[..], &right.to_le_bytes(), &id.to_le_bytes()];
        parts.concat()
    };
    let expected = [
        vec![2, 0, 0, 0],
        entry(1, 6, u32::MAX),
        entry(2, 6, 1000),
        entry(2, 6, 1001),
        entry(4, 6, u32::MAX),
        entry(8, 6, 44),
        entry(16, 6, u32::MAX),
        entry(32, 0, u32::MAX),
    ];
    assert_eq!(list.attribute().unwrap(), expected.concat());
    assert_eq!(
        AccessList::new(Right::Read, [0].into_iter(), [].into_iter()).attribute(),
        None
    );
}
