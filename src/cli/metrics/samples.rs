//! The state of the shares as samples.

use std::collections::BTreeMap;
use std::path::Path;
use tranche_core::error::Result;
use tranche_core::types::{DeviceKey, Strategy};
use tranche_inspect::observed::Observed;
use tranche_plan::inventory::ComputeMode;
use tranche_state::held::{Held, HeldContainer};
use tranche_state::metrics::{
    Exposition, bytes, catalogue as family, count, of_daemon, of_devices, of_turns, ratio, truth,
};
use tranche_state::public_status::PublicTurns;
use tranche_state::turns::TurnRecord;

/// The samples of `observed`. Without `with_containers`, the labels with names and ids of containers and of claims are
/// empty, because the reader of metrics need not be root.
pub(super) fn of(observed: &Observed, with_containers: bool) -> Exposition {
    let mut out = Exposition::default();
    out.add(family::BUILD, &[tranche_core::types::PROGRAM_VERSION], 1.0);
    out.add(family::PROBLEMS, &[], count(observed.problems().count()));
    out.add(family::HOST_FILE, &[], truth(observed.host_file.current));
    let mut kinds: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for one in &observed.deviations {
        let device = one.device.as_deref().unwrap_or_default();
        *kinds.entry((device, one.kind.as_str())).or_default() += 1;
    }
    for ((device, kind), number) in kinds {
        out.add(family::DEVIATIONS, &[device, kind], count(number));
    }
    devices(&mut out, observed);
    for held in &observed.claims {
        // A share of an earlier policy may have the name of one of now.
        let mut others = observed.claims.iter().filter(|other| !std::ptr::eq(*other, held));
        let is_same = others.any(|other| (&other.device, &other.shares) == (&held.device, &held.shares));
        let shares = match (held.whole, is_same) {
            (true, _) => "whole".to_owned(),
            (false, false) => held.shares.join(","),
            (false, true) => held.sized.join(","),
        };
        claim(&mut out, held, &shares, with_containers);
    }
    if observed.sees_ledger {
        let waited = observed
            .waiters
            .iter()
            .map(|waiter| observed.now.saturating_sub(waiter.since));
        out.add(family::WAITERS, &[], count(observed.waiters.len()));
        out.add(family::LONGEST, &[], waited.max().unwrap_or(0) as f64);
    }
    for daemon in &observed.daemons {
        of_daemon(&mut out, &daemon.device, daemon.state, daemon.restarts);
    }
    out
}

fn devices(out: &mut Exposition, observed: &Observed) {
    of_devices(out, &observed.devices);
    for outage in &observed.out_of_service {
        let label = [outage.device.as_str(), outage.reason.as_deref().unwrap_or_default()];
        out.add(family::OUT, &label, truth(outage.in_force));
    }
    for gpu in observed.gpus.iter().flatten() {
        let label = [gpu.device.as_str()];
        out.add_some(family::MEMORY, &label, gpu.memory_mib.map(bytes));
        out.add_some(family::MEMORY_USED, &label, gpu.memory_used_mib.map(bytes));
        out.add_some(family::BUSY, &label, gpu.busy_percent.map(ratio));
        out.add_some(family::MEMORY_BUSY, &label, gpu.memory_busy_percent.map(ratio));
        out.add_some(family::PROCESSES, &label, gpu.processes.map(count));
        let exclusive = gpu.compute_mode.map(|mode| truth(mode != ComputeMode::Default));
        out.add_some(family::EXCLUSIVE, &label, exclusive);
    }
}

/// The samples of a claim on `shares`: no two claims hold the same part of one device. The names under which engines
/// asked for it can be the same.
fn claim(out: &mut Exposition, held: &Held, shares: &str, with_containers: bool) {
    let label = [held.device.as_str(), shares];
    let container = held.container.as_ref().filter(|_| with_containers);
    let name = held.name.as_deref().filter(|_| with_containers);
    let (device, strategy) = (held.device.as_str(), held.strategy.to_string());
    let labels = [
        device,
        shares,
        &strategy,
        name.unwrap_or_default(),
        &container.map(HeldContainer::own_id).unwrap_or_default(),
        container
            .and_then(|container| container.name.as_deref())
            .unwrap_or_default(),
    ];
    out.add(family::CLAIM, &labels, truth(held.is_in_use()));
    out.add(family::CLAIM_SINCE, &label, held.since as f64);
    out.add_some(family::CLAIM_MEMORY, &label, held.memory_mib.map(bytes));
    out.add_some(family::CLAIM_COMPUTE, &label, held.compute_percent.map(ratio));
    if let Some(usage) = &held.usage {
        out.add_some(family::CLAIM_USED, &label, usage.memory_mib.map(bytes));
        out.add_some(family::CLAIM_BUSY, &label, usage.busy_percent.map(ratio));
        out.add(family::CLAIM_PROCESSES, &label, count(usage.processes));
    }
}

/// The samples of devices that are held by turns, as the broker has recorded them. Others than root cannot read that.
///
/// # Errors
/// Returns an error if a record cannot be used.
pub(super) fn of_each_by_turns(out: &mut Exposition, observed: &Observed, state_dir: &Path) -> Result<()> {
    let by_turns = observed.claims.iter().filter(|held| held.strategy == Strategy::Turns);
    let devices: BTreeMap<&DeviceKey, &str> = by_turns.map(|held| (&held.key, held.device.as_str())).collect();
    for (key, device) in devices.into_iter().filter(|_| observed.sees_ledger) {
        of_turns(out, device, &PublicTurns::of(&TurnRecord::read(state_dir, key)?));
    }
    Ok(())
}
