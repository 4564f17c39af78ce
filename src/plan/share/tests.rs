//! Plans of small hosts, and what must hold for every plan.

mod domains;
mod fits;
mod parts;

use super::*;
use crate::inventory::{Arch, Architecture, Driver, Gpu, MigDevice, MigMode, MigState, Platform, PlatformKind};
use crate::policy::{Amount, DeviceSet, Place, Resource, ShareAsk, Strategy};
use proptest::prelude::{Just, prop, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as Generator;
use tranche_core::types::{
    ComputeInstanceId, GpuIndex, GpuInstanceId, Interval, MigIndex, Minor, Overcommit, PciAddress,
};

fn gpu(index: u32, mib: u64) -> Gpu {
    Gpu {
        index: GpuIndex(index),
        index_is_known: true,
        minor: Minor(index),
        uuid: format!("GPU-0000000{index}-aaaa").parse().unwrap(),
        pci: PciAddress {
            domain: 0,
            bus: u8::try_from(index).unwrap() + 1,
            device: 0,
            function: 0,
        },
        name: "NVIDIA H200".into(),
        architecture: Some(Architecture::Hopper),
        compute_capability: None,
        sms: None,
        memory: Some(MemorySize::from_mib(mib)),
        mig: None,
        compute_mode: None,
        persistence: None,
        addressing: None,
        numa_node: None,
        pcie_root: None,
        brand: None,
        virtualization: None,
        node: None,
        dri: Vec::new(),
        mig_devices: Vec::new(),
        uses_system_memory: false,
        unnamed_instances: Vec::new(),
    }
}

fn mig(index: u32, profile: &str, mib: u64) -> MigDevice {
    MigDevice {
        index: MigIndex(index),
        uuid: Some(format!("MIG-0000000{index}-bbbb").parse().unwrap()),
        gpu_instance: GpuInstanceId(index + 7),
        compute_instance: ComputeInstanceId(0),
        profile: Some(profile.parse().unwrap()),
        memory: Some(MemorySize::from_mib(mib)),
        gpu_slices: None,
        compute_slices: None,
        sms: None,
        engines: None,
        gpu_instance_cap: None,
        compute_instance_cap: None,
    }
}

/// GPU 0 whole, GPU 1 whole, GPU 2 with two MIG devices.
fn host() -> Inventory {
    let platform = Platform {
        arch: Arch::X86_64,
        kind: PlatformKind::Linux,
        kernel: "6.1".into(),
        cgroup_v2: false,
    };
    let mut inventory = Inventory::empty(platform);
    inventory.driver = Some(Driver {
        version: "580.95.05".parse().unwrap(),
        cuda: Some("13.0".parse().unwrap()),
        limits_cgroups: false,
        library_dirs: Vec::new(),
        files: Vec::new(),
    });
    let mut parent = gpu(2, 80_000);
    parent.mig = Some(MigState {
        current: MigMode::Enabled,
        pending: MigMode::Enabled,
    });
    parent.mig_devices = vec![mig(0, "3g.40gb", 40_000), mig(1, "1g.10gb", 9_728)];
    inventory.gpus = vec![gpu(0, 81_920), gpu(1, 24_576), parent];
    inventory
}

fn policy(yaml: &str) -> Policy {
    crate::policy::read::parse("c.yaml", yaml).unwrap().policy
}

fn run() -> HostPath {
    HostPath::new("/run/tranche").unwrap()
}

fn planned(yaml: &str) -> Plan {
    plan(&policy(yaml), &host()).unwrap()
}

fn refused(yaml: &str) -> String {
    plan(&policy(yaml), &host()).unwrap_err().to_string()
}

#[test]
fn equal_parts_are_rounded_down_and_the_rest_is_told() {
    let p = planned("sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 3}\n");
    let d = &p.devices[0];
    assert_eq!(d.shares.len(), 3);
    assert_eq!(d.shares.distinct()[0].memory.unwrap().mib(), 27_306);
    assert_eq!(d.shares.distinct()[0].compute.unwrap().get(), 33);
    assert_eq!((d.memory_left.mib(), d.compute_left), (81_920 - 3 * 27_306, 1));
    assert_eq!(d.shares.distinct()[0].guarantees.memory.grade, Grade::Soft);
    let Need::MpsDaemon { pipe, .. } = &d.needs(&run())[1] else {
        panic!("{:?}", d.needs(&run()))
    };
    assert_eq!(pipe.as_str(), "/run/tranche/mps/0");
}

#[test]
fn unequal_parts_by_name() {
    let p = planned(
        "sharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      devices: [GPU-00000000-aaaa]\n      shares:\n      \
         - {name: small, compute: 20%, memory: 12Gi, priority: below-normal}\n      - {name: big, compute: 80%, memory: 64Gi}\n",
    );
    let names: Vec<_> = p.devices[0].shares.names().map(|name| name.to_string()).collect();
    assert_eq!(names, ["big", "small"]);
    assert_eq!(
        (p.devices[0].memory_left.mib(), p.devices[0].compute_left),
        (4 * 1024, 0)
    );
}

#[test]
fn strategies_side_by_side_and_on_mig() {
    let p = planned(
        "sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/mig-3g.40gb, replicas: 2}\n  timeSlicing:\n    interval: long\n    \
         resources:\n    - {name: nvidia.com/gpu, devices: [1, \"2:1\"], replicas: 4}\n",
    );
    let names: Vec<_> = p.devices.iter().map(|d| d.device.cdi_name()).collect();
    assert_eq!(names, ["1", "2:0", "2:1"]);
    let on_mig = &p.devices[1];
    assert_eq!(on_mig.shares.distinct()[0].memory.unwrap().mib(), 20_000);
    assert_eq!(
        on_mig.shares.distinct()[0].guarantees.memory.grade,
        Grade::Advisory,
        "MIG has no EXCLUSIVE_PROCESS"
    );
    assert!(matches!(
        p.devices[0].method,
        Method::TimeSlicing(TimeSlicing {
            interval: Interval::Long
        })
    ));
    assert!(matches!(
        p.devices[2].method,
        Method::TimeSlicing(TimeSlicing {
            interval: Interval::Default
        })
    ));
    assert_eq!(p.devices[0].shares.distinct()[0].memory, None);
    let gpu = GpuIndex(1);
    let interval = Interval::Long;
    assert_eq!(p.devices[0].needs(&run()), [Need::TimeSlice { gpu, interval }]);
}

#[test]
fn what_cannot_hold_is_refused_with_what_would() {
    let e = refused(
        "sharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      devices: [0]\n      shares:\n      \
         - {name: big, memory: 64Gi}\n      - {name: small, memory: 32Gi}\n",
    );
    assert_eq!(
        e,
        "c.yaml:4:7: gpu 0: shares ask for 96.0 GiB of 80.0 GiB: big 64.0 GiB, small 32.0 GiB; lower one, or set overcommit.memory to 1.2"
    );
    let e = refused("sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 49}\n");
    assert!(e.contains("at most 48"), "{e}");
    let e = refused(
        "sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n    \
         - {name: nvidia.com/gpu, devices: [1], replicas: 2}\n",
    );
    assert!(
        e.starts_with("c.yaml:5:7: gpu 1: two entries share it") && e.contains("line 4"),
        "{e}"
    );
    let e = refused(
        "sharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      devices: [0]\n      shares:\n      - {name: a, memory: 1Gi}\n      - {name: b}\n",
    );
    assert!(e.starts_with("c.yaml:8:9: gpu 0: share b has no memory"), "{e}");
}

/// One GPU that fell off the bus must not keep every container from starting.
#[test]
fn a_device_that_is_absent_costs_itself_alone() {
    let p = planned(
        "sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [7, 0], replicas: 2}\n  mps:\n    \
         resources:\n    - {name: nvidia.com/gpu, devices: [MIG-12345678-dead], replicas: 2}\n",
    );
    let split: Vec<_> = p
        .devices
        .iter()
        .map(|d| (d.device.cdi_name(), d.shares.len()))
        .collect();
    assert_eq!(split, [("0".to_owned(), 2)]);
    let mut said: Vec<String> = p.absent.iter().map(ToString::to_string).collect();
    said.sort();
    assert_eq!(
        said,
        [
            "c.yaml:4:40: device 7: not found; this host has 0, 1, 2, 2:0, 2:1",
            "c.yaml:7:40: device MIG-12345678-dead: not found; the UUID of a MIG device changes with every MIG layout, so name \
             it by index; this host has 2:0 (MIG-00000000-bbbb), 2:1 (MIG-00000001-bbbb)",
        ]
    );
    assert_eq!(p.notes, [""; 0]);
}

/// The MIG mode and the profiles change while the policy stays the same.
#[test]
fn a_device_that_cannot_be_shared_as_it_is_costs_itself_alone() {
    let p = planned(
        "sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [2, 0], replicas: 2}\n    \
         - {name: nvidia.com/mig-7g.80gb, devices: [\"2:0\"], replicas: 2}\n  dedicated: {devices: [GPU-00000002-aaaa, 1]}\n",
    );
    let split: Vec<_> = p.devices.iter().map(|d| d.device.cdi_name()).collect();
    assert_eq!(split, ["0", "1"]);
    let said: Vec<String> = p.absent.iter().map(ToString::to_string).collect();
    let is_mig = "gpu 2: is in MIG mode, where work runs on its instances only, and is left out; name those instead: \"2:0\" and \
                  so on";
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said.contains(&format!("c.yaml:4:40: {is_mig}")), "{said:?}");
    assert!(said.contains(&format!("c.yaml:6:25: {is_mig}")), "{said:?}");
    let profile = "c.yaml:5:48: gpu 2:0: is a 3g.40gb, and the entry, which is for mig-7g.80gb, leaves it out; ";
    assert!(said.iter().any(|line| line.starts_with(profile)), "{said:?}");
    // A file of an earlier version has no reason.
    let mut json = serde_json::to_value(&p.absent[0]).unwrap();
    json.as_object_mut().unwrap().remove("why");
    let old: AbsentDevice = serde_json::from_value(json).unwrap();
    assert!(old.to_string().contains(": not found; "), "{old}");
}

