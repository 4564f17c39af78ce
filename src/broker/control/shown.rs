//! The state of changed devices for everybody who asks: a copy, so that nobody waits for a change that is under way.

use super::cgroup_limit::CgroupLimit;
use super::changes::{DaemonRecord, DeviceChanges, ModeChange};
use super::target::ControlTarget;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use tranche_core::types::{DeviceKey, MemorySize};
use tranche_state::controlled::{CgroupMemory, ControlledDevice, DaemonState, DaemonStatus};
use tranche_state::mutex::lock;

/// The devices that are changed now.
#[derive(Debug, Default)]
pub(super) struct Shown(Mutex<BTreeMap<DeviceKey, ControlledDevice>>);

impl Shown {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<DeviceKey, ControlledDevice>> {
        // Each change of the map is one insertion or one removal.
        lock(&self.0)
    }

    /// Shows a device as it is now; removes it if nothing of it is changed.
    pub(super) fn show(&self, target: &ControlTarget, changes: Option<&DeviceChanges>, problems: &[String]) {
        let mut devices = self.lock();
        match changes {
            Some(changes) => drop(devices.insert(target.key.clone(), controlled(target, changes, problems))),
            None => drop(devices.remove(&target.key)),
        }
    }

    /// The devices, in the order of their names.
    pub(super) fn devices(&self) -> Vec<ControlledDevice> {
        let mut devices: Vec<ControlledDevice> = self.lock().values().cloned().collect();
        devices.sort_by(|a, b| a.device.cmp(&b.device));
        devices
    }
}

fn controlled(target: &ControlTarget, changes: &DeviceChanges, problems: &[String]) -> ControlledDevice {
    let before = match changes.mode {
        ModeChange::Changing(before) | ModeChange::Changed(before) => Some(before),
        ModeChange::Unknown | ModeChange::Kept => None,
    };
    let failure = changes.daemon.as_ref().and_then(|daemon| daemon.why.clone());
    let lines = changes.remarks.iter().chain(problems).cloned().chain(failure);
    let mut problems: Vec<String> = Vec::new();
    for line in lines {
        if !problems.contains(&line) {
            problems.push(line);
        }
    }
    ControlledDevice {
        device: target.cdi_name.clone(),
        key: target.key.clone(),
        daemon: changes.daemon.as_ref().map(|record| daemon_status(record, target)),
        compute_mode_before: before.and_then(word),
        time_slice: changes.time_slice.as_ref().and_then(|change| word(change.set)),
        cgroup_limits: changes.cgroups.iter().map(cgroup_memory).collect(),
        idle_since: changes.idle_since,
        problems,
    }
}

fn cgroup_memory(limit: &CgroupLimit) -> CgroupMemory {
    CgroupMemory {
        holder: limit.holder.clone(),
        memory_mib: limit.memory.mib(),
        is_set: limit.is_set,
    }
}

fn daemon_status(record: &DaemonRecord, target: &ControlTarget) -> DaemonStatus {
    let limits = record.limits;
    DaemonStatus {
        state: record.state.unwrap_or(match record.is_ready {
            true => DaemonState::Running,
            false => DaemonState::Starting,
        }),
        pid: record.process.as_ref().map(|process| process.pid),
        since: record.since,
        restarts: record.restarts,
        is_of_earlier_version: target.directories().is_of_earlier_version(),
        memory_mib: limits.and_then(|limits| limits.memory).map(MemorySize::mib),
        compute_percent: limits.map(|limits| limits.compute.get()),
        lost: record.lost.clone(),
    }
}

/// The word by which a value is written.
fn word(value: impl Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}
