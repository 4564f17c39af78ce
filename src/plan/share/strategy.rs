//! What each strategy of sharing a device does. Each strategy has one file, and the matches in this one choose among
//! them: nothing else in the program decides by the strategy of a device.

mod dedicated;
mod memory_limit;
mod mps;
mod time_slicing;
mod turns;

pub use dedicated::Dedicated;
pub use memory_limit::{MemoryLimitBy, NoCgroupLimit};
pub use mps::Mps;
pub use time_slicing::TimeSlicing;
pub use turns::Turns;
pub(super) use turns::memory_by_turns_at;

use super::guarantee::{Dimension, Grade};
use super::{Need, Share, SplitDevice};
use crate::inventory::{HostDevice, Inventory};
use crate::policy::{Parts, Policy, Priority, Split};
use serde::{Deserialize, Serialize};
use tranche_core::error::Result;
use tranche_core::types::{ContainerPath, HostPath, MemorySize, Percent, Promise, Strategy};

/// How the shares of a device are kept apart, with what the machine has to be set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "strategy")]
pub enum Method {
    /// The driver lets processes run in turn.
    TimeSlicing(TimeSlicing),
    /// CUDA's multi-process service.
    Mps(Mps),
    /// Each holder has the whole device for a time.
    Turns(Turns),
    /// The device stays whole, for one container at a time. Its one share is called `whole`.
    Dedicated(Dedicated),
}

impl Method {
    /// How `target`, a device of `inventory`, is shared under an entry of the policy.
    ///
    /// # Errors
    /// Returns an error if the device lacks what the strategy or a setting of the policy needs.
    pub(super) fn new(policy: &Policy, inventory: &Inventory, target: HostDevice<'_>, split: &Split) -> Result<Self> {
        Ok(match (split.strategy, &split.parts) {
            (_, Parts::Turns(settings)) => Method::Turns(Turns::new(policy, inventory, target, split, *settings)?),
            (Strategy::TimeSlicing, _) => Method::TimeSlicing(TimeSlicing::new(policy, target, split)?),
            (Strategy::Mps, _) => Method::Mps(Mps::new(policy, inventory, target, split)?),
            (Strategy::Turns | Strategy::Dedicated, _) => Method::Dedicated(Dedicated {}),
        })
    }

    /// The strategy behind it.
    pub fn strategy(&self) -> Strategy {
        match self {
            Method::TimeSlicing(_) => Strategy::TimeSlicing,
            Method::Mps(_) => Strategy::Mps,
            Method::Turns(_) => Strategy::Turns,
            Method::Dedicated(_) => Strategy::Dedicated,
        }
    }

    pub(super) fn rules(&self) -> &dyn Rules {
        match self {
            Method::TimeSlicing(rules) => rules,
            Method::Mps(rules) => rules,
            Method::Turns(rules) => rules,
            Method::Dedicated(rules) => rules,
        }
    }

    /// Whether the device stays whole.
    pub fn is_whole(&self) -> bool {
        self.rules().stays_whole()
    }

    /// Whether a container that holds a share must not have the driver's program `name`.
    pub fn withholds(&self, name: &str) -> bool {
        self.rules().withholds(name)
    }

    /// Whether the broker starts and sets what a share needs ([`SplitDevice::needs`]). Otherwise the operator does.
    pub fn is_managed(&self) -> bool {
        self.rules().is_managed()
    }
}

/// What a strategy defines. No method has a default, so that a new strategy has to answer each.
pub(super) trait Rules {
    /// Whether the device stays whole: it has no shares with names of their own, and is always claimed as a whole.
    fn stays_whole(&self) -> bool;

    /// The most shares that a device can have; `None`: any number.
    fn most_shares(&self, inventory: &Inventory) -> Option<MostShares>;

