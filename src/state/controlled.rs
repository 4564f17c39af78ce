//! The state of the devices that the broker changes, as `status.json` and `tranche status --json` show it.

use serde::{Deserialize, Serialize};
use tranche_core::types::DeviceKey;

/// A device that is changed for shares. docs/reference/claims.md documents the fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlledDevice {
    /// `nvidia.com/gpu=0`.
    pub device: String,
    /// Its key in the ledger.
    pub key: DeviceKey,
    /// Its MPS daemon; `None` for a device that has none, such as one under time-slicing.
    pub daemon: Option<DaemonStatus>,
    /// The compute mode that it is put back to, if tranche changed it.
    pub compute_mode_before: Option<String>,
    /// The length of a turn that tranche set.
    pub time_slice: Option<String>,
    /// The limits of memory that the cgroups of containers have.
    #[serde(default)]
    pub cgroup_limits: Vec<CgroupMemory>,
    /// Since when nothing of it is claimed, in seconds since 1970; `None` while something is.
    pub idle_since: Option<u64>,
    /// What differs from the expected state and cannot be corrected, one line each.
    pub problems: Vec<String>,
}

/// The limit of memory of a container's cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupMemory {
    /// Who holds the claim.
    pub holder: String,
    /// The most memory of the GPU that its processes can allocate, in MiB.
    pub memory_mib: u64,
    /// Whether it is in effect; `false` while it is set or removed.
    pub is_set: bool,
}

/// An MPS daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Whether it serves clients.
    pub state: DaemonState,
    /// Its number in the pid namespace of the broker.
    pub pid: Option<u32>,
    /// When it was started, in seconds since 1970.
    pub since: Option<u64>,
    /// How often it was started again after it had died, since something of the device was claimed first.
    pub restarts: u32,
    /// Whether an earlier version of tranche started it: its containers can write its directory, and nothing is
    /// guaranteed to them.
    #[serde(default)]
    pub is_of_earlier_version: bool,
    /// The limit of memory of a client without one of its own, in MiB.
    pub memory_mib: Option<u64>,
    /// The same for compute, in percent.
    pub compute_percent: Option<u32>,
    /// Containers whose processes lost the daemon when it died. Those processes do not connect again.
    pub lost: Vec<LostClients>,
}

/// Whether an MPS daemon serves clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DaemonState {
    /// It was started and has not answered yet.
    Starting,
    /// It answers.
    Running,
    /// It answers, and the server that it starts for clients ends before it is ready.
    ServerFailed,
    /// It does not answer, or has ended, and it could not be started again.
    Failed,
    /// Another program started it. tranche leaves it alone, and gives out no share of the device.
    Foreign,
    /// It is being stopped.
    Stopping,
}

/// A container that lost its MPS daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostClients {
    /// The container's id.
    pub container: String,
    /// When, in seconds since 1970.
    pub at: u64,
}
