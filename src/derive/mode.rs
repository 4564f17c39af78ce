//! What a specification is about.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// What a specification is about. The names are those of `nvidia-ctk cdi generate --mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By platform: GPUs on an ordinary machine.
    Auto,
    /// GPUs and MIG devices. The name is NVIDIA's; an inventory without NVML serves as well.
    Nvml,
    /// Everything that the driver has, for a container that looks after the host.
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
    /// Tegra; not yet.
    Csv,
    /// Windows Subsystem for Linux; not yet.
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

    /// Vendor and class of the mode's devices, unless somebody says otherwise.
    ///
    /// The same that NVIDIA's runtime asks for, so that `NVIDIA_GDS=enabled` and its kin find a specification of ours.
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

    /// Takes a mode's name in any case, as NVIDIA's tool does.
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
