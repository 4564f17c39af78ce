//! CUDA's multi-process service: one daemon for each device serves the processes of several containers at the same
//! time, each with a ceiling of memory and of compute.

use super::memory_limit::{MemoryLimitBy, NoCgroupLimit, choose};
use super::{DirectoryInContainer, GuaranteeRule, InContainer, MostShares, Rules, Size};
use crate::inventory::{Architecture, HostDevice, Inventory, VirtualizationMode};
use crate::policy::{MpsBlocked, MpsComputeMode, MpsDaemonOwner, MpsUsers, Parts, Policy, Priority, Split};
use crate::share::arithmetic::memory_of;
use crate::share::guarantee::{Dimension, Grade};
use crate::share::{Need, Share, SplitDevice};
use serde::{Deserialize, Serialize};
use tranche_core::error::{Error, Result};
use tranche_core::mps::version::{Commanders, MemoryLimits, VERSIONS, Version};
use tranche_core::types::{ContainerPath, CudaVersion, HostPath, MemorySize, Percent, Promise};

/// Where CUDA looks for the daemon when nothing says otherwise. A process that an engine starts by `exec` gets no
/// environment from CDI, and must find the daemon all the same.
const PIPE_IN_CONTAINER: &str = "/tmp/nvidia-mps";

const DOCUMENTATION: &str =
    "CUDA MPS documentation, \"Memory Protection and Error Containment\" and \"Resource Provisioning\"";
const CGROUP_LIMIT: &str = "CUDA MPS documentation, \"MPS v3 Memory Partitioning\"";
const COMMANDS: &str = "NVIDIA's control daemons of drivers 470 and 535, which take commands from any user";
const OWN_SERVER: &str =
    "NVIDIA's control daemon of driver 580 with an H200: who a server runs as can change its limits";
const ON_MIG: &str = "NVIDIA MIG user guide, \"CUDA MPS\": no EXCLUSIVE_PROCESS on MIG";

/// Seconds without a claim after which a device is put back, if the policy does not say it.
const DEFAULT_GRACE: u32 = 30;

/// The variables of a container with a share, except those that no share sets.
pub(super) const SET: [&str; 8] = [
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "NVIDIA_GPU_MEMORY_REQUEST",
    "CUDA_MPS_CLIENT_PRIORITY",
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "NVIDIA_GPU_MEMORY_LIMIT",
];

/// CUDA's multi-process service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mps {
    /// Who starts and stops the daemon, and sets the device's compute mode.
    pub daemon: MpsDaemonOwner,
    /// Whose processes one daemon serves.
    pub users: MpsUsers,
    /// Whether the device is set to EXCLUSIVE_PROCESS while it is shared.
    pub exclusive_process: bool,
    /// What follows when a container blocks the daemon again and again.
    #[serde(default)]
    pub blocked: MpsBlocked,
    /// The branch of the driver, which decides what its MPS daemon can do; `None` if it is unknown.
    #[serde(default)]
    pub driver: Option<u32>,
    /// What keeps the limits of memory.
    #[serde(default)]
    pub memory: MemoryLimitBy,
    /// Seconds without a claim before the device is put back.
    pub grace: u32,
}

impl Mps {
    pub(super) fn new(policy: &Policy, inventory: &Inventory, target: HostDevice<'_>, split: &Split) -> Result<Self> {
        if target.gpu.architecture.is_some_and(|a| a < Architecture::Volta) {
            let what = "MPS has no limits before Volta, so a share would promise nothing";
            let error = policy.wrong(split.place, target, what);
            return Err(error.hint("use timeSlicing for this device"));
        }
        let driver = inventory.driver.as_ref().map(|driver| driver.version.major());
        refuse_missing(policy, target, split, driver)?;
        let is_vgpu = target.gpu.virtualization == Some(VirtualizationMode::Vgpu);
        let wanted = policy.mps.compute_mode == MpsComputeMode::Exclusive;
        Ok(Self {
            daemon: policy.mps.daemon,
            users: policy.mps.users,
            // MIG has no exclusive mode (MIG user guide, "CUDA MPS"), and a vGPU guest cannot set one.
            exclusive_process: wanted && target.mig.is_none() && !is_vgpu,
            blocked: policy.mps.blocked,
            driver,
            memory: choose(&policy.mps, target, inventory),
            grace: policy.mps.grace.unwrap_or(DEFAULT_GRACE),
        })
    }
}

