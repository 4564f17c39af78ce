//! What NVML says that devices do now.

use crate::observe::{self, DeviceProcess};
use serde::Serialize;
use std::collections::BTreeSet;
use tranche_core::types::{Device, DeviceKey, GpuIndex, MemorySize, MigIndex};
use tranche_driver_protocol::{GpuUsage, MemoryUsage, ProcessKind};
use tranche_plan::inventory::ComputeMode;
use tranche_state::held::names::DeviceNames;

/// A GPU or a MIG device, as NVML sees it now. docs/reference/claims.md documents the fields.
#[derive(Debug, Serialize)]
pub struct DeviceUsage {
    /// `nvidia.com/gpu=0`.
    pub device: String,
    /// Its key in the ledger; `null` if NVML does not report the UUID.
    pub key: Option<DeviceKey>,
    /// Its memory in MiB.
    pub memory_mib: Option<u64>,
    /// The part of it that is used, in MiB.
    pub memory_used_mib: Option<u64>,
    /// Whether it has no memory of its own and uses that of the machine.
    pub uses_system_memory: bool,
    /// Percent of the last sample period in which a kernel ran; `null` in MIG mode.
    pub busy_percent: Option<u32>,
    /// Percent of that time in which memory was read or written.
    pub memory_busy_percent: Option<u32>,
    /// Of a whole GPU.
    pub compute_mode: Option<ComputeMode>,
    /// How many processes use it; `null` if that is unknown.
    pub processes: Option<usize>,
    /// Whether the driver reports the memory of MPS clients as that of their server.
    pub hides_mps_clients: bool,
}

impl DeviceUsage {
    /// The compute mode as nvidia-smi and the driver's documentation write it.
    pub fn mode(&self) -> Option<&'static str> {
        self.compute_mode.map(ComputeMode::as_str)
    }

    /// `3000 of 24564 MiB`.
    pub fn memory(&self) -> Option<String> {
        let (used, all) = self.memory_used_mib.zip(self.memory_mib)?;
        Some(format!("{used} of {all} MiB"))
    }
}

/// The GPUs and their MIG devices, by `names` or else by index.
pub(super) fn devices(gpus: &[GpuUsage], processes: &[DeviceProcess], names: &DeviceNames) -> Vec<DeviceUsage> {
    let mut devices = Vec::new();
    for gpu in gpus {
        let whole = observe::key(gpu, None, None);
        devices.push(DeviceUsage {
            uses_system_memory: gpu.uses_system_memory,
            busy_percent: gpu.busy,
            memory_busy_percent: gpu.memory_busy,
            compute_mode: gpu.compute_mode,
            processes: gpu.processes.as_ref().map(Vec::len),
            ..device(Device::whole(GpuIndex(gpu.index)), whole, gpu.memory, processes, names)
        });
        for mig in &gpu.mig {
            let key = observe::key(gpu, mig.gpu_instance, mig.compute_instance);
            let index = Device {
                gpu: GpuIndex(gpu.index),
                mig: Some(MigIndex(mig.index)),
            };
            let on_it = |key: &DeviceKey| {
                let on_it = processes.iter().filter(|process| process.device.as_ref() == Some(key));
                on_it.count()
            };
            devices.push(DeviceUsage {
                uses_system_memory: gpu.uses_system_memory,
                processes: gpu.processes.as_ref().and(key.as_ref()).map(on_it),
                ..device(index, key, mig.memory, processes, names)
            });
        }
    }
    devices
}

fn device(
    index: Device,
    key: Option<DeviceKey>,
    memory: Option<MemoryUsage>,
    processes: &[DeviceProcess],
    names: &DeviceNames,
) -> DeviceUsage {
    let named = key.as_ref().and_then(|key| names.named(key));
    let mib = |bytes| MemorySize::from_bytes(bytes).mib();
    DeviceUsage {
        device: named.map_or_else(|| format!("nvidia.com/gpu={}", index.cdi_name()), str::to_owned),
        memory_mib: memory.map(|memory| mib(memory.total)),
        memory_used_mib: memory.map(|memory| mib(memory.used)),
        uses_system_memory: false,
        busy_percent: None,
        memory_busy_percent: None,
        compute_mode: None,
        processes: None,
        hides_mps_clients: key
            .as_ref()
            .is_some_and(|key| observe::hides_mps_clients(key, processes)),
        key,
    }
}

/// The kinds of a process as nvidia-smi writes them: `C`, `G`, `C+G`, and `M+C` for a client of MPS.
pub(super) fn kinds(kinds: &BTreeSet<ProcessKind>) -> String {
    let mut letters: Vec<&str> = Vec::new();
    for kind in kinds {
        match kind {
            ProcessKind::Mps => letters.extend(["M", "C"]),
            ProcessKind::Compute => letters.push("C"),
            ProcessKind::Graphics => letters.push("G"),
        }
    }
    letters.dedup();
    letters.join("+")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_written_as_nvidia_smi_does() {
        use ProcessKind::{Compute, Graphics, Mps};
        for (of, text) in [
            (&[Compute][..], "C"),
            (&[Graphics, Compute], "C+G"),
            (&[Mps], "M+C"),
            (&[Compute, Mps, Graphics], "M+C+G"),
        ] {
            assert_eq!(kinds(&of.iter().copied().collect()), text);
        }
    }
}
