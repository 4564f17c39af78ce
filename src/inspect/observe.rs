//! What containers do with their shares: the processes that NVML reports, by the claim that they belong to.

use tranche_core::ledger::Claim;
use tranche_core::ledger::process::Lineage;
use tranche_core::types::{ComputeInstanceId, DeviceKey, GpuInstanceId};
use tranche_driver_protocol::{GpuUsage, ProcessKind, ProcessUsage};

/// How the kernel calls the MPS server and the control daemon of a device: names have at most 15 bytes there.
pub const MPS_PROGRAM: &str = "nvidia-cuda-mps";

/// A process on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceProcess {
    /// The device; `None` if NVML does not report the GPU's UUID.
    pub device: Option<DeviceKey>,
    /// As NVML reports it.
    pub usage: ProcessUsage,
    /// The name of its program; `None` if it has ended since.
    pub command: Option<String>,
    /// The claim that it belongs to, by position; `None` if no claim on the device is of its container.
    pub claim: Option<usize>,
}

impl DeviceProcess {
    /// Whether it is the server of MPS, which serves the clients of all containers on its device.
    pub fn is_mps_server(&self) -> bool {
        self.claim.is_none() && self.command.as_deref() == Some(MPS_PROGRAM)
    }
}

/// What the processes of a claim use. A value is `None` if it is unknown for one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimUsage {
    /// How many processes of it use the device.
    pub processes: usize,
    /// Their memory, in bytes.
    pub memory: Option<u64>,
    /// Percent of the last sample period in which a kernel of them ran, at most 100. Kernels of several processes run
    /// at the same time under MPS, so the sum of their samples can be more.
    pub busy: Option<u32>,
}

/// Finds the claim of each process in `gpus`. `lineage` says where a process comes from. Of several claims of one
/// container on one device, the first has its processes.
pub fn attribute(
    gpus: &[GpuUsage],
    claims: &[&Claim],
    mut lineage: impl FnMut(u32) -> Option<Lineage>,
) -> Vec<DeviceProcess> {
    let mut found = Vec::new();
    for gpu in gpus {
        for usage in gpu.processes.iter().flatten() {
            let device = device_of(gpu, usage);
            let lineage = lineage(usage.pid);
            let is_holder = |claim: &&Claim| {
                let init = claim.process.as_ref();
                init.zip(lineage.as_ref())
                    .is_some_and(|(init, lineage)| lineage.is_of(init))
            };
            let is_exact = |claim: &&Claim| Some(&claim.device) == device.as_ref();
            let overlaps = |claim: &&Claim| device.as_ref().is_some_and(|device| device.overlaps(&claim.device));
            let position =
                |fits: &dyn Fn(&&Claim) -> bool| claims.iter().position(|claim| fits(claim) && is_holder(claim));
            found.push(DeviceProcess {
                claim: position(&is_exact).or_else(|| position(&overlaps)),
                command: lineage.as_ref().map(|lineage| lineage.command.clone()),
                device,
                usage: usage.clone(),
            });
        }
    }
    found
}

/// What the processes of the claim at `position` use.
pub fn usage_of(position: usize, processes: &[DeviceProcess]) -> ClaimUsage {
    let own = || processes.iter().filter(|process| process.claim == Some(position));
    let busy: Option<u32> = own().map(|process| process.usage.busy).sum();
    ClaimUsage {
        processes: own().count(),
        memory: own().map(|process| process.usage.memory).sum(),
        busy: busy.map(|busy| busy.min(100)),
    }
}

/// Whether the driver reports the memory of the MPS clients on `device` as that of their server: then it cannot be said
/// which container uses how much. Older drivers list the server alone; newer ones list clients too (`M+C` in
/// nvidia-smi).
pub fn hides_mps_clients(device: &DeviceKey, processes: &[DeviceProcess]) -> bool {
    let on_it = || {
        processes
            .iter()
            .filter(|process| process.device.as_ref() == Some(device))
    };
    let is_client = |process: &&DeviceProcess| process.usage.kinds.contains(&ProcessKind::Mps);
    let mut clients = on_it().filter(is_client).peekable();
    let has_server = on_it().any(DeviceProcess::is_mps_server);
    match clients.peek() {
        None => has_server,
        Some(_) => clients.any(|client| client.usage.memory.is_none()),
    }
}

/// The key of the device that a process runs on.
fn device_of(gpu: &GpuUsage, process: &ProcessUsage) -> Option<DeviceKey> {
    key(gpu, process.gpu_instance, process.compute_instance)
}

/// The key of a GPU, or of a MIG device of it; `None` if NVML does not report a valid UUID.
pub fn key(gpu: &GpuUsage, gpu_instance: Option<u32>, compute_instance: Option<u32>) -> Option<DeviceKey> {
    let uuid = gpu.uuid.as_deref()?.parse().ok()?;
    Some(match gpu_instance.zip(compute_instance) {
        Some((gpu_instance, compute)) => DeviceKey::mig(uuid, GpuInstanceId(gpu_instance), ComputeInstanceId(compute)),
        None => DeviceKey::whole(uuid),
    })
}

#[cfg(test)]
mod tests;