#[test]
fn a_count_of_devices_takes_those_that_are_there() {
    let p = planned("sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: 3, replicas: 2}\n");
    let split: Vec<_> = p.devices.iter().map(|d| d.device.cdi_name()).collect();
    assert_eq!(split, ["0", "1"]);
    let [absent] = p.absent.as_slice() else {
        panic!("{:?}", p.absent)
    };
    assert_eq!(
        (absent.asked.as_str(), absent.hint.as_str()),
        ("3 devices", "this host has 2")
    );
}

#[test]
fn before_volta_there_is_time_slicing_alone() {
    let mut old = host();
    old.gpus[1].architecture = Some(Architecture::Pascal);
    let mps = policy("sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [1], replicas: 2}\n");
    assert!(plan(&mps, &old).unwrap_err().to_string().contains("timeSlicing"));
    let ts =
        policy("sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [1], replicas: 2}\n");
    assert_eq!(plan(&ts, &old).unwrap().devices.len(), 1);
}

#[test]
fn more_clients_from_cuda_13_1_on() {
    let mut new = host();
    new.driver.as_mut().unwrap().cuda = Some("13.1".parse().unwrap());
    let p = policy("sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 60}\n");
    assert_eq!(plan(&p, &new).unwrap().devices[0].shares.len(), 60);
    assert!(plan(&p, &host()).is_err());
}

