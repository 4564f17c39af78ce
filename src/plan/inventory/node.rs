//! Device nodes, and what else lies under `/dev` for a container.

use serde::{Deserialize, Serialize};
use tranche_core::types::{ContainerPath, HostPath, ImexChannelId};

/// A character device's node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceNode {
    /// Where it is on the host, as the engine must name it.
    pub host: HostPath,
    /// Where it belongs in a container.
    pub container: ContainerPath,
    /// Major number, from the node or, where the node is missing, from `/proc/devices`.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits of the node; `None` where the node is missing.
    pub mode: Option<u32>,
    /// Owner of the node; 0 if it is missing.
    pub uid: u32,
    /// Group of the node; 0 if it is missing.
    pub gid: u32,
    /// Whether the node exists. The driver makes some nodes only on request (nvidia-modprobe). Until then only the
    /// numbers are known, from which an engine can make the node in the container.
    pub present: bool,
}

/// What a node that belongs to the driver as a whole is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlRole {
    /// `/dev/nvidiactl`
    Ctl,
    /// `/dev/nvidia-modeset`
    Modeset,
    /// `/dev/nvidia-uvm`
    Uvm,
    /// `/dev/nvidia-uvm-tools`
    UvmTools,
}

/// A node that belongs to the driver as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlNode {
    /// What it is for.
    pub role: ControlRole,
    /// The node.
    pub node: DeviceNode,
}

/// A channel to the memory of GPUs in other machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImexChannel {
    /// Its number.
    pub id: ImexChannelId,
    /// `/dev/nvidia-caps-imex-channels/channelN`
    pub node: DeviceNode,
}

/// A file or directory of the host, and where a container gets it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostMount {
    /// On the host, as the engine must name it.
    pub host: HostPath,
    /// In the container.
    pub container: ContainerPath,
}

/// Nodes that belong to no single GPU. Sorted by path; an empty list means that the host has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostNodes {
    /// `/dev/nvidiactl` and its siblings, by role.
    pub control: Vec<ControlNode>,
    /// Everything in `/dev/nvidia-caps`, the instances' nodes included.
    pub caps: Vec<DeviceNode>,
    /// The capability to configure MIG (`config` in mig-minors).
    pub mig_config: Option<DeviceNode>,
    /// The capability to watch MIG (`monitor` in mig-minors).
    pub mig_monitor: Option<DeviceNode>,
    /// IMEX channels, by number.
    pub imex_channels: Vec<ImexChannel>,
    /// `/dev/nvidia-nvswitchctl`, `/dev/nvidia-nvswitchN`.
    pub nvswitch: Vec<DeviceNode>,
    /// GPUDirect Storage: `/dev/nvidia-fs*`.
    pub gds: Vec<DeviceNode>,
    /// What goes with GPUDirect Storage: `/run/udev`, `/etc/cufile.json`.
    pub gds_mounts: Vec<HostMount>,
    /// RDMA: `/dev/infiniband/uverbs*`, `/dev/infiniband/rdma_cm`.
    pub mofed: Vec<DeviceNode>,
    /// GDRCopy: `/dev/gdrdrv`.
    pub gdrcopy: Vec<DeviceNode>,
    /// `/dev/nvidiaN` of no GPU that answers: a management container gets them all the same.
    pub orphans: Vec<DeviceNode>,
}
