//! What is known of a device that is changed, as the plan and the inventory say it, or its journal.

use super::daemon::{DaemonEnvironment, Directories, WORK};
use crate::facts::Facts;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tranche_core::mps::version::SERVER;
use tranche_core::types::Interval;
use tranche_core::types::{Device, DeviceKey, HostPath, MemorySize, in_mib_if_known};
use tranche_plan::inventory::{Driver, FileKind};
use tranche_plan::policy::{MpsBlocked, MpsUsers};
use tranche_plan::share::{Method, Need, Plan, SplitDevice};

/// A device, with all that is needed to change it and to put it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ControlTarget {
    /// Its indices.
    pub(super) device: Device,
    /// `nvidia.com/gpu=0`.
    pub(super) cdi_name: String,
    /// Its key in the ledger.
    pub(super) key: DeviceKey,
    /// Its UUID, by which daemons and limits name it.
    pub(super) uuid: Option<String>,
    /// Its memory, in whole MiB, if it is known.
    #[serde(rename = "memory_mib", with = "in_mib_if_known", default)]
    pub(super) memory: Option<MemorySize>,
    /// The directory in which clients find its daemon.
    pub(super) pipe: PathBuf,
    /// The directory that its daemon works in; `None` in a journal of an earlier version, whose daemon works in `pipe`.
    #[serde(default)]
    pub(super) work: Option<PathBuf>,
    /// Whose processes its daemon serves.
    #[serde(default)]
    pub(super) users: MpsUsers,
    /// Whether its daemon can limit the memory of clients.
    #[serde(default = "yes")]
    pub(super) limits_memory: bool,
    /// What follows when a container blocks its daemon again and again.
    #[serde(default)]
    pub(super) blocked: MpsBlocked,
    /// Whether its compute mode is set to EXCLUSIVE_PROCESS.
    pub(super) is_exclusive: bool,
    /// Seconds without a claim after which it is put back.
    pub(super) grace: u32,
    /// The length of a turn.
    pub(super) interval: Interval,
    /// Whether the memory of each container's cgroup is limited.
    #[serde(default)]
    pub(super) limits_cgroups: bool,
    /// The version of the driver.
    pub(super) driver: Option<String>,
    /// `nvidia-cuda-mps-control`, `nvidia-smi` and the library of NVML, as this program finds them.
    pub(super) control: Option<PathBuf>,
    /// `nvidia-cuda-mps-server`, which the daemon starts by its name.
    #[serde(default)]
    pub(super) server: Option<PathBuf>,
    /// The directory of the driver's libraries, if the loader does not search it.
    #[serde(default)]
    pub(super) libraries: Option<PathBuf>,
    pub(super) smi: Option<PathBuf>,
    pub(super) nvml: Option<PathBuf>,
}

impl ControlTarget {
    /// The device of `key`, if it is shared in a way that the broker manages. `root` is the directory that has the
    /// host's files.
    pub(super) fn find(facts: &Facts, key: &DeviceKey, state_dir: &HostPath, root: &Path) -> Option<Self> {
        let Plan { devices, .. } = &*facts.plan;
        let split = devices
            .iter()
            .find(|split| split.key == *key && split.method.is_managed())?;
        Some(Self::of(split, facts.inventory.driver.as_ref(), state_dir, root))
    }

    fn of(split: &SplitDevice, driver: Option<&Driver>, state_dir: &HostPath, root: &Path) -> Self {
        let mut target = Self {
            device: split.device,
            cdi_name: format!("{}={}", split.kind, split.device.cdi_name()),
            key: split.key.clone(),
            uuid: split.uuid.clone(),
            memory: split.memory.map(|memory| MemorySize::from_mib(memory.mib())),
            pipe: state_dir.join("mps").as_path().join(instance(split.device)),
            work: Some(work(state_dir.as_path(), split.device)),
            users: MpsUsers::Auto,
            limits_memory: true,
            blocked: MpsBlocked::Report,
            is_exclusive: false,
            grace: 0,
            interval: Interval::Default,
            limits_cgroups: false,
            driver: driver.map(|driver| driver.version.to_string()),
            control: None,
            server: None,
            libraries: None,
            smi: None,
            nvml: None,
        };
        target.find_programs(driver, root);
        for need in split.needs(state_dir) {
            match need {
                Need::ExclusiveProcess { .. } => target.is_exclusive = true,
                Need::MpsDaemon { pipe, .. } => target.pipe = pipe.as_path().to_owned(),
                Need::CgroupLimit => target.limits_cgroups = true,
                Need::TimeSlice { interval, .. } => target.interval = interval,
                // The thread of turns does it.
                Need::Turns { .. } => {}
            }
        }
        if let Method::Mps(mps) = &split.method {
            target.grace = mps.grace;
            (target.users, target.blocked) = (mps.users, mps.blocked);
            target.limits_memory = mps.limits_memory();
        }
        target
    }