#[test]
fn without_nvml_time_can_be_cut_and_memory_cannot() {
    let mut blind = host();
    blind.gpus[0].memory = None;
    let mps = policy("sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 2}\n");
    assert!(
        plan(&mps, &blind)
            .unwrap_err()
            .to_string()
            .contains("NVML did not answer")
    );
    let ts =
        policy("sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 2}\n");
    assert!(plan(&ts, &blind).is_ok());
}

/// The defaults that the daemon of GPU 0 must have: MiB and percent.
fn defaults(sharing: &str) -> (SplitDevice, u64, u32) {
    let plan = planned(sharing);
    let needs = plan.devices[0].needs(&run());
    let [.., Need::MpsDaemon { memory, compute, .. }] = &needs[..] else {
        panic!("{needs:?}")
    };
    (plan.devices[0].clone(), memory.unwrap().mib(), compute.unwrap().get())
}

#[test]
fn a_daemon_s_defaults_allow_the_largest_claim_that_may_be_made() {
    for (more, replicas, one_each) in [("false", 10, false), ("false", 2, false), ("true", 10, true)] {
        let (split, memory, compute) = defaults(&format!(
            "sharing:\n  mps:\n    failRequestsGreaterThanOne: {more}\n    resources:\n    \
             - {{name: nvidia.com/gpu, devices: [0], replicas: {replicas}}}\n"
        ));
        let plan = Plan {
            devices: vec![split.clone()],
            ..Plan::default()
        };
        let shares = if one_each { 1 } else { replicas };
        let wish = Wish {
            shares: Some(shares),
            ..Wish::default()
        };
        let largest = fit(&plan, &wish, &Unused).unwrap();
        assert_eq!(
            (largest.memory.unwrap().mib(), largest.compute.unwrap().get()),
            (memory, compute)
        );
    }
    let (split, memory, compute) = defaults(UNEQUAL);
    let sum = split.shares.memory().unwrap().mib();
    assert_eq!((memory, compute), (sum, 100));
    // No more than there is, whatever may be promised.
    let (split, memory, compute) = defaults(
        "sharing:\n  overcommit: {memory: 2.0, compute: 2.0}\n  mps:\n    failRequestsGreaterThanOne: false\n    \
         resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 4}\n",
    );
    assert_eq!((memory, compute), (split.memory.unwrap().mib(), 100));
}

