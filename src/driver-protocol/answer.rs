//! Answers: one JSON value per line, so that everything before a hang or a crash can be read.

use crate::machine::MachineAnswer;
use crate::usage::GpuUsage;
use serde::{Deserialize, Serialize};
use tranche_core::types::PciAddress;
use tranche_plan::inventory::{AddressingMode, Architecture, ComputeMode, MigState, VirtualizationMode};
use tranche_plan::mig::Engines;

/// The driver's minors end at 255, so a host cannot have more GPUs. A library that reports more is not used.
pub const MAX_GPUS: u32 = 256;
/// A GPU has at most eight GPU instances with at most eight compute instances.
pub const MAX_MIG_DEVICES: u32 = 64;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first line: the version of the program.
    Hello(String),
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
    Lost {
        /// NVML's index.
        index: u32,
        /// What NVML said.
        why: String,
    },
    /// A function that the library lacks; reported once.
    Missing(String),
    /// A call that failed although it should work.
    Problem {
        /// The GPU or the MIG device, or NVML.
        object: String,
        /// What is not known.
        text: String,
    },
    /// The answer to a question about the machine.
    Machine(Box<MachineAnswer>),
    /// The answer to a question is complete.
    End,
}

/// A step of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NvmlStep {
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
pub struct DriverFacts {
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
pub struct GpuFacts {
    /// NVML's index.
    pub index: u32,
    /// Of its device node.
    pub minor: Option<u32>,
    /// Its UUID.
    pub uuid: Option<String>,
    /// Its PCI address.
    pub pci: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its brand: `GeForce`.
    pub brand: Option<String>,
    /// Its architecture.
    pub architecture: Option<Architecture>,
    /// Major, minor.
    pub compute_capability: Option<(i32, i32)>,
    /// CUDA cores. A streaming multiprocessor has many.
    pub cores: Option<u32>,
    /// Total, in bytes.
    pub memory: Option<u64>,
    /// Whether NVML says that its memory cannot be asked for: the GPU has none of its own.
    pub uses_system_memory: bool,
    /// Its MIG mode.
    pub mig: Option<MigState>,
    /// Who may use it at the same time.
    pub compute_mode: Option<ComputeMode>,
    /// Whether the driver keeps it initialised.
    pub persistence: Option<bool>,
    /// How it addresses the memory of the machine.
    pub addressing: Option<AddressingMode>,
    /// Whether it is that of a virtual machine.
    pub virtualization: Option<VirtualizationMode>,
    /// Its MIG devices.
    pub mig_devices: Vec<MigFacts>,
}

impl GpuFacts {
    /// The PCI address, if it is valid.
    pub fn pci_address(&self) -> Option<PciAddress> {
        self.pci.as_deref()?.parse().ok()
    }
}

/// A MIG device, as NVML reports it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MigFacts {
    /// NVML's index within the GPU.
    pub index: u32,
    /// Its UUID.
    pub uuid: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its GPU instance.
    pub gpu_instance: Option<u32>,
    /// Its compute instance, within the GPU instance.
    pub compute_instance: Option<u32>,
    /// Its memory, in MiB.
    pub memory_mib: Option<u64>,
    /// Slices of the GPU instance.
    pub gpu_slices: Option<u32>,
    /// Slices of the compute instance.
    pub compute_slices: Option<u32>,
    /// Streaming multiprocessors.
    pub sms: Option<u32>,
    /// Engines of the GPU instance.
    pub engines: Option<Engines>,
}
