//! What the owner of the machine decides about the container runtime shim and the hooks that take its place.
//!
//! Data only. [`super::read`](mod@super::read) reads it from the `runtime` section of the policy file, or from NVIDIA's
//! `config.toml`. The shim takes it from `host.json` ([`crate::host_file`]).

use crate::inventory::DriverCapability;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;
use tranche_core::call::NvidiaHook;
use tranche_core::types::{CdiKind, EngineVersion, HostPath, USUAL_SPEC_DIRS, WaitTime};

/// Settings of the shim. The defaults are those of NVIDIA's container toolkit (`nvidia-ctk config default`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuntimeSettings {
    /// Whose environment may ask for devices.
    pub accept_environment: AcceptEnvironment,
    /// Whose annotations may ask. `None`: those of engines with which no image can write an annotation.
    pub accept_annotations: Option<AcceptAnnotations>,
    /// The oldest podman that is installed, which decides whether podman's annotations are accepted without
    /// [`RuntimeSettings::accept_annotations`]. A fact, and not a decision: `tranche cdi refresh` asks podman. `None`
    /// if podman is not installed, or did not print its version.
    pub oldest_podman: Option<EngineVersion>,
    /// Whether a mount of /dev/null below /var/run/nvidia-container-devices asks for a device. For a claim it always
    /// does.
    pub accept_volume_mounts: bool,
    /// Whether the environment may ask for a claim that was made beforehand.
    pub claims_from_environment: ClaimsFromEnvironment,
    /// How long a start may hold others up that wait behind it, by who asked for the wait.
    pub max_wait: MaxWait,
    /// Kinds of CDI devices that may have device nodes which the plan splits or dedicates. `None`:
    /// `management.nvidia.com/gpu`, for privileged containers.
    pub unchecked_kinds: Option<Vec<CdiKind>>,
    /// Environment variables that replace `NVIDIA_VISIBLE_DEVICES`; empty for that variable itself.
    pub swarm_resource: Vec<String>,
    /// The driver capabilities that a container may have.
    pub supported_capabilities: BTreeSet<DriverCapability>,
    /// Whether `NVIDIA_REQUIRE_*` is ignored.
    pub disable_require: bool,
    /// Low-level runtimes: names that are searched for in PATH, or absolute paths. The first one that is found is
    /// used.
    pub runtimes: Vec<String>,
    /// How the keys of annotations with CDI names begin.
    pub annotation_prefixes: Vec<String>,
    /// The directories with CDI specifications. Later directories take precedence.
    pub spec_dirs: Vec<PathBuf>,
    /// The kind of devices that are asked for without one, in the mode `cdi`.
    pub default_kind: CdiKind,
    /// Whether requests for IMEX channels are ignored.
    pub ignore_imex_channel_requests: bool,
    /// How requests become changes of a container.
    pub mode: RuntimeMode,
    /// Whether NVIDIA's prestart hook works in every mode, and not in the mode `legacy` alone.
    pub skip_mode_detection: bool,
    /// Whether a container's process joins the groups that own the device nodes.
    pub additional_gids: bool,
    /// Parts of the work of `hook prepare` that are left out.
    pub disabled_hooks: BTreeSet<NvidiaHook>,
    /// The directory with the driver's files, if a driver container has them.
    pub driver_root: Option<HostPath>,
    /// The file to which the shim adds its messages.
    pub log: Option<PathBuf>,
    /// How `nvidia-container-cli` is called if it does the work.
    pub nvidia_cli: NvidiaCli,
}

impl Default for RuntimeSettings {
    fn default() -> Self {
        let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect();
        Self {
            accept_environment: AcceptEnvironment::default(),
            accept_annotations: None,
            oldest_podman: None,
            accept_volume_mounts: false,
            claims_from_environment: ClaimsFromEnvironment::default(),
            max_wait: MaxWait::default(),
            unchecked_kinds: None,
            swarm_resource: Vec::new(),
            supported_capabilities: DriverCapability::ALL.iter().copied().collect(),
            disable_require: false,
            runtimes: words(&["runc", "crun"]),
            annotation_prefixes: words(&["cdi.k8s.io/"]),
            spec_dirs: USUAL_SPEC_DIRS.map(PathBuf::from).into(),
            default_kind: CdiKind::nvidia_gpu(),
            ignore_imex_channel_requests: false,
            mode: RuntimeMode::default(),
            skip_mode_detection: false,
            additional_gids: true,
            disabled_hooks: BTreeSet::new(),
            driver_root: None,
            log: None,
            nvidia_cli: NvidiaCli::default(),
        }
    }
}

