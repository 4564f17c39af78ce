//! What the child says: one JSON value per line, so that what came before a hang or a crash is whole.

use serde::{Deserialize, Serialize};

/// No machine has more GPUs (the driver's minors end at 255), so a library that claims more is not believed.
pub(crate) const MAX_GPUS: u32 = 256;
/// A GPU has at most eight GPU instances with at most eight compute instances.
pub(crate) const MAX_MIG_DEVICES: u32 = 64;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// What is done next: if nothing follows, it was this that hung or crashed.
    At(Step),
    /// A call came back: the library is slow, and not stuck.
    Alive,
    /// The library could not be used at all, and why.
    Useless(String),
    /// Facts about the driver.
    Driver(DriverFacts),
    /// A GPU.
    Gpu(Box<GpuFacts>),
    /// A GPU that does not answer, and why.
    Lost { index: u32, why: String },
    /// A function that the library lacks; said once.
    Missing(String),
    /// Something that should have worked and did not.
    Problem { object: String, text: String },
    /// All was asked.
    End,
}

/// Steps of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// Loading the library.
    Load,
    /// `nvmlInit`
    Init,
    /// The driver as a whole.
    Driver,
    /// The GPU of this index.
    Gpu(u32),
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Step::Load => f.write_str("while it was loaded"),
            Step::Init => f.write_str("in nvmlInit"),
            Step::Driver => f.write_str("when asked about the driver"),
            Step::Gpu(index) => write!(f, "when asked about gpu {index}"),
        }
    }
}

/// The driver, as NVML tells it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DriverFacts {
    /// `nvmlSystemGetDriverVersion`
    pub version: Option<String>,
    /// 1000 × major + 10 × minor.
    pub cuda: Option<i32>,
    /// How many GPUs follow.
    pub count: u32,
}

/// A GPU, as NVML tells it: nothing is checked yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GpuFacts {
    /// NVML's index.
    pub index: u32,
    /// See [`crate::sys::nvml::Device`] for this and what follows.
    pub minor: Option<u32>,
    pub uuid: Option<String>,
    pub pci: Option<String>,
    pub name: Option<String>,
    pub architecture: Option<u32>,
    pub compute_capability: Option<(i32, i32)>,
    pub memory: Option<u64>,
    pub mig: Option<(u32, u32)>,
    pub compute_mode: Option<u32>,
    pub persistence: Option<u32>,
    pub addressing: Option<u32>,
    pub virtualization: Option<u32>,
    pub mig_devices: Vec<MigFacts>,
}

/// A MIG device, as NVML tells it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MigFacts {
    /// NVML's index within the GPU.
    pub index: u32,
    /// See [`crate::sys::nvml::Device`] for this and what follows.
    pub uuid: Option<String>,
    pub name: Option<String>,
    pub gpu_instance: Option<u32>,
    pub compute_instance: Option<u32>,
    pub memory_mib: Option<u64>,
    pub gpu_slices: Option<u32>,
    pub compute_slices: Option<u32>,
}

/// Everything that the child told.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Facts {
    /// The driver; `None` where it did not come that far.
    pub driver: Option<DriverFacts>,
    /// GPUs that answered, by index.
    pub gpus: Vec<GpuFacts>,
    /// GPUs that did not, by index.
    pub lost: Vec<u32>,
}
