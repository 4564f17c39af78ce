//! What a container asks for, found in its `config.json`.
//!
//! # Who asks
//!
//! The word of a person (the user of the engine, or the operator of an orchestrator) is an annotation, unless the
//! engine lets images write annotations ([`CallingEngine`](super::CallingEngine)); a mount of `/dev/null`; and docker's
//! `--gpus`. Every other variable may be the image's word. What a person asks for is one request: the environment adds
//! nothing to it.
//!
//! # Devices
//!
//! The first of these that names a device decides; docs/reference/requests.md explains them for users:
//!
//! 1. Annotations whose keys begin with a configured prefix (`cdi.k8s.io/`), by key. In the modes `legacy` and `csv`,
//!    NVIDIA's runtime does not read them, and neither does this module. In the mode `auto`, it reads them only if
//!    every name in them has a vendor; this module reads them in any case, and a name without a vendor as in the
//!    environment.
//! 2. Mounts of `/dev/null` below `/var/run/nvidia-container-devices`, if the owner of the machine accepts them. Those
//!    that name a claim (`…/cdi/nvidia.com/claim/NAME`) always count, because no image can have such a mount.
//! 3. The environment, if the owner accepts it (`acceptEnvironment`) and no annotation asks for a size: the swarm
//!    resource and `NVIDIA_VISIBLE_DEVICES`. If it may not ask, this is one of [`Asked::notes`].
//!
//! # A part of a device by its size
//!
//! `tranche.dev/memory`, `/compute`, `/shares`, `/select` and `/wait` are annotations; `TRANCHE_MEMORY` and so on are
//! variables, which need the same acceptance as NVIDIA's. The amounts are those of the annotations, or else of the
//! variables. What the container says about devices then means *of which device*:
//!
//! - Nothing, `all`, `void` or an empty value: of any device. `void` means that no device is asked for by that
//!   variable. Specifications of CDI set it so that a runtime behind them does nothing for the image's sake; it does
//!   not take back what is asked for by size. An image of CUDA sets `all` for every container.
//! - One device, or `.any` of one: of that device.
//! - Several devices, a share by its name, or `none`: an error, because one of both must be a mistake.
//!
//! Devices of other vendors are asked for in addition.
//!
//! `any` without a size is a whole device, and `any,any` are two. `select` has conditions on devices that are not
//! named: those of `any`, and that of a size without a device.

mod annotations;
mod capabilities;
mod collect;
mod devices;
mod environment;
mod extras;
mod mounts;
mod scan;
mod size;
mod view;
mod visible;

pub(crate) use collect::mount_sources;
pub use collect::of;
#[cfg(fuzzing)]
pub(crate) use collect::parsed;
pub(super) use extras::switch;

use std::collections::BTreeSet;

use crate::require::Requirement;
use tranche_core::types::{
    CdiKind, DevicePart, DeviceSelector, ImexChannelId, MemorySize, Percent, QualifiedName, Selection, WaitTime,
};
use tranche_plan::derive::Mode;
use tranche_plan::inventory::DriverCapability;

/// The variable by which most containers ask for devices.
const VISIBLE: &str = "NVIDIA_VISIBLE_DEVICES";

/// A variable of images of CUDA.
const LEGACY: &str = "CUDA_VERSION";

/// The directory below which a mount of /dev/null is a request.
const MOUNTS: &str = "/var/run/nvidia-container-devices";

/// The most bytes of a variable that a line shows. Its name and its value come from the image or the user.
const LONGEST_SHOWN: usize = 200;

/// The mount of /dev/null that asks for the claim `name`.
pub(super) fn claim_mount(name: &str) -> String {
    format!("{MOUNTS}/cdi/{}/{name}", CdiKind::claim())
}

/// How the names of tranche's own variables begin.
const OWN_VARIABLES: &str = "TRANCHE_";

/// How the keys of tranche's own annotations begin.
const OWN_ANNOTATIONS: &str = "tranche.dev/";

/// What was found in a container's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// The request; `None` if the container asks for nothing, so that its configuration stays as it is.
    pub request: Option<Request>,
    /// What the configuration asks for and does not get, or gets in another way than it says: one line each. They have
    /// to be reported, even if there is no request.
    pub notes: Vec<String>,
}

/// What a container asks for. A request is never empty: it has a device, a size, or [`Request::driver_only`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Devices and shares in the order in which they were asked for, each listed once, except for
    /// [`WantedDevice::Any`]: two of them are two devices.
    pub devices: Vec<WantedDevice>,
    /// The driver's files are asked for without a device (`none`).
    pub driver_only: bool,
    /// A part of a device, by its size.
    pub size: Option<WantedSize>,
    /// Conditions on devices that are not named.
    pub select: Selection,
    /// How long the start may wait for a share; `None` for the policy's time.
    pub wait: Option<WantedWait>,
    /// For which uses the driver's files are asked for.
    pub capabilities: BTreeSet<DriverCapability>,
    /// What is asked for in addition to GPUs: GPUDirect Storage, MOFED, GDRCopy, NVSwitches.
    pub modes: Vec<Mode>,
    /// IMEX channels.
    pub imex: ImexRequest,
    /// The devices whose MIG instances the container may change.
    pub mig_config: Option<MigAccess>,
    /// The devices whose MIG instances the container may watch.
    pub mig_monitor: Option<MigAccess>,
    /// What the container requires of the host.
    pub requirements: Vec<Requirement>,
    /// Whether the start fails if a requirement does not hold. Otherwise it is reported: an environment that may not
    /// ask cannot make a start fail.
    pub requirements_bind: bool,
    /// Where the devices, or else the size, were asked for.
    pub source: RequestSource,
    /// Whether the container asks for a device of a specification and is privileged: its bounding set has
    /// CAP_SYS_ADMIN.
    pub is_privileged: bool,
    /// Destinations of mounts that are requests and not directories: they have to leave the configuration. As written
    /// there.
    pub request_mounts: Vec<String>,
}

/// A device that is asked for by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum WantedDevice {
    /// Every device that is neither split nor dedicated.
    All,
    /// Any free device, whole.
    Any,
    /// A device, or a share of it.
    Part(DevicePart),
    /// A device of a CDI specification, of any vendor. Devices and shares have names there too: `nvidia.com/gpu=0.big`.
    Cdi(QualifiedName),
}

/// A part of a device that is asked for by its size. At least one of the amounts is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedSize {
    /// At least this much memory.
    pub memory: Option<MemorySize>,
    /// At least this much of the device's compute.
    pub compute: Option<Percent>,
    /// This number of shares.
    pub shares: Option<u32>,
    /// The device; `None` for any.
    pub device: Option<DeviceSelector>,
}

/// How long a start is asked to wait for a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedWait {
    /// At most this long.
    pub time: WaitTime,
    /// Where it was asked for.
    pub source: RequestSource,
}

/// Which IMEX channels are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImexRequest {
    /// These; may be empty.
    Channels(Vec<ImexChannelId>),
    /// Every channel of the host.
    All,
}

impl Default for ImexRequest {
    fn default() -> Self {
        Self::Channels(Vec::new())
    }
}

/// The devices whose MIG instances a privileged container may change or watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigAccess {
    /// All.
    All,
    /// These.
    Devices(Vec<DeviceSelector>),
}

/// By which means a container asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSource {
    /// By annotations that no image has written.
    Annotation,
    /// By mounts below `/var/run/nvidia-container-devices`, which only the user of the engine can set.
    Volume,
    /// By environment variables, which the image can set as well.
    Environment,
}

#[cfg(test)]
mod tests;