fn asks() -> impl Generator<Value = Vec<(u32, u32)>> {
    prop::collection::vec((1u32..=100, 1u32..=100), 1..8)
}

proptest! {
    #[test]
    fn parts_and_remainder_are_the_whole(mib in 1u64..2_000_000, n in 2u32..=48) {
        let mut inventory = host();
        inventory.gpus[0].memory = Some(MemorySize::from_mib(mib));
        let mut p = Policy::default();
        p.splits.push(Split {
            strategy: Strategy::Mps,
            resource: Resource::Gpu,
            kind: "nvidia.com/gpu".parse().unwrap(),
            devices: DeviceSet::Count(1),
            parts: Parts::Equal(n),
            fail_requests_greater_than_one: true,
            place: Place::default(),
        });
        match plan(&p, &inventory) {
            Err(_) => prop_assert!(mib < u64::from(n)),
            Ok(plan) => {
                let d = &plan.devices[0];
                let memory = d.shares.memory().unwrap().mib();
                let compute = d.shares.compute().unwrap().get();
                prop_assert_eq!(memory + d.memory_left.mib(), mib);
                prop_assert_eq!(compute + d.compute_left, 100);
            }
        }
    }

    #[test]
    fn no_plan_promises_more_than_there_is(asks in asks(), over in 1000u32..2500) {
        let mut p = Policy { overcommit_memory: format!("{}.{:03}", over / 1000, over % 1000).parse().unwrap(), ..Policy::default() };
        let shares = asks.iter().enumerate().map(|(i, (memory, compute))| ShareAsk {
            place: Place::default(),
            name: format!("s{i}").parse().unwrap(),
            compute: Some(Percent::try_from(*compute).unwrap()),
            memory: Some(Amount::Percent(Percent::try_from(*memory).unwrap())),
            priority: Priority::Normal,
        });
        p.splits.push(Split {
            strategy: Strategy::Mps,
            resource: Resource::Gpu,
            kind: "nvidia.com/gpu".parse().unwrap(),
            devices: DeviceSet::Count(1),
            parts: Parts::Named(shares.collect()),
            fail_requests_greater_than_one: true,
            place: Place::default(),
        });
        if let Ok(plan) = plan(&p, &host()) {
            let d = &plan.devices[0];
            let memory = d.shares.memory().unwrap().mib();
            let compute = d.shares.compute().unwrap().get();
            prop_assert!(memory <= p.overcommit_memory.of(81_920));
            prop_assert!(compute <= 100);
            prop_assert_eq!(d.memory_left.mib(), 81_920u64.saturating_sub(memory));
        } else {
            let compute: u32 = asks.iter().map(|a| a.1).sum();
            let memory: u64 = asks.iter().map(|a| 81_920 * u64::from(a.0) / 100).sum();
            prop_assert!(compute > 100 || memory > p.overcommit_memory.of(81_920));
        }
    }

    #[test]
    fn order_does_not_matter(order in Just(vec![0usize, 1, 2]).prop_shuffle()) {
        let mut p = policy(
            "sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], shares: [{name: a, memory: 1Gi}, {name: b, memory: 2Gi}]}\n    \
             - {name: nvidia.com/mig-3g.40gb, replicas: 2}\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [1], replicas: 4}\n",
        );
        let straight = plan(&p, &host()).unwrap();
        p.splits = order.iter().map(|i| p.splits[*i].clone()).collect();
        for split in &mut p.splits {
            if let Parts::Named(shares) = &mut split.parts { shares.reverse(); }
        }
        let mut turned = host();
        turned.gpus.reverse();
        prop_assert_eq!(plan(&p, &turned).unwrap(), straight);
    }
}

