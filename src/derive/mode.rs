//! What a specification is about.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// What a specification is about. The names are those of `nvidia-ctk cdi generate --mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By platform: GPUs on an ordinary machine.
    Auto,
    /// GPUs and MIG devices. The name is NVIDIA's; NVML is not required.
    Nvml,
    /// All devices of the driver, for a container that manages the host.
    Management,
    /// GPUDirect Storage.
    Gds,
    /// RDMA.
    Mofed,
    /// GDRCopy.
    Gdrcopy,
    /// NVSwitches.
    Nvswitch,
    /// IMEX channels.
    Imex,
    /// Tegra, which is not supported yet.
    Csv,
    /// Windows Subsystem for Linux, which is not supported yet.
    Wsl,
}

impl Mode {
    const ALL: [(Mode, &'static str); 10] = [
        (Mode::Auto, "auto"),
        (Mode::Nvml, "nvml"),
        (Mode::Management, "management"),
        (Mode::Gds, "gds"),
        (Mode::Mofed, "mofed"),
        (Mode::Gdrcopy, "gdrcopy"),
        (Mode::Nvswitch, "nvswitch"),
        (Mode::Imex, "imex"),
        (Mode::Csv, "csv"),
        (Mode::Wsl, "wsl"),
    ];

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

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL.iter().find(|(m, _)| m == self).map_or("", |(_, name)| name))
    }
}

impl FromStr for Mode {
    type Err = Error;

    /// Reads a mode's name in any letter case, as NVIDIA's tool does.
    fn from_str(text: &str) -> Result<Self, Error> {
        let lower = text.to_ascii_lowercase();
        Self::ALL
            .iter()
            .find(|(_, name)| *name == lower)
            .map(|(mode, _)| *mode)
            .ok_or_else(|| {
                let works = |mode: Mode| !matches!(mode, Mode::Csv | Mode::Wsl);
                let known: Vec<&str> = Self::ALL
                    .iter()
                    .filter(|(m, _)| works(*m))
                    .map(|(_, name)| *name)
                    .collect();
                Error::unknown(format!("mode \"{text}\""), &known)
            })
    }
}
