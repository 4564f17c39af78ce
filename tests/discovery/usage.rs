//! What the GPUs do now, as the fake library says it.

use super::*;
use serde_json::json;
use std::process::{Child, Stdio};
use tranche_driver_protocol::{GpuUsage, MemoryUsage, ProcessKind, ProcessUsage};
use tranche_host::{Usage, usage};

const MIB: u64 = 1 << 20;

/// A process that lives until it is dropped.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Bed {
    fn usage(&self, options: &DiscoveryOptions) -> Usage {
        usage(&Roots::new(&self.paths()).unwrap(), options)
    }
}

fn kinds(process: &ProcessUsage) -> Vec<ProcessKind> {
    process.kinds.iter().copied().collect()
}

#[test]
fn memory_utilisation_and_processes_are_those_of_each_gpu() {
    let (one, two, third) = (Sleeper::start(), Sleeper::start(), Sleeper::start());
    let bed = bed("workstation-rtx4090");
    let gone = u32::from(u16::MAX) * 60;
    bed.host
        .nvml(|config| {
            config["gpus"][0]["used_mib"] = 3000.into();
            config["gpus"][0]["utilization"] = json!({"gpu": 71, "memory": 9});
            config["gpus"][0]["processes"] = json!([
                {"pid": one.pid(), "kind": "compute", "memory_mib": 1000, "sm": 40},
                {"pid": one.pid(), "kind": "graphics", "memory_mib": 1000},
                {"pid": two.pid(), "kind": "mps", "sm": 31},
                {"pid": third.pid(), "kind": "compute", "memory_mib": 20},
                {"pid": gone, "kind": "compute", "memory_mib": 5},
            ]);
        })
        .unwrap();
    let usage = bed.usage(&options());
    assert_eq!(usage.warnings, []);
    let gpu: &GpuUsage = &usage.gpus[0];
    let total = 24564 * MIB;
    assert_eq!(
        gpu.memory,
        Some(MemoryUsage {
            total,
            used: 3000 * MIB
        })
    );
    assert_eq!((gpu.busy, gpu.memory_busy), (Some(71), Some(9)));
    assert!(
        gpu.uuid.as_ref().is_some_and(|uuid| uuid.starts_with("GPU-")),
        "{gpu:?}"
    );
    let processes = gpu.processes.as_ref().unwrap();
    // The processes of this machine are seen, although the library runs in a process of its own.
    let of = |sleeper: &Sleeper| processes.iter().find(|process| process.pid == sleeper.pid()).unwrap();
    assert_eq!(kinds(of(&one)), [ProcessKind::Compute, ProcessKind::Graphics]);
    assert_eq!((of(&one).memory, of(&one).busy), (Some(1000 * MIB), Some(40)));
    assert_eq!(kinds(of(&two)), [ProcessKind::Mps]);
    assert_eq!(
        (of(&two).memory, of(&two).busy),
        (None, Some(31)),
        "memory is not attributed"
    );
    assert_eq!(of(&third).busy, Some(0), "it ran no kernel");
    assert_eq!(processes.len(), 3, "{processes:?}");
}

#[test]
fn hundreds_of_processes_are_all_listed() {
    let me = std::process::id();
    let bed = bed("workstation-rtx4090");
    let process = |instance: u32| json!({"pid": me, "kind": "compute", "memory_mib": 1, "gpu_instance": instance, "compute_instance": 0});
    bed.host
        .nvml(|config| config["gpus"][0]["processes"] = (0..700).map(process).collect::<Vec<_>>().into())
        .unwrap();
    assert_eq!(bed.usage(&options()).gpus[0].processes.as_ref().unwrap().len(), 700);
}

#[test]
fn mig_devices_have_their_own_memory_and_processes() {
    let one = Sleeper::start();
    let bed = bed("dgx-a100-mig");
    bed.host
        .nvml(|config| {
            config["gpus"][1]["mig"]["instances"][0]["used_mib"] = 512.into();
            config["gpus"][1]["processes"] = json!([
                {"pid": one.pid(), "kind": "compute", "memory_mib": 300, "gpu_instance": 2, "compute_instance": 0},
            ]);
        })
        .unwrap();
    let usage = bed.usage(&options());
    assert_eq!(usage.gpus.len(), 8);
    let mig = &usage.gpus[1].mig;
    assert_eq!(mig.len(), 3, "{mig:?}");
    assert_eq!((mig[0].gpu_instance, mig[0].compute_instance), (Some(2), Some(0)));
    let total = 20096 * MIB;
    assert_eq!(mig[0].memory, Some(MemoryUsage { total, used: 512 * MIB }));
    let process = &usage.gpus[1].processes.as_ref().unwrap()[0];
    assert_eq!((process.gpu_instance, process.compute_instance), (Some(2), Some(0)));
    assert_eq!(process.busy, None, "unknown in MIG mode");
    assert_eq!(usage.gpus[1].busy, None);
}

#[test]
fn an_old_driver_answers_by_its_older_functions() {
    let one = Sleeper::start();
    let bed = bed("t4x2-old-driver");
    bed.host
        .nvml(|config| {
            let missing = config["missing_symbols"].as_array_mut().unwrap();
            for list in ["Compute", "Graphics", "MPSCompute"] {
                missing.push(format!("nvmlDeviceGet{list}RunningProcesses_v3").into());
            }
            config["gpus"][0]["used_mib"] = 77.into();
            config["gpus"][0]["processes"] = json!([{"pid": one.pid(), "kind": "compute", "memory_mib": 70}]);
        })
        .unwrap();
    let usage = bed.usage(&options());
    assert_eq!(usage.gpus[0].memory.map(|memory| memory.used), Some(77 * MIB));
    let processes = usage.gpus[0].processes.as_ref().unwrap();
    assert_eq!((processes[0].pid, processes[0].memory), (one.pid(), Some(70 * MIB)));
}

#[test]
fn a_library_that_hangs_costs_its_answer_alone() {
    let bed = bed("workstation-rtx4090");
    bed.host
        .nvml(|config| config["faults"]["init"] = "hang".into())
        .unwrap();
    let options = DiscoveryOptions {
        deadline: Duration::from_millis(300),
        ..options()
    };
    let usage = bed.usage(&options);
    assert!(usage.gpus.is_empty());
    let said: Vec<String> = usage.warnings.iter().map(|warning| warning.text.clone()).collect();
    assert_eq!(
        said,
        ["NVML gave no complete answer in nvmlInit within 0.3 s and was ended"]
    );
}

#[test]
fn a_lost_gpu_costs_itself_alone() {
    let bed = bed("l4-one-lost");
    let usage = bed.usage(&options());
    let indices: Vec<u32> = usage.gpus.iter().map(|gpu| gpu.index).collect();
    assert!(!indices.contains(&2) && indices.len() > 1, "{indices:?}");
    assert!(
        usage.warnings.iter().any(|warning| warning.object == "gpu 2"),
        "{:?}",
        usage.warnings
    );
}

#[test]
fn a_host_without_a_driver_gives_nothing() {
    let usage = bed("no-driver").usage(&options());
    assert!(usage.gpus.is_empty() && usage.warnings.is_empty(), "{usage:?}");
}

#[test]
fn a_gpu_without_memory_of_its_own_has_none_to_report() {
    let usage = bed("dgx-spark").usage(&options());
    assert_eq!(usage.warnings, []);
    let gpu = &usage.gpus[0];
    assert!(gpu.uses_system_memory && gpu.memory.is_none(), "{gpu:?}");
    assert!(!bed("gb200").usage(&options()).gpus[0].uses_system_memory);
}
