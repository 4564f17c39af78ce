//! What a share is worth: for memory, compute, bandwidth and faults, by which mechanism, and how well it holds.
//!
//! The rules are one table, first match first. Nothing here is a promise of ours: it is what hardware and driver keep.

use crate::policy::Strategy;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How well a guarantee holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grade {
    /// There is none.
    None,
    /// It holds for a program that leaves its environment alone.
    Advisory,
    /// It holds against a program that merely wants more.
    Soft,
    /// It holds against a process that tries.
    Hard,
}

impl Grade {
    /// The grade below this one.
    fn lower(self) -> Self {
        match self {
            Grade::Hard => Grade::Soft,
            Grade::Soft => Grade::Advisory,
            Grade::Advisory | Grade::None => Grade::None,
        }
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Grade::None => "none",
            Grade::Advisory => "advisory",
            Grade::Soft => "soft",
            Grade::Hard => "hard",
        })
    }
}

/// What a guarantee is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// Device memory.
    Memory,
    /// Multiprocessors.
    Compute,
    /// Memory bandwidth.
    Bandwidth,
    /// What a crash of a neighbour does.
    Faults,
}

/// One guarantee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guarantee {
    /// How well it holds against a container whose user is root on the host, in no user namespace. That is how engines that
    /// run as root start containers unless they are told otherwise. Such a user can command an MPS daemon, so under MPS this
    /// is one grade below `grade` (CUDA MPS documentation, "MPS control daemon": the control commands are not restricted).
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
    /// Mechanisms that would do better and that tranche does not offer yet.
    pub not_available: Vec<String>,
}

/// What the table asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) strategy: Strategy,
    pub(super) on_mig: bool,
    pub(super) exclusive_process: bool,
}

/// One rule. `limited` and `exclusive`: `None` where it does not matter.
struct Rule {
    dimension: Dimension,
    strategy: Strategy,
    limited: Option<bool>,
    exclusive: Option<bool>,
    grade: Grade,
    by: &'static str,
    /// Where it is written.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the reader of the table; a test holds that none is empty")
    )]
    source: &'static str,
}

const MPS: &str = "CUDA MPS documentation, \"Memory Protection and Error Containment\" and \"Resource Provisioning\"";
const TS: &str =
    "NVIDIA k8s-device-plugin documentation, \"Time-slicing\"; GPU Operator documentation, \"Limitations\"";
const MIG_MPS: &str = "NVIDIA MIG user guide, \"CUDA MPS\": no EXCLUSIVE_PROCESS on MIG";

const ALONE: &str = "The ledger gives the device to one container at a time (docs/sharing.md, \"Who holds what\")";

use Dimension::{Bandwidth, Compute, Faults, Memory};
use Strategy::{Dedicated, Mps, TimeSlicing};

