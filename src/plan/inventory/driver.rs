//! The driver's files.

use super::HostMount;
use serde::{Deserialize, Serialize};
use tranche_core::types::{ContainerPath, CudaVersion, DriverVersion, ElfClass, HostPath, Link};

/// The driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// The version of the kernel module, or of the libraries if that of the module is unknown.
    pub version: DriverVersion,
    /// The newest CUDA that it serves.
    pub cuda: Option<CudaVersion>,
    /// Whether NVML has the functions that limit the memory of a cgroup (`nvmlDeviceSetMemoryLimits_v1`, since 615).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limits_cgroups: bool,
    /// Directories with libraries of this driver, in the order of the search. A loader in a container has to know
    /// them.
    pub library_dirs: Vec<HostMount>,
    /// Files of the driver, by path in the container.
    pub files: Vec<DriverFile>,
}

impl Driver {
    /// The library of this SONAME; `None` if the driver lacks it.
    pub fn library(&self, soname: &str) -> Option<&DriverFile> {
        let is_named = |kind: &FileKind| matches!(kind, FileKind::Library { soname: Some(name), .. } if name == soname);
        self.files.iter().find(|file| is_named(&file.kind))
    }
}

/// The SONAME of the library without which no container computes.
pub const LIBCUDA: &str = "libcuda.so.1";

/// One file of the driver, and where it belongs in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverFile {
    /// On the host, as the engine must name it, all links resolved. Of a library with a version of its own, this is the
    /// link with its SONAME, which stays when the package is updated.
    pub host: HostPath,
    /// In a container.
    pub container: ContainerPath,
    /// What it is.
    pub kind: FileKind,
    /// What it is needed for.
    pub capability: DriverCapability,
    /// Names under which programs look for it. Sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
}

impl DriverFile {
    /// Whether a container may start without it when it is gone. The libraries with the driver's version stay as long
    /// as the driver does; programs and configuration may be in packages of their own, and daemons come and go.
    pub fn is_optional(&self) -> bool {
        match self.kind {
            FileKind::Library { own_version, .. } => own_version,
            FileKind::Firmware => false,
            FileKind::Binary | FileKind::Config | FileKind::Socket => true,
        }
    }
}

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type", deny_unknown_fields)]
pub enum FileKind {
    /// A shared library.
    Library {
        /// DT_SONAME: the name by which a loader asks for it.
        soname: Option<String>,
        /// Word size.
        class: ElfClass,
        /// Whether it has a version of its own, because its package may be updated without the driver.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        own_version: bool,
    },
    /// A program.
    Binary,
    /// A configuration file or other data.
    Config,
    /// Firmware that the driver loads into the GPU.
    Firmware,
    /// A socket of a daemon.
    Socket,
}

tranche_core::types::words! {
    /// What an image may ask for in `NVIDIA_DRIVER_CAPABILITIES`.
    pub enum DriverCapability: "driver capability" {
        /// CUDA and OpenCL.
        Compute = "compute",
        /// NVML, nvidia-smi.
        Utility = "utility",
        /// OpenGL and Vulkan.
        Graphics = "graphics",
        /// The video codec.
        Video = "video",
        /// Leases of X11 displays.
        Display = "display",
        /// NGX: DLSS and the like.
        Ngx = "ngx",
        /// 32-bit libraries for any use.
        Compat32 = "compat32",
    }
}
tranche_core::types::serde_as_text!(DriverCapability);
