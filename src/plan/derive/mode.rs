//! What a specification is about.

use std::str::FromStr;
use tranche_core::error::Error;

tranche_core::types::words! {
    /// What a specification is about. The names are those of `nvidia-ctk cdi generate --mode`.
    pub enum Mode {
        /// By platform: GPUs on an ordinary machine.
        Auto = "auto",
        /// GPUs and MIG devices. The name is NVIDIA's; NVML is not required.
        Nvml = "nvml",
        /// All devices of the driver, for a container that manages the host.
        Management = "management",
        /// GPUDirect Storage.
        Gds = "gds",
        /// RDMA.
        Mofed = "mofed",
        /// GDRCopy.
        Gdrcopy = "gdrcopy",
        /// NVSwitches.
        Nvswitch = "nvswitch",
        /// IMEX channels.
        Imex = "imex",
        /// Tegra, which is not supported yet.
        Csv = "csv",
        /// Windows Subsystem for Linux, which is not supported yet.
        Wsl = "wsl",
    }
}

impl Mode {
    /// Vendor and class of the mode's devices, unless options name others.
    ///
    /// NVIDIA's runtime asks for the same ones, so that `NVIDIA_GDS=enabled` and the like find tranche's
    /// specifications.
    pub fn kind(self) -> (&'static str, &'static str) {
        match self {
            Mode::Auto | Mode::Nvml | Mode::Csv | Mode::Wsl => ("nvidia.com", "gpu"),
            Mode::Management => ("management.nvidia.com", "gpu"),
            Mode::Gds => ("nvidia.com", "gds"),
            Mode::Mofed => ("nvidia.com", "mofed"),
            Mode::Gdrcopy => ("nvidia.com", "gdrcopy"),
            Mode::Nvswitch => ("nvidia.com", "nvswitch"),
            Mode::Imex => ("nvidia.com", "imex-channel"),
        }
    }
}

impl FromStr for Mode {
    type Err = Error;

    /// Reads a mode's name in any letter case, as NVIDIA's tool does.
    fn from_str(text: &str) -> Result<Self, Error> {
        let lower = text.to_ascii_lowercase();
        let all = || Self::ALL.iter().copied();
        all().find(|mode| mode.as_str() == lower).ok_or_else(|| {
            let supported = all().filter(|mode| !matches!(mode, Mode::Csv | Mode::Wsl));
            let known: Vec<&str> = supported.map(Self::as_str).collect();
            Error::unknown(format!("mode \"{text}\""), &lower, &known)
        })
    }
}