#[rustfmt::skip]
const RULES: &[Rule] = &[
    Rule { dimension: Memory, strategy: TimeSlicing, limited: None, exclusive: None, grade: Grade::None,
        by: "nothing limits memory under time-slicing; a size is counted in the ledger only", source: TS },
    Rule { dimension: Memory, strategy: Mps, limited: Some(false), exclusive: None, grade: Grade::None,
        by: "the share has no limit", source: MPS },
    Rule { dimension: Memory, strategy: Mps, limited: Some(true), exclusive: Some(true), grade: Grade::Soft,
        by: "MPS limit of each process, device in EXCLUSIVE_PROCESS; a process can raise it to the largest claim's", source: MPS },
    Rule { dimension: Memory, strategy: Mps, limited: Some(true), exclusive: Some(false), grade: Grade::Advisory,
        by: "MPS limit of each process; one that unsets a variable leaves MPS and its limit", source: MIG_MPS },
    Rule { dimension: Compute, strategy: TimeSlicing, limited: None, exclusive: None, grade: Grade::None,
        by: "turns are fair in time between busy processes; there is no ceiling", source: TS },
    Rule { dimension: Compute, strategy: Mps, limited: Some(false), exclusive: None, grade: Grade::None,
        by: "the share has no ceiling", source: MPS },
    Rule { dimension: Compute, strategy: Mps, limited: Some(true), exclusive: Some(true), grade: Grade::Soft,
        by: "MPS active thread percentage, device in EXCLUSIVE_PROCESS; a ceiling, not a reservation", source: MPS },
    Rule { dimension: Compute, strategy: Mps, limited: Some(true), exclusive: Some(false), grade: Grade::Advisory,
        by: "MPS active thread percentage; a process that unsets a variable leaves MPS", source: MIG_MPS },
    Rule { dimension: Bandwidth, strategy: TimeSlicing, limited: None, exclusive: None, grade: Grade::None,
        by: "only MIG divides bandwidth", source: MPS },
    Rule { dimension: Bandwidth, strategy: Mps, limited: None, exclusive: None, grade: Grade::None,
        by: "only MIG divides bandwidth", source: MPS },
    Rule { dimension: Faults, strategy: TimeSlicing, limited: None, exclusive: None, grade: Grade::Soft,
        by: "a fault ends its own process; a GPU that hangs does so for all", source: TS },
    Rule { dimension: Faults, strategy: Mps, limited: None, exclusive: None, grade: Grade::None,
        by: "one fault ends every client of the device; its own daemon keeps it on this device", source: MPS },
    Rule { dimension: Memory, strategy: Dedicated, limited: None, exclusive: None, grade: Grade::Hard,
        by: "no other container that asks the ledger has the device", source: ALONE },
    Rule { dimension: Compute, strategy: Dedicated, limited: None, exclusive: None, grade: Grade::Hard,
        by: "no other container that asks the ledger has the device", source: ALONE },
    Rule { dimension: Bandwidth, strategy: Dedicated, limited: None, exclusive: None, grade: Grade::Hard,
        by: "no other container that asks the ledger has the device", source: ALONE },
    Rule { dimension: Faults, strategy: Dedicated, limited: None, exclusive: None, grade: Grade::Hard,
        by: "no other container that asks the ledger has the device", source: ALONE },
];

/// Mechanisms that are known and not built: the plan says so rather than keep silent.
const LATER_MPS: &[&str] = &[
    "memory: hard limit of the container's cgroup (driver 615, cgroup v2)",
    "compute: static SM partition (CUDA 13.1, Ampere)",
];

/// The guarantees of a share with these facts.
pub(super) fn of(facts: Facts, memory_limited: bool, compute_limited: bool) -> Guarantees {
    let find = |dimension, limited| {
        let rule = RULES.iter().find(|r| {
            r.dimension == dimension
                && r.strategy == facts.strategy
                && r.limited.is_none_or(|l| l == limited)
                && r.exclusive.is_none_or(|e| e == facts.exclusive_process)
        });
        let (grade, by) = rule.map_or((Grade::None, "nothing is known"), |r| (r.grade, r.by));
        let by = if facts.on_mig {
            format!("{by}; against other MIG instances: hard")
        } else {
            by.to_owned()
        };
        let root = if facts.strategy == Mps { grade.lower() } else { grade };
        Guarantee { root, grade, by }
    };
    let later = if facts.strategy == Mps && !facts.on_mig {
        LATER_MPS
    } else {
        &[]
    };
    Guarantees {
        memory: find(Memory, memory_limited),
        compute: find(Compute, compute_limited),
        bandwidth: find(Bandwidth, false),
        faults: find(Faults, false),
        not_available: later.iter().map(|s| (*s).to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_exactly_one_rule_and_a_source() {
        assert!(RULES.iter().all(|r| !r.source.is_empty()));
        for dimension in [Memory, Compute, Bandwidth, Faults] {
            for strategy in [Mps, TimeSlicing, Dedicated] {
                for limited in [true, false] {
                    for exclusive in [true, false] {
                        let fits = RULES.iter().filter(|r| {
                            r.dimension == dimension
                                && r.strategy == strategy
                                && r.limited.is_none_or(|l| l == limited)
                                && r.exclusive.is_none_or(|e| e == exclusive)
                        });
                        assert_eq!(fits.count(), 1, "{dimension:?} {strategy} {limited} {exclusive}");
                    }
                }
            }
        }
    }

    #[test]
    fn between_shares_only_hardware_is_hard() {
        for strategy in [Mps, TimeSlicing] {
            let g = of(
                Facts {
                    strategy,
                    on_mig: true,
                    exclusive_process: true,
                },
                true,
                true,
            );
            assert!(
                [&g.memory, &g.compute, &g.bandwidth, &g.faults]
                    .iter()
                    .all(|g| g.grade < Grade::Hard)
            );
        }
    }
}
