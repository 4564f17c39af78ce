//! `mig apply` and `mig restore`, whole: the change, the specifications, and what doctor is to forget. A client that is
//! killed leaves nothing of it undone.

use super::host::MigHost;
use super::journal::Record;
use super::policy::check_policy;
use super::saved::{SavedGpu, SavedLayouts};
use super::{MigOrder, gpus, holders, reserved};
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::broker::ErrorFields;
use tranche_core::error::{Error, Kind, Result, line};
use tranche_core::types::{GpuUuid, MigUuid};
use tranche_plan::host_file::HostFile;
use tranche_plan::inventory::{Gpu, Inventory};
use tranche_plan::mig::{ExactGpu, Layout, MigGpu, plan};
use tranche_protocol::{MigAnswer, MigRequest, MigRestoreAnswer};
use tranche_state::planning;
use tranche_state::renew;
use tranche_state::restore_failures::{FailedRestore, RestoreFailures};

/// Applies the layouts of `request`, and puts back first what a killed process left half changed. Without layouts, that
/// is all.
///
/// # Errors
/// Returns what stands in the way: nothing has changed then. Or that the specifications could not be brought up to
/// date.
pub fn apply(host: &MigHost<'_>, request: &MigRequest) -> Result<MigAnswer> {
    let before = HostFile::load(host.state_dir).ok();
    let mut notes = Vec::new();
    let changed = host.with_tools(request.may_reset, |tools, nvml| {
        let layouts: Result<Vec<Layout>> = request.layouts.iter().map(|layout| layout.parse()).collect();
        let layouts = layouts?;
        let gpus = gpus(nvml)?;
        check_seen(&request.seen, &gpus)?;
        check_policy(
            &layouts,
            &planning::policy_in_force(host.policy, host.state_dir)?,
            &gpus,
            request.check,
        )?;
        let mut holders = holders(&gpus, tools.claims)?;
        holders.extend(reserved(&gpus, host.state_dir)?);
        let order = MigOrder {
            target: plan(&layouts, &gpus, &holders)?,
            may_change_mode: request.may_change_mode,
            may_reset: request.may_reset,
            services: request.services.clone(),
            record: Record::Layout,
        };
        tools.apply_then(&order, || {
            notes = refresh(host, before.as_ref())?;
            Ok(())
        })
    })?;
    if !request.layouts.is_empty() {
        if changed.is_empty() {
            notes = refresh(host, before.as_ref())?;
        }
        // What the boot could not make counts no more.
        let gpus: Vec<GpuUuid> = changed.iter().map(|gpu| gpu.uuid.clone()).collect();
        RestoreFailures::forget(host.state_dir, &gpus)?;
    }
    Ok(MigAnswer {
        changed: changed.iter().map(|gpu| gpu.uuid.to_string()).collect(),
        notes,
        refreshed: true,
    })
}

/// Makes the layouts of the policy, and for other GPUs those that tranche has made: no instance survives a boot. What
/// cannot be made is kept for doctor.
///
/// # Errors
/// Returns an error if no GPU could be looked at. It is kept for doctor, too.
pub fn restore(host: &MigHost<'_>) -> Result<MigRestoreAnswer> {
    let mut failures = Vec::new();
    let restored = restore_each(host, &mut failures);
    if let Err(error) = &restored
        && failures.is_empty()
        && error.kind() != Kind::Nothing
    {
        failures.push(FailedRestore {
            gpu: None,
            reason: line(error),
        });
    }
    let kept = RestoreFailures::new(failures).write(host.state_dir);
    match (restored, kept) {
        (Err(error), Err(other)) => Err(error.and_hint(line(&other))),
        (restored, kept) => restored.and_then(|answer| kept.map(|()| answer)),
    }
}

