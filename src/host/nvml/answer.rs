//! The child's answer: one JSON value per line, so that everything before a hang or a crash can be read.

use super::usage::GpuUsage;
use serde::{Deserialize, Serialize};
use tranche_core::types::PciAddress;
use tranche_plan::inventory::{AddressingMode, Architecture, ComputeMode, MigState, VirtualizationMode};

/// The driver's minors end at 255, so a host cannot have more GPUs. A library that reports more is not used.
pub(crate) const MAX_GPUS: u32 = 256;
/// A GPU has at most eight GPU instances with at most eight compute instances.
pub(crate) const MAX_MIG_DEVICES: u32 = 64;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The step that begins now. If nothing follows, this step hung or crashed.
    At(NvmlStep),
    /// A call returned: the library is slow, but not stuck.
    Alive,
    /// Why the library cannot be used at all.
    Useless(String),
    /// Facts about the driver.
    Driver(DriverFacts),
    /// A GPU.
    Gpu(Box<GpuFacts>),
    /// What a GPU does now.
    Usage(Box<GpuUsage>),
    /// A GPU that does not answer.
    Lost { index: u32, why: String },
    /// A function that the library lacks; reported once.
    Missing(String),
    /// A call that failed although it should work.
    Problem { object: String, text: String },
    /// Every question was asked.
    End,
}

/// A step of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NvmlStep {
    /// Loading the library.
    Load,
    /// `nvmlInit`
    Init,
    /// The driver as a whole.
    Driver,
    /// The GPU of this index.
    Gpu(u32),
}

impl std::fmt::Display for NvmlStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NvmlStep::Load => f.write_str("while it was loaded"),
            NvmlStep::Init => f.write_str("in nvmlInit"),
            NvmlStep::Driver => f.write_str("when asked about the driver"),
            NvmlStep::Gpu(index) => write!(f, "when asked about gpu {index}"),
        }
    }
}

/// The driver, as NVML reports it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DriverFacts {
    /// `nvmlSystemGetDriverVersion`
    pub version: Option<String>,
    /// 1000 × major + 10 × minor.
    pub cuda: Option<i32>,
    /// Whether the library can limit the memory of a cgroup.
    #[serde(default)]
    pub limits_cgroups: bool,
    /// How many GPUs follow.
    pub count: u32,
}

/// A GPU, as NVML reports it. Its strings are not checked yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GpuFacts {
    /// NVML's index.
    pub index: u32,
    pub minor: Option<u32>,
    pub uuid: Option<String>,
    pub pci: Option<String>,
    pub name: Option<String>,
    pub architecture: Option<Architecture>,
    /// Major, minor.
    pub compute_capability: Option<(i32, i32)>,
    /// CUDA cores. A streaming multiprocessor has many.
    pub cores: Option<u32>,
    /// Total, in bytes.
    pub memory: Option<u64>,
    /// Whether NVML says that its memory cannot be asked for: the GPU has none of its own.
    pub uses_system_memory: bool,
    pub mig: Option<MigState>,
    pub compute_mode: Option<ComputeMode>,
    pub persistence: Option<bool>,
    pub addressing: Option<AddressingMode>,
    pub virtualization: Option<VirtualizationMode>,
    pub mig_devices: Vec<MigFacts>,
}

impl GpuFacts {
    /// The PCI address, if it is valid.
    pub(crate) fn pci_address(&self) -> Option<PciAddress> {
        self.pci.as_deref()?.parse().ok()
    }
}

/// A MIG device, as NVML reports it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MigFacts {
    /// NVML's index within the GPU.
    pub index: u32,
    pub uuid: Option<String>,
    pub name: Option<String>,
    pub gpu_instance: Option<u32>,
    pub compute_instance: Option<u32>,
    pub memory_mib: Option<u64>,
    pub gpu_slices: Option<u32>,
    pub compute_slices: Option<u32>,
    pub sms: Option<u32>,
}
