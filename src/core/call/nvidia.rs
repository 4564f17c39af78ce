//! The hooks of NVIDIA's toolkit (`nvidia-cdi-hook` 1.18 to 1.20), which `tranche-oci` has as well.

use super::link;
use super::options::{OnUnknown, ValueKind, each, host_path, read, wrong};
use super::{Program, link::container_path};
use crate::error::{Error, Result};
use crate::types::{ContainerPath, HostPath, Link};
use std::ffi::OsString;

crate::types::words! {
    /// A hook of NVIDIA's toolkit. The word is its verb on a command line.
    pub enum NvidiaHook: "hook" {
        /// Makes links to libraries, and by-path links of DRI nodes.
        CreateSymlinks = "create-symlinks",
        /// Adds the driver's libraries to the loader's cache.
        UpdateLdcache = "update-ldcache",
        /// Puts the image's own newer libcuda first, if the driver supports it.
        EnableCudaCompat = "enable-cuda-compat",
        /// Keeps the driver's programs from making device nodes.
        DisableDeviceNodeModification = "disable-device-node-modification",
        /// Tells OpenGL which GPUs are in the container.
        UpdateApplicationProfile = "update-application-profile",
        /// Sets the permissions of directories that an engine makes for device nodes. crun before 1.6 made them
        /// unreadable in rootless containers; later engines do not need it, so it is left out unless an option asks for
        /// it.
        Chmod = "chmod",
        /// Limits GPU memory by cgroup.
        ApplyCudaMemoryLimits = "apply-cuda-memory-limits",
        /// Makes a link of each SONAME.
        CreateSonameSymlinks = "create-soname-symlinks",
        /// Does nothing.
        Noop = "noop",
    }
}
crate::types::serde_as_text!(NvidiaHook);

impl NvidiaHook {
    /// The hooks that a specification of tranche can have.
    pub const WRITTEN: [NvidiaHook; 6] = [
        NvidiaHook::CreateSymlinks,
        NvidiaHook::UpdateLdcache,
        NvidiaHook::EnableCudaCompat,
        NvidiaHook::DisableDeviceNodeModification,
        NvidiaHook::UpdateApplicationProfile,
        NvidiaHook::Chmod,
    ];

    /// The hook called `name`, which a specification of tranche can have.
    ///
    /// # Errors
    /// Returns a usage error if there is no such hook.
    pub fn written(name: &str) -> Result<NvidiaHook> {
        let hook = name.parse().ok().filter(|hook| Self::WRITTEN.contains(hook));
        hook.ok_or_else(|| Error::not_one_of(format!("hook \"{name}\""), &Self::WRITTEN.map(Self::as_str)))
    }
}

/// A call of one of NVIDIA's hooks. Each hook uses some of the options and ignores the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvidiaCall {
    /// The hook.
    pub hook: NvidiaHook,
    /// `create-symlinks`: links to make, each path once.
    pub links: Vec<Link>,
    /// `update-ldcache`: directories whose libraries belong into ld.so.cache.
    pub folders: Vec<ContainerPath>,
    /// `update-ldcache`: the host's ldconfig, which NVIDIA's hook runs. tranche's does not need it.
    pub ldconfig: Option<HostPath>,
    /// `enable-cuda-compat`: the version of the host's driver, as it was given.
    pub driver_version: Option<String>,
    /// `enable-cuda-compat`: the version of CUDA that the host's driver supports, as it was given.
    pub cuda_version: Option<String>,
    /// `enable-cuda-compat`: the directory of the compatibility libraries, if it is not the usual one.
    pub compat: Option<ContainerPath>,
    /// `chmod`: the paths whose permissions are set.
    pub paths: Vec<ContainerPath>,
    /// `chmod`: the permissions.
    pub mode: Option<u32>,
    /// The file that has the container's state. `None`: it is on standard input.
    pub state_file: Option<String>,
}

