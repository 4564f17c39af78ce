use super::*;
use std::collections::BTreeSet;
use std::process::{Child, Command};
use tranche_core::ledger::process::Machine;
use tranche_core::ledger::{ClaimState, ContainerName, HeldPart, Holder, InitProcess};

const GPU: &str = "GPU-11111111-2222-3333-4444-555555555555";
const MIB: u64 = 1 << 20;

/// A process whose claim is found by its descent, because it has no cgroup of its own here.
struct Process(Child);

impl Process {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn init(&self) -> InitProcess {
        InitProcess {
            cgroup: None,
            ..Machine::here().unwrap().process(self.0.id()).unwrap()
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn claim(device: &str, id: &str, process: Option<InitProcess>) -> Claim {
    Claim {
        name: None,
        device: device.parse().unwrap(),
        part: HeldPart::Whole,
        asked_as: None,
        spec_file: None,
        state: ClaimState::Held,
        holder: Holder::Container(ContainerName {
            bundle: "/b".into(),
            id: id.into(),
        }),
        process,
        joined: false,
        once: true,
        for_root: false,
        uid: 0,
        since: 0,
        since_boot: None,
        ttl: None,
        until: None,
    }
}

fn usage(pid: u32, kinds: &[ProcessKind], memory: Option<u64>, busy: Option<u32>) -> ProcessUsage {
    ProcessUsage {
        pid,
        kinds: kinds.iter().copied().collect::<BTreeSet<_>>(),
        memory,
        busy,
        ..ProcessUsage::default()
    }
}

fn gpu(processes: Vec<ProcessUsage>) -> GpuUsage {
    GpuUsage {
        uuid: Some(GPU.into()),
        processes: Some(processes),
        ..GpuUsage::default()
    }
}

fn found(gpus: &[GpuUsage], claims: &[&Claim]) -> Vec<DeviceProcess> {
    let machine = Machine::here().unwrap();
    attribute(gpus, claims, |pid| machine.lineage(pid))
}

#[test]
fn a_process_belongs_to_the_claim_of_its_container_on_its_device() {
    let (one, two, stranger) = (Process::start(), Process::start(), Process::start());
    let elsewhere = claim("GPU-99999999-2222-3333-4444-555555555555", "one", Some(one.init()));
    let on_gpu = claim(GPU, "one", Some(one.init()));
    let second = claim(GPU, "two", Some(two.init()));
    let waiting = claim(GPU, "none", None);
    let compute = [ProcessKind::Compute];
    let gpus = [gpu(vec![
        usage(one.0.id(), &compute, Some(100 * MIB), Some(30)),
        usage(two.0.id(), &compute, Some(50 * MIB), Some(0)),
        usage(stranger.0.id(), &compute, Some(MIB), None),
        usage(u32::MAX - 1, &compute, Some(MIB), Some(1)),
    ])];
    let found = found(&gpus, &[&elsewhere, &waiting, &on_gpu, &second]);
    let claims: Vec<Option<usize>> = found.iter().map(|process| process.claim).collect();
    assert_eq!(claims, [Some(2), Some(3), None, None]);
    assert_eq!(found[0].command.as_deref(), Some("sleep"));
    assert_eq!(found[3].command, None, "it has ended");
    let expected = ClaimUsage {
        processes: 1,
        memory: Some(100 * MIB),
        busy: Some(30),
    };
    assert_eq!(usage_of(2, &found), expected);
    let nothing = ClaimUsage {
        processes: 0,
        memory: Some(0),
        busy: Some(0),
    };
    assert_eq!(usage_of(0, &found), nothing, "its container uses another device");
}

#[test]
fn the_claim_on_a_mig_device_has_the_processes_of_its_instance() {
    let one = Process::start();
    let instance = |number: u32| format!("{GPU}/{number}/0");
    let (third, whole) = (
        claim(&instance(3), "one", Some(one.init())),
        claim(GPU, "one", Some(one.init())),
    );
    let on = |number| ProcessUsage {
        gpu_instance: Some(number),
        compute_instance: Some(0),
        ..usage(one.0.id(), &[ProcessKind::Compute], Some(MIB), None)
    };
    let gpus = [gpu(vec![on(3), on(4)])];
    let of = |claims: &[&Claim]| {
        found(&gpus, claims)
            .iter()
            .map(|process| process.claim)
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&[&third]), [Some(0), None]);
    assert_eq!(
        of(&[&whole, &third]),
        [Some(1), Some(0)],
        "the claim on the device itself comes first"
    );
}

#[test]
fn what_is_unknown_of_one_process_is_unknown_of_the_claim() {
    let one = Process::start();
    let holder = claim(GPU, "one", Some(one.init()));
    let mps = [ProcessKind::Mps];
    let pid = one.0.id();
    let of = |processes| usage_of(0, &found(&[gpu(processes)], &[&holder]));
    let unknown = of(vec![
        usage(pid, &mps, None, Some(60)),
        usage(pid, &mps, Some(MIB), Some(70)),
    ]);
    assert_eq!((unknown.memory, unknown.busy, unknown.processes), (None, Some(100), 2));
    let unknown = of(vec![usage(pid, &mps, Some(MIB), None)]);
    assert_eq!((unknown.memory, unknown.busy), (Some(MIB), None));
}

#[test]
fn a_driver_that_reports_the_server_for_its_clients_is_noticed() {
    let device: DeviceKey = GPU.parse().unwrap();
    let process = |command: &str, kinds: &[ProcessKind], memory, claim| DeviceProcess {
        device: Some(device.clone()),
        usage: usage(1, kinds, memory, None),
        command: Some(command.to_owned()),
        claim,
    };
    let server = process(MPS_PROGRAM, &[ProcessKind::Compute], Some(900 * MIB), None);
    let client = |memory| process("python", &[ProcessKind::Mps], memory, Some(0));
    assert!(server.is_mps_server());
    assert!(
        hides_mps_clients(&device, std::slice::from_ref(&server)),
        "the server alone"
    );
    assert!(hides_mps_clients(&device, &[server.clone(), client(None)]));
    assert!(!hides_mps_clients(&device, &[server.clone(), client(Some(MIB))]));
    assert!(!hides_mps_clients(
        &device,
        &[process("python", &[ProcessKind::Compute], Some(1), Some(0))]
    ));
    let disguised = process(MPS_PROGRAM, &[ProcessKind::Compute], Some(MIB), Some(0));
    assert!(
        !disguised.is_mps_server(),
        "a container chooses the names of its programs"
    );
    let other: DeviceKey = "GPU-99999999-2222-3333-4444-555555555555".parse().unwrap();
    assert!(!hides_mps_clients(&other, &[server]));
}
