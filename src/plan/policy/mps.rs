//! What a policy says about every device under MPS.

use serde::{Deserialize, Serialize};

/// Settings for every device under MPS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MpsSettings {
    /// Who starts and stops the daemon.
    pub daemon: MpsDaemonOwner,
    /// Whose processes one daemon serves.
    pub users: MpsUsers,
    /// The device's compute mode while it is shared.
    pub compute_mode: MpsComputeMode,
    /// Which mechanisms keep the limits.
    pub enforcement: MpsEnforcement,
    /// What follows when a container blocks the daemon again and again.
    pub blocked: MpsBlocked,
    /// Seconds without a claim after which the device is restored to its previous state; `None` for the default.
    pub grace: Option<u32>,
}

/// Who starts and stops the MPS daemon of a device, and sets the device's compute mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpsDaemonOwner {
    /// The broker: with the first claim, and until some time after the last one.
    #[default]
    Managed,
    /// The operator. A share is refused while the daemon does not run.
    External,
}

/// Whose processes one daemon serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpsUsers {
    /// Those of all users where the control program of the driver accepts `-multiuser-server`, and those of one user at
    /// a time elsewhere.
    #[default]
    Auto,
    /// Those of all users, by one server. Refused where the control program cannot do it.
    Many,
    /// Those of one user at a time.
    One,
}

/// A device's compute mode under MPS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpsComputeMode {
    /// EXCLUSIVE_PROCESS: a process that leaves MPS gets no device.
    #[default]
    Exclusive,
    /// It is not changed; a process that leaves MPS runs without limits.
    Keep,
}

/// What follows when the processes of one container block the MPS daemon of its device more than once: a client that
/// connects and says nothing keeps the daemon from every other client, until the broker closes its connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpsBlocked {
    /// The broker names the container in `tranche mps status` and in its log.
    #[default]
    Report,
    /// In addition, the container is ended.
    End,
}

/// Which mechanisms keep the limits of shares under MPS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpsEnforcement {
    /// The best that the driver and the kernel offer: where possible, the driver limits the memory of each container's
    /// cgroup, in addition to MPS.
    #[default]
    Auto,
    /// The limits of MPS alone, by the commands of its second version, also if the driver has more.
    V2,
}