/// Whose environment may ask for devices by `NVIDIA_VISIBLE_DEVICES` and similar variables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcceptEnvironment {
    /// That of every container.
    #[default]
    Always,
    /// That of a container whose bounding set has CAP_SYS_ADMIN.
    Privileged,
    /// That of no container.
    Never,
}

/// Whether annotations may ask for devices, sizes and waits, whatever engine wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AcceptAnnotations {
    /// Those of every container, also where an image or the author of a pod can write them.
    Always,
    /// Those of no container.
    Never,
}

/// Whether the environment, which the image can set on every engine, may ask for a claim that was made beforehand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimsFromEnvironment {
    /// No: an image could take the claim of a person.
    #[default]
    Never,
    /// Yes, as far as the environment may ask for devices: for engines without CDI.
    Always,
}

/// The longest times that a start may wait for a share, by where the container asks for the wait. The policy's own
/// `wait` is not bounded by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "runtime.maxWait", deny_unknown_fields, default)]
pub struct MaxWait {
    /// For `TRANCHE_WAIT`, which the image can set on every engine.
    pub environment: WaitTime,
    /// For the annotation `tranche.dev/wait`.
    pub annotation: WaitTime,
}

impl Default for MaxWait {
    fn default() -> Self {
        Self {
            environment: WaitTime::default(),
            annotation: WaitTime::HOUR,
        }
    }
}

/// How requests become changes of a container: the modes of NVIDIA's container runtime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuntimeMode {
    /// `cdi` for a request of CDI names alone, else `jit-cdi`.
    #[default]
    Auto,
    /// By the CDI specifications on the host.
    Cdi,
    /// By what is known of the host, without a specification.
    JitCdi,
    /// By `nvidia-container-cli`.
    Legacy,
    /// By the lists of files of a Tegra system.
    Csv,
}

/// Options of NVIDIA's `nvidia-container-cli`, for a hook that calls it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvidiaCli {
    /// The program; `None` to search for it in PATH.
    pub path: Option<PathBuf>,
    /// Its environment, in addition to that of its caller.
    pub environment: Vec<String>,
    /// The file to which it writes messages.
    pub debug: Option<String>,
    /// The cache of the host's loader that it reads.
    pub ldcache: Option<String>,
    /// Whether it loads kernel modules.
    pub load_kmods: bool,
    /// Whether it leaves pivot_root(2) out.
    pub no_pivot: bool,
    /// Whether it leaves the device cgroup alone.
    pub no_cgroups: bool,
    /// The user, or user and group, as which it works.
    pub user: Option<String>,
    /// The ldconfig that it runs; `@` before the path means the host's.
    pub ldconfig: Option<String>,
    /// How it takes the image's own libcuda.
    pub cuda_compat_mode: CudaCompatMode,
    /// Whether it creates no IMEX channels.
    pub no_create_imex_channels: bool,
}

impl Default for NvidiaCli {
    fn default() -> Self {
        Self {
            path: None,
            environment: Vec::new(),
            debug: None,
            ldcache: None,
            load_kmods: true,
            no_pivot: false,
            no_cgroups: false,
            user: None,
            ldconfig: None,
            cuda_compat_mode: CudaCompatMode::default(),
            no_create_imex_channels: false,
        }
    }
}

/// How `nvidia-container-cli` takes the image's own libcuda (`--cuda-compat-mode`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CudaCompatMode {
    /// By the loader's cache.
    #[default]
    Ldconfig,
    /// By a mount.
    Mount,
    /// Another hook does it.
    Hook,
    /// Not at all.
    Disabled,
}