impl NvidiaCall {
    pub(super) const OPTIONS: &[(&str, ValueKind)] = &[
        ("link", ValueKind::Container),
        ("folder", ValueKind::Container),
        ("ldconfig-path", ValueKind::Host),
        ("host-driver-version", ValueKind::Text),
        ("host-cuda-version", ValueKind::Text),
        ("cuda-compat-container-root", ValueKind::Container),
        ("path", ValueKind::Container),
        ("mode", ValueKind::Text),
        ("container-spec", ValueKind::Host),
        ("state-dir", ValueKind::Host),
    ];

    /// A call without options.
    pub fn of(hook: NvidiaHook) -> Self {
        Self {
            hook,
            links: Vec::new(),
            folders: Vec::new(),
            ldconfig: None,
            driver_version: None,
            cuda_version: None,
            compat: None,
            paths: Vec::new(),
            mode: None,
            state_file: None,
        }
    }

    /// The whole command line, for `program`.
    pub fn write(&self, program: Program) -> Vec<String> {
        let mut options = link::write(&self.links);
        options.extend(each("mode", self.mode.map(|mode| format!("{mode:o}"))));
        options.extend(each("path", &self.paths));
        options.extend(each("folder", &self.folders));
        options.extend(each("ldconfig-path", &self.ldconfig));
        // As NVIDIA's generator writes them: with their values in one argument.
        let joined = [
            ("host-driver-version", self.driver_version.as_deref()),
            ("host-cuda-version", self.cuda_version.as_deref()),
            (
                "cuda-compat-container-root",
                self.compat.as_ref().map(ContainerPath::as_str),
            ),
            ("container-spec", self.state_file.as_deref()),
        ];
        let joined = joined.into_iter().filter_map(|(name, value)| Some((name, value?)));
        options.extend(joined.map(|(name, value)| format!("--{name}={value}")));
        program.command(self.hook.as_str(), options)
    }

    /// Parses the arguments after the verb.
    ///
    /// # Errors
    /// Returns a usage error for a known option without a value or with an invalid one, and the errors of `unknown`.
    pub fn parse(hook: NvidiaHook, arguments: Vec<OsString>, unknown: OnUnknown<'_>) -> Result<Self> {
        let mut call = Self::of(hook);
        read(arguments, Self::OPTIONS, unknown, |name, value, _| {
            call.take(name, value)
        })?;
        call.links = link::unique(call.links)?;
        Ok(call)
    }

    fn take(&mut self, name: &str, value: String) -> Result<()> {
        // NVIDIA's hooks join such paths to the root of the container, so that a relative one begins there.
        let from_root = || ContainerPath::root().join(&value);
        match name {
            "link" => link::take(&mut self.links, &value)?,
            "folder" => {
                let folder = container_path(&value);
                let folder = folder.ok_or_else(|| wrong(name, &value, "is not an absolute path in normal form"))?;
                if !self.folders.contains(&folder) {
                    self.folders.push(folder);
                }
            }
            // No other program is run, so that an invalid path does no harm.
            "ldconfig-path" => self.ldconfig = HostPath::new(&value).ok(),
            "host-driver-version" => self.driver_version = Some(value).filter(|value| !value.is_empty()),
            "host-cuda-version" => self.cuda_version = Some(value).filter(|value| !value.is_empty()),
            "cuda-compat-container-root" => self.compat = Some(from_root()),
            "path" => self.paths.push(from_root()),
            "mode" => self.mode = Some(permissions(&value)?),
            "container-spec" => self.state_file = Some(value).filter(|value| !matches!(value.as_str(), "" | "-")),
            // Where messages are kept, an option of tranche's alone: the caller has read it already (`state_dir`).
            _ => drop(host_path(name, &value)?),
        }
        Ok(())
    }
}

/// Reads permissions like `755`. The bits that change as whom a program runs are refused.
fn permissions(text: &str) -> Result<u32> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| wrong("mode", text, "is not permissions like 755"))
}
