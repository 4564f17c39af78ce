//! What keeps the limit of memory of shares under MPS: MPS itself, or the driver for the cgroup of each container.
//!
//! The driver counts what the processes of a cgroup allocate, whether they are clients of MPS or not, and refuses what
//! is beyond the limit of the cgroup (MPS documentation, "MPS v3 Memory Partitioning").

use crate::inventory::{HostDevice, Inventory, VirtualizationMode};
use crate::policy::{MpsDaemonOwner, MpsEnforcement, MpsSettings};
use serde::{Deserialize, Serialize};

/// The first branch of the driver that limits the memory of cgroups (NVML documentation, "Change Log", v615).
const FIRST_DRIVER: u32 = 615;

/// What keeps the limit of memory of each share of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryLimitBy {
    /// MPS, for each process, and why it is not the cgroup.
    Mps(NoCgroupLimit),
    /// The driver, for all processes in the cgroup of a container, in addition to MPS.
    Cgroup,
}

impl Default for MemoryLimitBy {
    /// What is in effect as long as nothing else was found.
    fn default() -> Self {
        Self::Mps(NoCgroupLimit::Driver)
    }
}

/// Why the memory of cgroups is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoCgroupLimit {
    /// The policy says so.
    Policy,
    /// The operator runs the daemon. The broker, which sets such limits, is then not asked.
    External,
    /// The device is a MIG device.
    Mig,
    /// The GPU is a vGPU.
    Vgpu,
    /// The driver is too old.
    Driver,
    /// NVML lacks the functions, or could not be asked.
    Library,
    /// Version 2 of cgroups is not mounted where the driver looks for it.
    CgroupV1,
}

impl NoCgroupLimit {
    /// A line for the plan; `None` where there is nothing that could be done.
    pub(super) fn line(self) -> Option<&'static str> {
        Some(match self {
            Self::Mig => return None,
            Self::Policy => "memory: hard limit of the container's cgroup: the policy says enforcement: v2",
            Self::External => "memory: hard limit of the container's cgroup: it needs daemon: managed",
            Self::Vgpu => "memory: hard limit of the container's cgroup: not documented for a vGPU",
            Self::Driver => "memory: hard limit of the container's cgroup: it needs driver 615 and cgroup v2",
            Self::Library => {
                "memory: hard limit of the container's cgroup: NVML lacks nvmlDeviceSetMemoryLimits_v1, or was not asked"
            }
            Self::CgroupV1 => "memory: hard limit of the container's cgroup: it needs cgroup v2 in /sys/fs/cgroup",
        })
    }
}

/// What decides about it.
#[derive(Debug, Clone, Copy)]
struct Conditions {
    enforcement: MpsEnforcement,
    daemon: MpsDaemonOwner,
    on_mig: bool,
    on_vgpu: bool,
    /// The branch of the driver; 0 if it is unknown.
    driver: u32,
    /// Whether NVML has the functions.
    has_functions: bool,
    has_cgroup_v2: bool,
}

/// What keeps the limits of memory of `target` under a policy with these settings.
pub(super) fn choose(settings: &MpsSettings, target: HostDevice<'_>, inventory: &Inventory) -> MemoryLimitBy {
    let driver = inventory.driver.as_ref();
    decide(Conditions {
        enforcement: settings.enforcement,
        daemon: settings.daemon,
        on_mig: target.mig.is_some(),
        on_vgpu: target.gpu.virtualization == Some(VirtualizationMode::Vgpu),
        driver: driver.map_or(0, |driver| driver.version.major()),
        has_functions: driver.is_some_and(|driver| driver.limits_cgroups),
        has_cgroup_v2: inventory.platform.cgroup_v2,
    })
}

fn decide(conditions: Conditions) -> MemoryLimitBy {
    let lacks = [
        (conditions.enforcement == MpsEnforcement::V2, NoCgroupLimit::Policy),
        (conditions.daemon == MpsDaemonOwner::External, NoCgroupLimit::External),
        (conditions.on_mig, NoCgroupLimit::Mig),
        (conditions.on_vgpu, NoCgroupLimit::Vgpu),
        (conditions.driver < FIRST_DRIVER, NoCgroupLimit::Driver),
        (!conditions.has_functions, NoCgroupLimit::Library),
        (!conditions.has_cgroup_v2, NoCgroupLimit::CgroupV1),
    ];
    let lack = lacks.into_iter().find(|(is_so, _)| *is_so);
    lack.map_or(MemoryLimitBy::Cgroup, |(_, lack)| MemoryLimitBy::Mps(lack))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that has everything.
    const ALL: Conditions = Conditions {
        enforcement: MpsEnforcement::Auto,
        daemon: MpsDaemonOwner::Managed,
        on_mig: false,
        on_vgpu: false,
        driver: 615,
        has_functions: true,
        has_cgroup_v2: true,
    };

    #[test]
    fn the_cgroup_is_limited_only_if_nothing_is_missing() {
        assert_eq!(decide(ALL), MemoryLimitBy::Cgroup);
        assert_eq!(decide(Conditions { driver: 620, ..ALL }), MemoryLimitBy::Cgroup);
        let lacks = [
            (
                Conditions {
                    enforcement: MpsEnforcement::V2,
                    ..ALL
                },
                NoCgroupLimit::Policy,
            ),
            (
                Conditions {
                    daemon: MpsDaemonOwner::External,
                    ..ALL
                },
                NoCgroupLimit::External,
            ),
            (Conditions { on_mig: true, ..ALL }, NoCgroupLimit::Mig),
            (Conditions { on_vgpu: true, ..ALL }, NoCgroupLimit::Vgpu),
            (Conditions { driver: 614, ..ALL }, NoCgroupLimit::Driver),
            (Conditions { driver: 0, ..ALL }, NoCgroupLimit::Driver),
            (
                Conditions {
                    has_functions: false,
                    ..ALL
                },
                NoCgroupLimit::Library,
            ),
            (
                Conditions {
                    has_cgroup_v2: false,
                    ..ALL
                },
                NoCgroupLimit::CgroupV1,
            ),
        ];
        for (conditions, lack) in lacks {
            assert_eq!(decide(conditions), MemoryLimitBy::Mps(lack), "{conditions:?}");
        }
    }

    #[test]
    fn the_first_reason_is_the_one_that_a_person_can_change_first() {
        let nothing = Conditions {
            enforcement: MpsEnforcement::V2,
            driver: 580,
            has_functions: false,
            has_cgroup_v2: false,
            ..ALL
        };
        assert_eq!(decide(nothing), MemoryLimitBy::Mps(NoCgroupLimit::Policy));
        let old = Conditions {
            enforcement: MpsEnforcement::Auto,
            ..nothing
        };
        assert_eq!(decide(old), MemoryLimitBy::Mps(NoCgroupLimit::Driver));
    }
}
