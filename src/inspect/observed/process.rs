//! A process on a device, with what holds it.

use super::gpu::kinds;
use crate::observe::DeviceProcess;
use serde::Serialize;
use tranche_core::types::{DeviceKey, MemorySize};
use tranche_state::held::Held;

/// A process that uses a device. docs/reference/claims.md documents the fields.
#[derive(Debug, Serialize)]
pub struct ProcessRow {
    /// `nvidia.com/gpu=0`.
    pub device: String,
    /// The device's key in the ledger.
    pub key: Option<DeviceKey>,
    /// Its number in the pid namespace of this program.
    pub pid: u32,
    /// The name of its program; `null` if it has ended since.
    pub command: Option<String>,
    /// `C`, `G` and `M`, as nvidia-smi writes them.
    pub kind: String,
    /// `null` if the driver reports it as that of the MPS server.
    pub memory_mib: Option<u64>,
    /// Percent of the last sample period in which a kernel of it ran; `null` in MIG mode.
    pub busy_percent: Option<u32>,
    /// The name under which its container requested the device; `null` if it has no claim.
    pub claim: Option<String>,
    /// The id of its container; `null` if it has no claim.
    pub container: Option<String>,
    /// The name that its engine shows.
    pub container_name: Option<String>,
    /// Whether it is the server of MPS, whose memory may be that of its clients.
    pub is_mps_server: bool,
}

impl ProcessRow {
    /// `process` with the claims by position, on a device with this name.
    pub(super) fn new(process: &DeviceProcess, device: String, claims: &[Held]) -> Self {
        let held = process.claim.and_then(|position| claims.get(position));
        let container = held.and_then(|held| held.container.as_ref());
        Self {
            device,
            key: process.device.clone(),
            pid: process.usage.pid,
            command: process.command.clone(),
            kind: kinds(&process.usage.kinds),
            memory_mib: process.usage.memory.map(|bytes| MemorySize::from_bytes(bytes).mib()),
            busy_percent: process.usage.busy,
            claim: held.map(|held| held.cdi.clone()),
            container: container.map(|container| container.id.clone()),
            container_name: container.and_then(|container| container.name.clone()),
            is_mps_server: process.is_mps_server(),
        }
    }

    /// Whether it computes for itself: neither a display server nor the server of MPS does.
    pub fn needs_a_share(&self) -> bool {
        self.computes() && !self.is_mps_server
    }

    /// Whether it has a compute context, of its own or by MPS. A display server has none.
    pub(super) fn computes(&self) -> bool {
        self.kind.contains('C')
    }
}