#[test]
fn a_plan_is_read_from_its_json() {
    let turns = "sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 2}\n";
    let plan = planned(&format!("{turns}  wait: 30s\n  quota: {{shares: 9}}\n"));
    assert_eq!((plan.wait.to_string().as_str(), plan.quota.shares), ("30s", 9));
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
}

#[test]
fn the_owner_of_the_daemon_is_carried_in_the_plan() {
    let of = |keys: &str| {
        let yaml = format!(
            "sharing:\n  mps:\n{keys}    resources:\n    - {{name: nvidia.com/gpu, devices: [0], replicas: 2}}\n"
        );
        planned(&yaml).devices.remove(0)
    };
    let (managed, external) = (of(""), of("    daemon: external\n    enforcement: v2\n"));
    assert!(managed.method.is_managed() && !external.method.is_managed());
    let Method::Mps(mps) = external.method else { panic!() };
    assert_eq!(mps.memory, MemoryLimitBy::Mps(NoCgroupLimit::Policy));
}

/// A host with the driver of this version.
fn with_driver(version: &str) -> Inventory {
    let mut inventory = host();
    inventory.driver.as_mut().unwrap().version = version.parse().unwrap();
    inventory
}

fn under(driver: &str, keys: &str, parts: &str) -> Result<SplitDevice> {
    let yaml =
        format!("sharing:\n  mps:\n{keys}    resources:\n    - {{name: nvidia.com/gpu, devices: [0], {parts}}}\n");
    plan(&policy(&yaml), &with_driver(driver)).map(|mut plan| plan.devices.remove(0))
}