    /// The memory and the compute of each of `parts` equal shares; `None` where a share has no limit.
    ///
    /// # Errors
    /// Returns an error if the device is too small or of unknown size.
    fn equal_part(&self, device: HostDevice<'_>, split: &Split, policy: &Policy, parts: u32) -> Result<Size>;

    /// How much of the device the ledger records for a share.
    fn promise(&self, device: &SplitDevice, share: &Share) -> Promise;

    /// What a share is worth in one dimension. `limited`: whether it has a limit there.
    fn guarantee(&self, dimension: Dimension, limited: bool) -> GuaranteeRule;

    /// How well a guarantee of `grade` holds against a container whose user is root on the host.
    fn against_root(&self, grade: Grade) -> Grade;

    /// Mechanisms that would do better and are not in use, each with the reason or with what it needs.
    fn not_used(&self, on_mig: bool) -> Vec<&'static str>;

    /// What a container with `promise` of the device gets.
    ///
    /// # Errors
    /// Returns an error if something about the device is unknown that a limit needs.
    fn in_container(
        &self,
        device: &SplitDevice,
        promise: Promise,
        priority: Priority,
        state_dir: &HostPath,
    ) -> Result<InContainer>;

    /// What must be running or set before a share is worth what the plan says.
    fn needs(&self, device: &SplitDevice, state_dir: &HostPath) -> Vec<Need>;

    /// Whether the broker starts and sets what a share needs, so that the operator has nothing to do.
    fn is_managed(&self) -> bool;

    /// Whether a container that holds a share must not have the driver's program `name`.
    fn withholds(&self, name: &str) -> bool;
}

/// Memory and compute of one share; `None` where it has no limit.
type Size = (Option<MemorySize>, Option<Percent>);

/// A bound on the number of shares.
pub(super) struct MostShares {
    pub(super) shares: usize,
    /// What sets this bound, for a message.
    pub(super) why: &'static str,
}

/// What a share is worth in one dimension.
pub(super) struct GuaranteeRule {
    pub(super) grade: Grade,
    /// By which mechanism, and where it ends.
    pub(super) by: &'static str,
    /// Where that is documented.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the reader; a test requires one of each rule")
    )]
    pub(super) source: &'static str,
}

/// What a container with a share gets in addition to the nodes of the device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InContainer {
    /// Environment variables.
    pub environment: Vec<(&'static str, String)>,
    /// Directories of the host that the container has.
    pub directories: Vec<DirectoryInContainer>,
    /// The pipe directory of the MPS daemon that must be running when the container starts. A process talks to one
    /// daemon, so a container with a daemon can have no other share and no other device.
    pub daemon: Option<HostPath>,
}

/// A directory of the host that a container has, and cannot write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryInContainer {
    /// Its path in the container.
    pub path: ContainerPath,
    /// Its path on the host.
    pub host: HostPath,
}

/// The variables that a share with this promise sets in its container.
pub fn limits_set_by(promise: Promise) -> &'static [&'static str] {
    match promise {
        Promise::Mps { .. } => &mps::SET,
        Promise::Slices { .. } | Promise::Turns { .. } | Promise::Whole => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::TurnSettings;

    fn methods() -> Vec<Method> {
        let mps = |exclusive_process, memory| {
            Method::Mps(Mps {
                daemon: Default::default(),
                users: Default::default(),
                exclusive_process,
                blocked: Default::default(),
                driver: None,
                memory,
                grace: 30,
            })
        };
        let by_mps = MemoryLimitBy::default();
        let slices = Method::TimeSlicing(TimeSlicing {
            interval: Default::default(),
        });
        let settings = TurnSettings {
            holders: 4,
            turn: TurnSettings::TURN,
            idle: TurnSettings::IDLE,
            host_memory: MemorySize::from_mib(65536),
            assume_tested: false,
        };
        vec![
            slices,
            Method::Turns(Turns { settings }),
            mps(true, by_mps),
            mps(false, by_mps),
            mps(true, MemoryLimitBy::Cgroup),
            mps(false, MemoryLimitBy::Cgroup),
            Method::Dedicated(Dedicated {}),
        ]
    }

    #[test]
    fn every_rule_has_a_reason_and_a_source() {
        for method in methods() {
            for dimension in Dimension::ALL.iter().copied() {
                for limited in [true, false] {
                    let rule = method.rules().guarantee(dimension, limited);
                    assert!(
                        !rule.by.is_empty() && !rule.source.is_empty(),
                        "{method:?} {dimension:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn between_shares_only_the_cgroups_memory_is_hard_and_not_measured() {
        let has_neighbours = |method: &&Method| !method.is_whole() && method.strategy() != Strategy::Turns;
        for method in methods().iter().filter(has_neighbours) {
            for dimension in Dimension::ALL.iter().copied() {
                let rule = method.rules().guarantee(dimension, true);
                let by_cgroup = matches!(method, Method::Mps(mps) if mps.memory == MemoryLimitBy::Cgroup);
                let is_hard = by_cgroup && dimension == Dimension::Memory;
                assert_eq!(rule.grade == Grade::Hard, is_hard, "{method:?} {dimension:?}");
                assert_eq!(rule.by.contains("not measured here"), is_hard, "{}", rule.by);
            }
            let without = method.rules().guarantee(Dimension::Memory, false).grade;
            assert_eq!(without, Grade::None, "no limit: {method:?}");
        }
    }

    #[test]
    fn a_method_is_the_same_after_json() {
        for method in methods() {
            let json = serde_json::to_value(method).unwrap();
            assert_eq!(json["strategy"], method.strategy().to_string());
            assert_eq!(serde_json::from_value::<Method>(json.clone()).unwrap(), method);
            let mut more = json;
            more["later"] = true.into();
            assert!(serde_json::from_value::<Method>(more).is_err(), "{method:?}");
        }
    }
}