/// The row of the driver of this branch; that of the oldest driver that was seen for an older one. `None` if the branch
/// is unknown: then the program says at its start what it can do.
fn version(driver: Option<u32>) -> Option<&'static Version> {
    let [oldest, ..] = &VERSIONS;
    driver.map(|major| Version::of_driver(major).unwrap_or(oldest))
}

/// Refuses what the daemon of this driver cannot do.
fn refuse_missing(policy: &Policy, target: HostDevice<'_>, split: &Split, driver: Option<u32>) -> Result<()> {
    let (Some(major), Some(version)) = (driver, version(driver)) else {
        return Ok(());
    };
    if policy.mps.users == MpsUsers::Many && !version.options.has_multi_user_server() {
        let what = format!("MPS of driver {major} serves one user at a time, and users: many needs driver 555");
        return Err(policy
            .wrong(split.place, target, &what)
            .hint("set sharing.mps.users: auto"));
    }
    let has_memory = match &split.parts {
        Parts::Equal(_) => true,
        Parts::Named(shares) => shares.iter().any(|share| share.memory.is_some()),
        Parts::Turns(_) | Parts::Whole => false,
    };
    if has_memory && version.memory_limits == MemoryLimits::None {
        let what = format!("MPS of driver {major} has no limits of memory, so a share's memory would not be limited");
        let hint = "write shares without memory, use timeSlicing, or upgrade the driver (535 has such limits)";
        return Err(policy.wrong(split.place, target, &what).hint(hint));
    }
    Ok(())
}

impl Mps {
    /// Whether one server serves the processes of several users at the same time, as far as the driver's version says.
    pub fn serves_many(&self) -> bool {
        match self.users {
            MpsUsers::One => false,
            MpsUsers::Many => true,
            MpsUsers::Auto => version(self.driver).is_none_or(|version| version.options.has_multi_user_server()),
        }
    }

    /// Whether the daemon can limit the memory of its clients.
    pub fn limits_memory(&self) -> bool {
        version(self.driver).is_none_or(|version| version.memory_limits != MemoryLimits::None)
    }

    /// Whether every user who reaches the daemon's socket can change its limits.
    fn obeys_everybody(&self) -> bool {
        version(self.driver).is_some_and(|version| version.commanders == Commanders::AnyUser)
    }
}

impl Rules for Mps {
    fn stays_whole(&self) -> bool {
        false
    }

    /// MPS counts CUDA contexts: 48 a device from Volta on, 60 with CUDA 13.1 and later (MPS documentation,
    /// "Limitations"; with the default of two connections a client). A container that runs several processes takes
    /// several.
    fn most_shares(&self, inventory: &Inventory) -> Option<MostShares> {
        let cuda = inventory.driver.as_ref().and_then(|driver| driver.cuda);
        let (shares, why) = match cuda.is_some_and(|cuda| cuda >= CudaVersion { major: 13, minor: 1 }) {
            true => (60, "MPS serves 60 clients here (CUDA 13.1 and later)"),
            false => (48, "MPS serves 48 clients here (before CUDA 13.1)"),
        };
        Some(MostShares { shares, why })
    }

    fn equal_part(&self, device: HostDevice<'_>, split: &Split, policy: &Policy, parts: u32) -> Result<Size> {
        let too_many = |least: &str| {
            let what = format!("{parts} replicas have less than {least} each");
            policy.wrong(split.place, device, what).hint("ask for fewer")
        };
        let whole = memory_of(device)?;
        let memory = (policy.overcommit_memory.of(whole) / u64::from(parts)).min(whole);
        let compute = (policy.overcommit_compute.of(100) / u64::from(parts)).min(100);
        let compute =
            Percent::try_from(u32::try_from(compute).unwrap_or(100)).map_err(|_| too_many("1% of compute"))?;
        if memory == 0 {
            return Err(too_many("1 MiB"));
        }
        Ok((Some(MemorySize::from_mib(memory)), Some(compute)))
    }

    fn promise(&self, _: &SplitDevice, share: &Share) -> Promise {
        Promise::Mps {
            memory: share.memory,
            compute: share.compute,
        }
    }