    /// Finds the programs of the driver that the host has now. What is not found stays: it may exist all the same.
    pub(super) fn find_programs(&mut self, driver: Option<&Driver>, root: &Path) {
        let replace = |old: &mut Option<PathBuf>, new: Option<PathBuf>| *old = new.or_else(|| old.take());
        replace(&mut self.control, program(driver, root, "nvidia-cuda-mps-control"));
        replace(&mut self.server, program(driver, root, SERVER));
        self.libraries = libraries(driver, root);
        replace(&mut self.smi, program(driver, root, "nvidia-smi"));
        replace(&mut self.nvml, library(driver, root));
    }

    /// The directories of its daemon.
    pub(super) fn directories(&self) -> Directories {
        Directories::of(&self.pipe, self.work.as_deref().unwrap_or(&self.pipe))
    }

    /// Gives a daemon that is started from now on a directory that no container sees.
    pub(super) fn leave_earlier_version(&mut self, state_dir: &Path) {
        self.work.get_or_insert_with(|| work(state_dir, self.device));
    }

    /// Where its daemon finds the driver's programs and libraries; `None` if the host has no control program.
    pub(super) fn environment(&self) -> Option<DaemonEnvironment> {
        let control = self.control.as_deref()?;
        let (server, libraries) = (self.server.as_deref(), self.libraries.as_deref());
        Some(DaemonEnvironment::of(control, server, libraries))
    }

    /// The name of its journal, its daemon's unit and its pipe directory: `0`, `0-1`.
    pub(super) fn instance(&self) -> String {
        instance(self.device)
    }
}

/// Earlier versions started daemons of drivers that have such limits only.
fn yes() -> bool {
    true
}

fn work(state_dir: &Path, device: Device) -> PathBuf {
    state_dir.join(WORK).join(instance(device))
}

fn instance(device: Device) -> String {
    device.cdi_name().replace(':', "-")
}

/// A file of the driver in `root`, the directory that has the host's files.
pub(super) fn in_root(root: &Path, file: &HostPath) -> PathBuf {
    root.join(file.as_str().trim_start_matches('/'))
}

/// A program of the driver, in `root`, by its name.
pub(super) fn program(driver: Option<&Driver>, root: &Path, name: &str) -> Option<PathBuf> {
    let mut files = driver.into_iter().flat_map(|driver| &driver.files);
    let found = files.find(|file| file.kind == FileKind::Binary && file.container.file_name() == name);
    found.map(|file| in_root(root, &file.host))
}

/// Where every loader of a host looks (ld.so(8)), but for directories of its architecture.
const SEARCHED: [&str; 4] = ["/lib", "/usr/lib", "/lib64", "/usr/lib64"];

/// The directory of the library of CUDA, in `root`, if it is not one that the loader of the host searches.
pub(super) fn libraries(driver: Option<&Driver>, root: &Path) -> Option<PathBuf> {
    let file = &driver?.library("libcuda.so.1")?.host;
    let dir = file.as_path().parent()?;
    let is_searched = |known: &&str| {
        let below = dir.strip_prefix(known);
        // `/usr/lib/x86_64-linux-gnu`
        below.is_ok_and(|below| {
            below.components().count() == 0 || below.as_os_str().to_string_lossy().ends_with("-linux-gnu")
        })
    };
    let is_found = root == Path::new("/") && SEARCHED.iter().any(is_searched);
    let dir = in_root(root, file).parent()?.to_owned();
    // The programs run with the host's loader, which a C library of another system does not fit.
    (!is_found && !dir.join("libc.so.6").exists()).then_some(dir)
}

/// The library of NVML, in `root`.
pub(super) fn library(driver: Option<&Driver>, root: &Path) -> Option<PathBuf> {
    driver.and_then(nvml).map(|file| in_root(root, file))
}

/// The library of NVML that the driver has for this word size.
fn nvml(driver: &Driver) -> Option<&HostPath> {
    const SONAME: &str = "libnvidia-ml.so.1";
    let is_nvml = |kind: &FileKind| {
        matches!(kind, FileKind::Library { soname: Some(soname), class, .. }
            if soname == SONAME && *class == tranche_core::types::ElfClass::Elf64)
    };
    driver
        .files
        .iter()
        .find(|file| is_nvml(&file.kind))
        .map(|file| &file.host)
}