/// Makes the layouts, and adds to `failures` those that cannot be made.
fn restore_each(host: &MigHost<'_>, failures: &mut Vec<FailedRestore>) -> Result<MigRestoreAnswer> {
    let saved = SavedLayouts::read(host.state_dir)?;
    let layouts = planning::policy_in_force(host.policy, host.state_dir)?.mig_layouts;
    let mut answer = MigRestoreAnswer::default();
    if saved.gpus.is_empty() && layouts.is_empty() {
        return Ok(answer);
    }
    let before = HostFile::load(host.state_dir).ok();
    host.with_tools(false, |tools, nvml| {
        let gpus = gpus(nvml)?;
        if gpus.is_empty() {
            return Err(Error::new(Kind::Nothing, "host", "has no GPU with MIG"));
        }
        // One GPU after the other: one that fails keeps no other from its layout.
        for gpu in &gpus {
            let target = restored(gpu, Layout::of(gpu, &layouts), saved.of(&gpu.uuid));
            let made = target.and_then(|target| {
                tools.apply(&MigOrder {
                    target: target.into_iter().collect(),
                    may_change_mode: true,
                    record: Record::Layout,
                    ..MigOrder::default()
                })
            });
            match made {
                Ok(changed) if changed.is_empty() => {}
                Ok(_) => answer.changed.push(gpu.index.0),
                Err(error) => {
                    failures.push(FailedRestore {
                        gpu: Some(gpu.uuid.clone()),
                        reason: line(&error),
                    });
                    answer.failed.push(ErrorFields::from(&error));
                }
            }
        }
        Ok(())
    })?;
    // Also after a failure: a GPU that could not be put back has other instances than before.
    if !answer.changed.is_empty() || !answer.failed.is_empty() {
        match refresh(host, before.as_ref()) {
            Ok(notes) => answer.notes = notes,
            Err(error) => answer.failed.push(ErrorFields::from(&error)),
        }
    }
    Ok(answer)
}

/// What a GPU is to have at boot: what the policy says, at the places where it was; without a policy for it, what was
/// saved. `None` if neither says anything.
fn restored(now: &MigGpu, layout: Option<&Layout>, saved: Option<&SavedGpu>) -> Result<Option<ExactGpu>> {
    let Some(layout) = layout else {
        return Ok(saved.map(|saved| saved.layout.clone()));
    };
    let mut had = now.clone();
    if let Some(saved) = saved {
        had.mode.current = saved.layout.mode;
        had.instances.clone_from(&saved.instances);
    }
    let target = plan(std::slice::from_ref(layout), std::slice::from_ref(&had), &[])?;
    Ok(target.into_iter().next())
}

/// Refuses a request if a GPU has something else than the person has seen who agreed to the plan.
fn check_seen(seen: &[String], gpus: &[MigGpu]) -> Result<()> {
    let has: BTreeSet<String> = gpus.iter().map(|gpu| ExactGpu::of(gpu).layout().to_string()).collect();
    match seen.iter().find(|seen| !has.contains(*seen)) {
        None => Ok(()),
        Some(_) => Err(
            Error::failed("MIG", "the instances have changed since the plan was made")
                .hint("look at the plan again: tranche mig plan"),
        ),
    }
}

/// Brings the specifications and host.json up to date. Returns which names mean another device than in `before`.
fn refresh(host: &MigHost<'_>, before: Option<&HostFile>) -> Result<Vec<String>> {
    renew::after_change(host.state_dir, host.refresh).map_err(|error| {
        let what = "the instances were changed, and the specifications could not be brought up to date";
        Error::failed("MIG", what)
            .from_source(error)
            .hint("tranche cdi refresh does it")
    })?;
    host.facts.now()?;
    let after = HostFile::load(host.state_dir).ok();
    let both = before.zip(after.as_ref());
    Ok(both.map_or_else(Vec::new, |(before, after)| renamed(&before.inventory, &after.inventory)))
}

/// A line for each name of a MIG device that means another one now, or none.
fn renamed(before: &Inventory, after: &Inventory) -> Vec<String> {
    let names = |inventory: &Inventory| -> BTreeMap<String, Option<MigUuid>> {
        let of = |gpu: &Gpu| {
            let named = gpu.mig_devices.iter();
            named
                .map(|mig| (format!("{}:{}", gpu.index, mig.index), mig.uuid.clone()))
                .collect::<Vec<_>>()
        };
        inventory.gpus.iter().flat_map(of).collect()
    };
    let after = names(after);
    let line = |(name, was): (String, Option<MigUuid>)| match after.get(&name) {
        None => Some(format!("nvidia.com/gpu={name} is no device any more")),
        Some(is) if *is != was => Some(format!("nvidia.com/gpu={name} is another device now")),
        Some(_) => None,
    };
    names(before).into_iter().filter_map(line).collect()
}
