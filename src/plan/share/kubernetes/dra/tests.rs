//! What the driver gets of the built-in hosts.

use super::*;
use crate::policy::read;
use crate::share::plan;
use crate::sim;
use tranche_core::types::{MemorySize, Percent, Strategy};

fn planned(host: &str, policy: &str) -> (Inventory, Plan) {
    let inventory = sim::open(host).unwrap();
    let policy = read::parse("c.yaml", policy).unwrap().policy;
    let plan = plan(&policy, &inventory).unwrap();
    (inventory, plan)
}

fn devices(host: &str, policy: &str) -> Vec<DraDevice> {
    let (inventory, plan) = planned(host, policy);
    dra_devices(&inventory, &plan)
        .into_iter()
        .map(|(_, device)| device)
        .collect()
}

fn allocated(device: &str) -> AllocatedDevice {
    AllocatedDevice {
        device: device.into(),
        ..AllocatedDevice::default()
    }
}

const ALL: &str = "version: v1\nkubernetes: {door: dra}\n";

const TENTHS: &str = "version: v1
kubernetes: {door: dra}
sharing: {mps: {resources: [{name: nvidia.com/gpu, devices: [0], replicas: 10}]}}
";

const NAMED: &str = "version: v1
kubernetes: {door: dra}
sharing: {mps: {resources: [{name: nvidia.com/gpu, devices: [0], shares: [{name: Big, compute: 80%, memory: 9Gi}, {name: big, compute: 20%, memory: 1Gi}]}]}}
";

#[test]
fn without_the_door_nothing_is_offered_and_nothing_is_dedicated() {
    for policy in ["version: v1", "version: v1\nkubernetes: {door: none}"] {
        let (inventory, plan) = planned("t4x2", policy);
        assert!(
            dra_devices(&inventory, &plan).is_empty() && plan.devices.is_empty(),
            "{policy}"
        );
    }
}

#[test]
fn what_no_entry_shares_is_dedicated_to_one_claim_at_a_time() {
    let (inventory, plan) = planned("t4x2", TENTHS);
    let strategies: Vec<Strategy> = plan.devices.iter().map(|split| split.method.strategy()).collect();
    assert_eq!(strategies, [Strategy::Mps, Strategy::Dedicated]);
    let one = dra_part(&inventory, &plan, &allocated("gpu-1")).unwrap();
    assert_eq!((one.part, one.promise), (HeldPart::Whole, Promise::Whole));
    let offered = devices("t4x2", ALL);
    let names: Vec<&str> = offered.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["gpu-0", "gpu-1"]);
    assert!(
        offered
            .iter()
            .all(|device| device.parts.is_none() && device.memory_guarantee == "hard")
    );
}

#[test]
fn one_device_may_have_the_other_door() {
    let policy = "version: v1\nkubernetes: {door: dra, devices: [{devices: [0], door: device-plugin}]}\n";
    let (inventory, plan) = planned("t4x2", policy);
    assert_eq!(dra_devices(&inventory, &plan).len(), 1);
    let by_plugin = super::super::offers(&inventory, &plan);
    assert_eq!(by_plugin.len(), 1);
    assert!(dra_part(&inventory, &plan, &allocated("gpu-0")).is_err());
}

#[test]
fn mig_devices_have_names_that_say_profile_and_instance() {
    let offered = devices("dgx-a100-mig", ALL);
    let mig: Vec<&DraDevice> = offered.iter().filter(|device| device.mig.is_some()).collect();
    assert!(!mig.is_empty());
    for device in &mig {
        let profile = device.mig.as_ref().unwrap().profile.as_ref().unwrap();
        let start = format!("{}-mig-{}-", device.gpu.name, profile.replace(['.', '+'], "-"));
        assert!(device.name.starts_with(&start), "{}", device.name);
    }
    let mut names: Vec<&str> = offered.iter().map(|device| device.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), offered.len());
    let (inventory, plan) = planned("dgx-a100-mig", ALL);
    for device in &offered {
        let part = dra_part(&inventory, &plan, &allocated(&device.name)).unwrap();
        let uuid = device
            .mig
            .as_ref()
            .map_or(Some(&device.gpu.uuid), |mig| mig.uuid.as_ref());
        assert_eq!(part.split.uuid.as_ref(), uuid);
    }
}

#[test]
fn an_amount_of_a_device_with_equal_shares_is_what_was_allocated() {
    let (inventory, plan) = planned("t4x2", TENTHS);
    let share = AllocatedDevice {
        share_id: Some("8a1c2d3e-0000-4000-8000-000000000001".into()),
        memory: Some(MemorySize::from_mib(8 << 10)),
        compute: Some(Percent::of_sum(30)),
        ..allocated("gpu-0")
    };
    let part = dra_part(&inventory, &plan, &share).unwrap();
    assert_eq!(part.promise.to_string(), "mps:8192:30");
    assert_eq!(part.part.shares()[0].name.as_str(), share.share_id.as_ref().unwrap());
    // Without amounts, it is one of the equal shares.
    let default = AllocatedDevice {
        memory: None,
        compute: None,
        ..share.clone()
    };
    let tenth = plan.devices[0].promise(&plan.devices[0].shares.distinct()[0]);
    assert_eq!(dra_part(&inventory, &plan, &default).unwrap().promise, tenth);
    let whole = AllocatedDevice {
        share_id: None,
        ..share
    };
    let why = dra_part(&inventory, &plan, &whole).unwrap_err().to_string();
    assert!(why.contains("gpu-0: was allocated as a whole"), "{why}");
    // Where the API server drops amounts, each replica is a device.
    let replica = dra_part(&inventory, &plan, &allocated("gpu-0-share-3")).unwrap();
    assert_eq!((replica.promise, replica.part.shares()[0].name.as_str()), (tenth, "3"));
}

#[test]
fn shares_with_names_are_devices_whose_names_differ() {
    let (inventory, plan) = planned("t4x2", NAMED);
    let offered = devices("t4x2", NAMED);
    let parts = offered[0].parts.as_ref().unwrap();
    let names: Vec<(&str, &str)> = parts
        .shares
        .iter()
        .map(|s| (s.device.as_str(), s.name.as_str()))
        .collect();
    assert_eq!(names, [("gpu-0-share-big", "Big"), ("gpu-0-share-big-1", "big")]);
    assert!(!parts.equal);
    for (device, share) in names {
        let part = dra_part(&inventory, &plan, &allocated(device)).unwrap();
        assert_eq!(part.part.shares()[0].name.as_str(), share);
    }
    let amount = AllocatedDevice {
        share_id: Some("8a1c2d3e".into()),
        ..allocated("gpu-0")
    };
    assert!(dra_part(&inventory, &plan, &amount).is_err());
}

#[test]
fn what_is_not_offered_is_refused_by_name() {
    let (inventory, plan) = planned("t4x2", ALL);
    for device in ["gpu-7", "gpu-0-share-1", "", "gpu-0-mig-1g-5gb-7-0"] {
        let why = dra_part(&inventory, &plan, &allocated(device)).unwrap_err().to_string();
        assert!(
            why.contains(&format!("device {device}: is not on this node any more")),
            "{why}"
        );
    }
}
