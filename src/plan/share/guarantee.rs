//! What a share is worth: for memory, compute, bandwidth and faults, by which mechanism, and how well it holds. The
//! hardware and the driver keep these guarantees, not tranche; each strategy says which they are.

use super::domain;
use super::strategy::{GuaranteeRule, Rules};
use crate::inventory::HostDevice;
use serde::{Deserialize, Serialize};

tranche_core::types::words! {
    /// How well a guarantee holds.
    pub enum Grade: "grade" {
        /// Nothing is guaranteed.
        None = "none",
        /// It holds for a program that leaves its environment alone.
        Advisory = "advisory",
        /// It holds against a program that merely wants more.
        Soft = "soft",
        /// It holds against a process that tries to get around it.
        Hard = "hard",
    }
}
tranche_core::types::serde_as_text!(Grade);

impl Grade {
    /// The grade below this one.
    pub(super) fn lower(self) -> Self {
        match self {
            Grade::Hard => Grade::Soft,
            Grade::Soft => Grade::Advisory,
            Grade::Advisory | Grade::None => Grade::None,
        }
    }
}

tranche_core::types::words! {
    /// What a guarantee is about.
    pub enum Dimension: "guarantee" {
        /// Device memory.
        Memory = "memory",
        /// Multiprocessors.
        Compute = "compute",
        /// Memory bandwidth.
        Bandwidth = "bandwidth",
        /// What a crash of a neighbour does.
        Faults = "faults",
    }
}
tranche_core::types::serde_as_text!(Dimension);

/// One guarantee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarantee {
    /// How well it holds against a container whose user is root on the host, in no user namespace. That is how engines
    /// that run as root start containers unless an option says otherwise. Such a user can command an MPS daemon, so
    /// under MPS this is one grade below `grade` (CUDA MPS documentation, "MPS control daemon": the control commands
    /// are not restricted). The limit of a cgroup is one that root can set (NVML documentation,
    /// "nvmlDeviceSetMemoryLimits_v1"), so it loses a grade, too.
    pub root: Grade,
    /// How well it holds against any other container.
    pub grade: Grade,
    /// By what, and where it ends.
    pub by: String,
}

/// The four guarantees of a share, against the other shares of its device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarantees {
    /// Device memory.
    pub memory: Guarantee,
    /// Multiprocessors.
    pub compute: Guarantee,
    /// Memory bandwidth.
    pub bandwidth: Guarantee,
    /// What a crash of a neighbour does.
    pub faults: Guarantee,
    /// Mechanisms that would do better and that are not in use, each with the reason or with what it needs.
    pub not_available: Vec<String>,
}

impl Guarantees {
    /// The guarantee in one dimension.
    pub fn of(&self, dimension: Dimension) -> &Guarantee {
        match dimension {
            Dimension::Memory => &self.memory,
            Dimension::Compute => &self.compute,
            Dimension::Bandwidth => &self.bandwidth,
            Dimension::Faults => &self.faults,
        }
    }
}

/// What a limit of memory is worth on a GPU that has none of its own, such as GB10: its memory is the processor's, and
/// a program can allocate there without the driver.
const OF_RAM: &str = "the memory is the machine's RAM: programs of the processor use it too, and what a process allocates \
                      without the driver is not counted";

/// What a share of `target` under `rules` is worth.
pub(super) fn of(rules: &dyn Rules, target: HostDevice<'_>, memory_limited: bool, compute_limited: bool) -> Guarantees {
    let on_mig = target.mig.is_some();
    let is_alone = domain::neighbours(target).next().is_none();
    let worth = |dimension, limited| {
        let GuaranteeRule { grade, by, .. } = rules.guarantee(dimension, limited);
        let is_of_ram = dimension == Dimension::Memory && target.gpu.uses_system_memory;
        let (grade, by) = match is_of_ram {
            true => (grade.min(Grade::Advisory), format!("{by}; {OF_RAM}")),
            false => (grade, by.to_owned()),
        };
        let root = rules.against_root(grade);
        let by = match on_mig {
            true if is_alone || dimension == Dimension::Compute => {
                format!("{by}; against other MIG instances: hard")
            }
            true => format!("{by}; against other GPU instances: hard"),
            false => by,
        };
        Guarantee { root, grade, by }
    };
    Guarantees {
        memory: worth(Dimension::Memory, memory_limited),
        compute: worth(Dimension::Compute, compute_limited),
        bandwidth: worth(Dimension::Bandwidth, false),
        faults: worth(Dimension::Faults, false),
        not_available: rules.not_used(on_mig).into_iter().map(str::to_owned).collect(),
    }
}
