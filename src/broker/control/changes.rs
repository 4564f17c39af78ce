//! What was changed on a device, or is about to be: the content of its journal.
//!
//! A journal may be read by a later version of tranche, so fields that are missing have a default, and unknown ones are
//! skipped.

use super::cgroup_limit::CgroupLimit;
use super::goal::Limits;
use serde::{Deserialize, Serialize};
use tranche_core::types::Interval;
use tranche_plan::inventory::ComputeMode;
use tranche_state::controlled::{DaemonState, LostClients};

/// What was changed on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct DeviceChanges {
    /// The compute mode.
    pub(super) mode: ModeChange,
    /// The MPS daemon, from the moment before it is started.
    pub(super) daemon: Option<DaemonRecord>,
    /// The length of a turn.
    pub(super) time_slice: Option<SliceChange>,
    /// The limits of memory of containers' cgroups.
    pub(super) cgroups: Vec<CgroupLimit>,
    /// Whether shares of it could be used once. Before, nothing keeps the device from being put back at once.
    pub(super) is_ready: bool,
    /// Whether a person started the daemon, which then stays although nothing is claimed.
    pub(super) is_kept: bool,
    /// Since when nothing is claimed, in seconds since 1970.
    pub(super) idle_since: Option<u64>,
    /// What a person should know, one line each.
    pub(super) remarks: Vec<String>,
}

/// What was done about the compute mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ModeChange {
    /// It was not looked at yet, or it was put back.
    #[default]
    Unknown,
    /// It is not changed.
    Kept,
    /// It is about to be changed, and was this before.
    Changing(ComputeMode),
    /// It was changed, and was this before.
    Changed(ComputeMode),
}

/// A process, so that no later one with its number is taken for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessRecord {
    /// Its number in the pid namespace of the broker.
    pub(super) pid: u32,
    /// When it was started, as [`tranche_core::ledger::InitProcess::start`].
    pub(super) start: u64,
}

/// An MPS daemon that was started, or is about to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct DaemonRecord {
    /// The process; `None` if it was not seen yet.
    pub(super) process: Option<ProcessRecord>,
    /// When it was started, in seconds since 1970.
    pub(super) since: Option<u64>,
    /// Whether it was started for the processes of all users.
    pub(super) many_users: bool,
    /// Whether it served clients since that start.
    pub(super) is_ready: bool,
    /// The limits that it has; `None` if they are unknown.
    pub(super) limits: Option<Limits>,
    /// How often it was started again.
    pub(super) restarts: u32,
    /// How many daemons failed one after another.
    pub(super) failures: u32,
    /// It is not started again before this time, in seconds since 1970.
    pub(super) not_before: u64,
    /// Why it failed last.
    pub(super) why: Option<String>,
    /// Whose processes lost it when it ended.
    pub(super) lost: Vec<LostClients>,
    /// How often in a row it did not answer.
    #[serde(skip)]
    pub(super) misses: u32,
    /// Since when it did not answer, in seconds since 1970; `None` while it does.
    #[serde(skip)]
    pub(super) silent_since: Option<u64>,
    /// Its state for people, if that does not follow from the rest.
    #[serde(skip)]
    pub(super) state: Option<DaemonState>,
}

/// As many containers as a record of lost clients has.
const MOST_LOST: usize = 100;

impl DaemonRecord {
    /// Records that the processes of these containers lost the daemon.
    pub(super) fn lose(&mut self, containers: &[String], at: u64) {
        self.lost.retain(|lost| !containers.contains(&lost.container));
        self.lost.extend(containers.iter().map(|container| LostClients {
            container: container.clone(),
            at,
        }));
        let surplus = self.lost.len().saturating_sub(MOST_LOST);
        self.lost.drain(..surplus);
    }
}

/// A change of the length of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SliceChange {
    /// What it was.
    pub(super) before: Interval,
    /// What it is set to.
    pub(super) set: Interval,
    /// Whether it was set.
    pub(super) is_done: bool,
}
