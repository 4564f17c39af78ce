//! What a host has, as a value. It can be saved and sent elsewhere, and gives the same specification everywhere.
//!
//! Data only; the crate `tranche-host` fills it, [`crate::derive`] reads it. Every list is sorted by its maker, so that
//! equal hosts give equal bytes. A field that could not be learnt is `None`: an inventory never guesses.

mod catalogue;
mod degraded;
mod driver;
mod gpu;
mod load;
mod lost;
mod node;

pub use catalogue::{Catalogue, HostDevice};
pub use degraded::Degraded;
pub use driver::{Driver, DriverCapability, DriverFile, FileKind, LIBCUDA};
pub use gpu::{
    AddressingMode, Architecture, ComputeMode, DriKind, DriNode, Engines, Gpu, MigDevice, MigInstance, MigMode,
    MigState, VirtualizationMode,
};
pub use load::load;
pub use node::{ControlNode, ControlRole, DeviceNode, HostMount, HostNodes, ImexChannel};
pub use tranche_core::types::{ElfClass, Link};

use serde::{Deserialize, Serialize};

/// The version of this form. A reader refuses a newer one: what it does not know it would drop.
pub const FORMAT: u32 = 1;

/// Everything that tranche knows about a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// The machine.
    pub platform: Platform,
    /// Where the facts about GPUs come from.
    pub source: Source,
    /// The driver; `None` where the host has none.
    pub driver: Option<Driver>,
    /// GPUs that answer, by index. A GPU that fell off the bus is in `warnings`, not here.
    pub gpus: Vec<Gpu>,
    /// Device nodes that belong to no single GPU.
    pub nodes: HostNodes,
    /// What went wrong on the way; each is worth a line to a person.
    pub warnings: Vec<Warning>,
    /// What was looked for and not found; shown with `-v`.
    pub absent: Vec<Absent>,
    /// What this host has and this inventory lacks; empty for a complete one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<Degraded>,
}

/// The machine itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// Its processor.
    pub arch: Arch,
    /// What the driver runs on.
    pub kind: PlatformKind,
    /// `uname -r`.
    pub kernel: String,
    /// Whether version 2 of cgroups is mounted at `/sys/fs/cgroup`, where the driver looks for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cgroup_v2: bool,
}

/// Processors that the driver exists for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

/// Kinds of platform, each with its own way of discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlatformKind {
    /// A machine with the ordinary driver.
    Linux,
    /// Windows Subsystem for Linux: `/dev/dxg`, no `/dev/nvidia*`.
    Wsl,
    /// Jetson and similar machines, with the driver of an integrated GPU.
    Tegra,
}

/// Where the facts about GPUs come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The driver's own library.
    Nvml,
    /// `/proc/driver/nvidia` and `/dev` alone: the library was missing, broken, silent or not to be asked. UUIDs of
    /// GPUs, numbers and nodes are right; indices where [`Gpu::index_is_known`]; memory, modes and the names of MIG
    /// devices are unknown.
    Proc,
}

/// Something that went wrong while looking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// What it is about: a path, `gpu 3`, `NVML`.
    pub object: String,
    /// What was wrong, and what that means.
    pub text: String,
    /// What kind of thing went wrong.
    #[serde(default, skip_serializing_if = "WarningKind::is_other")]
    pub kind: WarningKind,
}

/// What kind of thing went wrong, for a program that has to know it without reading the text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// What has the path of a device node is not the driver's node: other numbers, a link, a file.
    WrongNode,
    /// A node that every program with a GPU opens does not exist. The inventory says so as well.
    MissingNode,
    /// The kernel module and the libraries are of different versions.
    Versions,
    /// The inventory is incomplete because of it, and has a [`Degraded`] that says so.
    Incomplete,
    /// Anything else.
    #[default]
    Other,
}

impl Warning {
    /// A warning that no program has to know.
    pub fn new(object: impl std::fmt::Display, text: impl Into<String>) -> Self {
        Self {
            object: object.to_string(),
            text: text.into(),
            kind: WarningKind::Other,
        }
    }
}

impl WarningKind {
    fn is_other(&self) -> bool {
        *self == Self::Other
    }
}

/// Names that were looked for in the same places and not found. This need not be a fault: few hosts have everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absent {
    /// File names or patterns.
    pub what: Vec<String>,
    /// The places: directories, caches, library calls.
    pub looked_in: Vec<String>,
}

impl Inventory {
    /// An inventory of a machine where nothing was found yet.
    pub fn empty(platform: Platform) -> Self {
        Self {
            format: FORMAT,
            platform,
            source: Source::Proc,
            driver: None,
            gpus: Vec::new(),
            nodes: HostNodes::default(),
            warnings: Vec::new(),
            absent: Vec::new(),
            degraded: Vec::new(),
        }
    }

    /// All MIG devices with their GPUs, by index.
    pub fn mig_devices(&self) -> impl Iterator<Item = (&Gpu, &MigDevice)> {
        self.gpus
            .iter()
            .flat_map(|gpu| gpu.mig_devices.iter().map(move |mig| (gpu, mig)))
    }
}