/// Seen on NVIDIA's own programs: tranche_core::mps::version.
#[test]
fn the_version_of_the_driver_says_what_its_mps_daemon_can_do() {
    let needs_many = |split: &SplitDevice| {
        let mut needs = split.needs(&run()).into_iter();
        needs.find_map(|need| match need {
            Need::MpsDaemon { many_users, .. } => Some(many_users),
            _ => None,
        })
    };
    let equal = "replicas: 2";
    for (driver, users, many) in [
        ("550.163.01", "", false),
        ("555.58.02", "", true),
        ("580.159.04", "", true),
        ("580.159.04", "    users: one\n", false),
    ] {
        assert_eq!(
            needs_many(&under(driver, users, equal).unwrap()),
            Some(many),
            "{driver} {users}"
        );
    }
    let lines = |split: &SplitDevice| split.shares.distinct()[0].guarantees.not_available.join("; ");
    assert!(lines(&under("550.163.01", "", equal).unwrap()).contains("users: one user at a time"));
    assert!(!lines(&under("555.58.02", "", equal).unwrap()).contains("users:"));
    let refused = under("550.163.01", "    users: many\n", equal).unwrap_err().to_string();
    assert!(
        refused.contains("MPS of driver 550 serves one user at a time"),
        "{refused}"
    );
    // 470 answers `Unknown command` to every command about memory.
    let refused = under("470.256.02", "", equal).unwrap_err().to_string();
    assert!(
        refused.contains("MPS of driver 470 has no limits of memory"),
        "{refused}"
    );
    let compute = under("470.256.02", "", "shares: [{name: a, compute: 50%}]").unwrap();
    assert_eq!(compute.shares.distinct()[0].memory, None);
    let needs = compute.needs(&run());
    assert!(
        needs
            .iter()
            .any(|need| matches!(need, Need::MpsDaemon { memory: None, .. })),
        "{needs:?}"
    );
}

#[test]
fn a_daemon_or_a_server_that_its_users_command_makes_its_limits_advisory() {
    let grades_with = |driver: &str, setting: &str| {
        let split = under(driver, setting, "replicas: 2").unwrap();
        let guarantees = &split.shares.distinct()[0].guarantees;
        (
            guarantees.memory.grade,
            guarantees.compute.grade,
            guarantees.memory.root,
        )
    };
    let grades = |driver| grades_with(driver, "");
    let advisory = (Grade::Advisory, Grade::Advisory, Grade::None);
    assert_eq!(grades("535.261.03"), advisory);
    // A server of its own for each user.
    assert_eq!(grades("550.163.01"), advisory);
    assert_eq!(grades("555.58.02"), (Grade::Soft, Grade::Soft, Grade::Advisory));
    assert_eq!(grades_with("580.159.04", "    users: one\n"), advisory);
}

/// By UUID, daemons up to 555 clear the limit of device 0.
#[test]
fn a_client_gets_its_limit_of_memory_by_the_index_of_its_only_device() {
    let split = under("550.163.01", "", "replicas: 2").unwrap();
    let share = &split.shares.distinct()[0];
    let inside = split
        .in_container(split.promise(share), share.priority, &run())
        .unwrap();
    let limit = inside
        .environment
        .iter()
        .find(|(name, _)| *name == "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    assert_eq!(limit.unwrap().1, format!("0={}M", share.memory.unwrap().mib()));
}

#[test]
fn overcommit_is_told_as_nothing_left() {
    let mut p = policy("sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 2}\n");
    p.overcommit_memory = "1.5".parse::<Overcommit>().unwrap();
    let plan = plan(&p, &host()).unwrap();
    assert_eq!(plan.devices[0].shares.distinct()[0].memory.unwrap().mib(), 61_440);
    assert_eq!(plan.devices[0].memory_left.mib(), 0);
}

const UNEQUAL: &str = "sharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      devices: [0]\n      shares:\n      \
    - {name: big, compute: 60%, memory: 40Gi}\n      - {name: mid, compute: 30%, memory: 20Gi}\n      - {name: small, compute: 10%, memory: 8Gi}\n    \
    - {name: nvidia.com/gpu, devices: [1], replicas: 10}\n";
