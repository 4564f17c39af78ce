//! What must be running or set on the host for shares of a device.

use tranche_core::types::Interval;
use tranche_core::types::{GpuIndex, HostPath, MemorySize, Percent};

/// One thing that must be running or set before a share is worth what the plan says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// The compute mode EXCLUSIVE_PROCESS, in which only the MPS daemon opens the device.
    ExclusiveProcess {
        /// The device; `None` where its UUID is unknown.
        uuid: Option<String>,
    },
    /// A daemon of MPS that serves this device alone.
    MpsDaemon {
        /// The device; `None` where its UUID is unknown.
        uuid: Option<String>,
        /// The directory of its sockets.
        pipe: HostPath,
        /// Whether it serves the processes of several users at the same time.
        many_users: bool,
        /// The limit of memory that it gives a client without one of its own; `None`: no limit. A process that an
        /// engine starts by `exec` is such a client, because it gets no environment from CDI.
        memory: Option<MemorySize>,
        /// The same for compute.
        compute: Option<Percent>,
    },
    /// Nobody but the holder whose turn it is can open the device.
    Turns {
        /// The device; `None` where its UUID is unknown.
        uuid: Option<String>,
    },
    /// The limit of memory of the cgroup of each container, which is set after the container was created.
    CgroupLimit,
    /// The length of a turn, which is a setting of a whole GPU.
    TimeSlice {
        /// The GPU.
        gpu: GpuIndex,
        /// How long a turn is.
        interval: Interval,
    },
}