    fn guarantee(&self, dimension: Dimension, limited: bool) -> GuaranteeRule {
        let (grade, by) = match (dimension, limited, self.exclusive_process) {
            (Dimension::Memory, false, _) => (Grade::None, "the share has no limit"),
            (Dimension::Memory, true, _) if self.memory == MemoryLimitBy::Cgroup => (
                Grade::Hard,
                "the driver's limit of the container's cgroup (not measured here); managed memory is not counted",
            ),
            (Dimension::Memory, true, _) if self.obeys_everybody() => (
                Grade::Advisory,
                "MPS limit of each process; any user can command the MPS daemon of this driver (before 550)",
            ),
            (Dimension::Memory, true, _) if !self.serves_many() => (
                Grade::Advisory,
                "MPS limit of each process; the user whom the daemon serves can raise the limits of the server",
            ),
            (Dimension::Memory, true, true) => (
                Grade::Soft,
                "MPS limit of each process, device in EXCLUSIVE_PROCESS; a process can raise it to the largest claim's",
            ),
            (Dimension::Memory, true, false) => (
                Grade::Advisory,
                "MPS limit of each process; one that unsets a variable leaves MPS and its limit",
            ),
            (Dimension::Compute, false, _) => (Grade::None, "the share has no ceiling"),
            (Dimension::Compute, true, _) if self.obeys_everybody() => (
                Grade::Advisory,
                "MPS active thread percentage; any user can command the MPS daemon of this driver (before 550)",
            ),
            (Dimension::Compute, true, _) if !self.serves_many() => (
                Grade::Advisory,
                "MPS active thread percentage; the user whom the daemon serves can raise that of the server",
            ),
            (Dimension::Compute, true, true) => (
                Grade::Soft,
                "MPS active thread percentage, device in EXCLUSIVE_PROCESS; a ceiling, not a reservation",
            ),
            (Dimension::Compute, true, false) => (
                Grade::Advisory,
                "MPS active thread percentage; a process that unsets a variable leaves MPS",
            ),
            (Dimension::Bandwidth, ..) => (Grade::None, "only MIG divides bandwidth"),
            (Dimension::Faults, ..) => (
                Grade::None,
                "one fault ends every client of the device; its own daemon keeps it on this device",
            ),
        };
        let source = match grade {
            Grade::Hard => CGROUP_LIMIT,
            Grade::Advisory if self.obeys_everybody() => COMMANDS,
            Grade::Advisory if !self.serves_many() => OWN_SERVER,
            Grade::Advisory => ON_MIG,
            Grade::Soft | Grade::None => DOCUMENTATION,
        };
        GuaranteeRule { grade, by, source }
    }

    /// Such a user can command the server: change its limits, end clients of others, and end it (seen with driver 580
    /// and an H200, through the socket of clients). It may be able to set the limit of its own cgroup, which needs no
    /// more than root.
    fn against_root(&self, grade: Grade) -> Grade {
        grade.lower()
    }

    fn not_used(&self, on_mig: bool) -> Vec<&'static str> {
        let one_user = (self.users == MpsUsers::Auto && !self.serves_many()).then_some(
            "users: one user at a time shares the device, because the MPS daemon of this driver serves one; from 555 on it \
             serves several",
        );
        if on_mig {
            return one_user.into_iter().collect();
        }
        let (memory, has_namespaces) = match self.memory {
            MemoryLimitBy::Cgroup => (None, true),
            MemoryLimitBy::Mps(why) => (
                why.line(),
                matches!(why, NoCgroupLimit::Library | NoCgroupLimit::CgroupV1),
            ),
        };
        let namespaces = has_namespaces.then_some(
            "compute: ceilings of MPS v3 namespaces (driver 615): a process leaves one by naming an SM partition, and none \
             can be changed while it has clients",
        );
        let partition = "compute: static SM partition (CUDA 13.1, Ampere)";
        let lines = [memory, namespaces, Some(partition), one_user];
        lines.into_iter().flatten().collect()
    }

    /// Sets every variable that MPS reads, so that what an image or its user sets is written over.
    /// `CUDA_MPS_SM_PARTITION` alone is left: it has no value without an effect, and the daemon reads it only if it was
    /// started for static partitions (MPS documentation, "Environment Variables").
    fn in_container(
        &self,
        device: &SplitDevice,
        promise: Promise,
        priority: Priority,
        state_dir: &HostPath,
    ) -> Result<InContainer> {
        let uuid = device.uuid.as_ref();
        let uuid = uuid.ok_or_else(|| Error::failed(device.device, "has no UUID to limit it by"))?;
        let (memory, compute) = (promise.memory().or(device.memory), promise.compute());
        // With overcommit, shares that are claimed as one are more together than the device has.
        let memory = memory.map(|size| device.memory.map_or(size, |whole| size.min(whole)).mib());
        let compute = compute.map_or(Percent::ALL, |percent| percent.min(Percent::ALL));
        let priority = match priority {
            Priority::Normal => "0",
            Priority::BelowNormal => "1",
        };
        let mut environment = vec![
            ("CUDA_MPS_PIPE_DIRECTORY", PIPE_IN_CONTAINER.to_owned()),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", compute.get().to_string()),
            ("NVIDIA_GPU_MEMORY_REQUEST", "0".into()),
            ("CUDA_MPS_CLIENT_PRIORITY", priority.into()),
            ("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING", "0".into()),
            ("CUDA_VISIBLE_DEVICES", uuid.clone()),
        ];
        if let Some(mib) = memory {
            // By index, as the daemon's own limit: the container sees this device alone. By UUID works on driver 580;
            // the commands of daemons up to 555 take a UUID for a limit of 0 that clears the limit of device 0.
            environment.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", format!("0={mib}M")));
            environment.push(("NVIDIA_GPU_MEMORY_LIMIT", mib.to_string()));
        }
        let pipe = pipe_directory(device, state_dir);
        Ok(InContainer {
            environment,
            directories: vec![DirectoryInContainer {
                path: ContainerPath::new(PIPE_IN_CONTAINER)?,
                host: pipe.clone(),
            }],
            daemon: Some(pipe),
        })
    }

    /// The daemon's defaults allow the largest claim that may be made, because a client can only go below them.
    fn needs(&self, device: &SplitDevice, state_dir: &HostPath) -> Vec<Need> {
        let (memory, compute) = largest_claim(device);
        let mode = self.exclusive_process.then(|| Need::ExclusiveProcess {
            uuid: device.uuid.clone(),
        });
        let daemon = Need::MpsDaemon {
            uuid: device.uuid.clone(),
            pipe: pipe_directory(device, state_dir),
            many_users: self.serves_many(),
            memory: memory.filter(|_| self.limits_memory()),
            compute,
        };
        let cgroup = (self.memory == MemoryLimitBy::Cgroup).then_some(Need::CgroupLimit);
        mode.into_iter().chain([daemon]).chain(cgroup).collect()
    }

    fn is_managed(&self) -> bool {
        self.daemon == MpsDaemonOwner::Managed
    }

    /// A container that has the programs which command a daemon could lift its own limits.
    fn withholds(&self, name: &str) -> bool {
        name.starts_with("nvidia-cuda-mps-")
    }
}

/// The pipe directory of a device's daemon on the host. It is short, because the path of a socket has at most 108
/// bytes.
fn pipe_directory(device: &SplitDevice, state_dir: &HostPath) -> HostPath {
    let name = device.device.cdi_name().replace(':', "-");
    state_dir.join("mps").join(&name)
}

/// The largest claim that may be made of a device; `None` where its shares have no such limit.
/// Several shares can be claimed as one, up to all of them, unless the policy allows one share a claim.
fn largest_claim(device: &SplitDevice) -> (Option<MemorySize>, Option<Percent>) {
    let shares = || device.shares.distinct().iter();
    let (memory, compute) = match device.one_share_a_claim {
        true => (
            shares().filter_map(|share| share.memory).max(),
            shares().filter_map(|share| share.compute).max(),
        ),
        false => (device.shares.memory(), device.shares.compute()),
    };
    // With overcommit the sum is more than the device has.
    (
        memory.map(|memory| device.memory.map_or(memory, |whole| memory.min(whole))),
        compute.map(|compute| compute.min(Percent::ALL)),
    )
}
