//! Instances of MIG that are made when somebody asks for one, and destroyed when nobody uses them any more.

use super::commands::Commands;
use super::mig::with_tools;
use crate::control::nvml::Nvml;
use crate::facts::Facts;
use crate::mig::{
    DevicesHeld, MigJournal, MigOrder, MigTools, OnDemandInstance, OnDemandInstances, Record, gpus, holders,
};
use std::collections::BTreeMap;
use std::sync::{Arc, TryLockError};
use tranche_core::broker::MigMakeAnswer;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result, line};
use tranche_core::ledger::{LedgerError, OutOfService};
use tranche_core::types::{DeviceKey, DeviceSelector, GpuUuid, MigProfile};
use tranche_plan::inventory::MigMode;
use tranche_plan::mig::{
    ExactCompute, ExactGpu, ExactInstance, GpuInstance, InstanceHolder, InstanceProfile, MigGpu, Placement, choose,
};
use tranche_plan::policy::Policy;
use tranche_plan::share::on_demand_gpus;
use tranche_state::mutex::lock;
use tranche_state::planning;
use tranche_state::renew;

/// How many instances may be taken by others before one is reserved.
const MOST_TAKEN: u32 = 8;

/// An instance of `profile` that nobody uses: one that exists, or a new one.
///
/// # Errors
/// Returns an error if the policy allows none, or if no GPU has room for it.
pub(super) fn make(commands: &Commands<'_>, profile: &MigProfile) -> Result<MigMakeAnswer> {
    let _one = lock(&commands.mig);
    let policy = planning::policy_in_force(&commands.options.policy, commands.state_dir())?;
    let made = with_tools(commands, false, |tools, nvml| {
        let mut tries = 0..MOST_TAKEN;
        loop {
            let made = unused_or_new(commands, &policy, profile, tools, nvml)?;
            // Before the specifications have it: a user's `any` would take it. Root's `any` asks the driver, and may
            // have seen it first.
            match tools.claims.hold_made(&made.device, "somebody") {
                Ok(()) => return Ok(made),
                Err(LedgerError::Refused(_)) if tries.next().is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
    })?;
    renew::specifications(commands.state_dir(), &commands.options.refresh)?;
    Ok(MigMakeAnswer {
        device: DeviceSelector::MigUuid(made.uuid),
    })
}

/// An instance that exists and that nobody uses, or a new one, for which unused ones of other profiles make room.
fn unused_or_new(
    commands: &Commands<'_>,
    policy: &Policy,
    profile: &MigProfile,
    tools: &MigTools<'_>,
    nvml: &Nvml,
) -> Result<OnDemandInstance> {
    let gpus = candidates(commands, policy, profile, nvml)?;
    if let Some(unused) = unused(&gpus, profile, tools)? {
        return Ok(unused);
    }
    if let Some(made) = create(&gpus, profile, tools)? {
        return Ok(made);
    }
    destroy_unused(commands, tools, nvml)?;
    let gpus = candidates(commands, policy, profile, nvml)?;
    create(&gpus, profile, tools)?.ok_or_else(|| no_room(&gpus, profile))
}

/// The GPUs on which the policy lets instances be made.
fn candidates(commands: &Commands<'_>, policy: &Policy, profile: &MigProfile, nvml: &Nvml) -> Result<Vec<MigGpu>> {
    if policy.mig_on_demand.is_none() {
        return Err(Error::failed(profile, "the policy lets no instance be made on demand")
            .hint("write mig: {onDemand: {devices: all}} into the policy"));
    }
    if profile.compute_slices.is_some() {
        return Err(Error::usage(
            profile,
            "is a part of an instance, and whole ones are made on demand",
        ));
    }
    let mut gpus = on_demand_now(commands, policy, nvml)?;
    let out = OutOfService::read(commands.state_dir());
    let mut why_none = None;
    gpus.retain(|gpu| {
        let why = out.why(&DeviceKey::whole(gpu.uuid.clone()));
        why_none = why
            .as_ref()
            .map(|why| format!("gpu {}: {why}", gpu.index))
            .or(why_none.take());
        why.is_none()
    });
    if let Some(why) = why_none.filter(|_| gpus.is_empty()) {
        return Err(Error::failed(profile, why));
    }
    match gpus.is_empty() {
        false => Ok(gpus),
        true => Err(Error::failed(
            profile,
            "no GPU on which the policy lets instances be made is in MIG mode",
        )
        .hint("put one into it: tranche mig apply --mode --layout GPU:empty")),
    }
}

/// The GPUs on which instances can be made on demand now, as they are.
///
/// # Errors
/// Returns an error if the host cannot be examined or the driver does not answer.
pub(super) fn on_demand_now(commands: &Commands<'_>, policy: &Policy, nvml: &Nvml) -> Result<Vec<MigGpu>> {
    let facts = commands.facts()?;
    let allowed: Vec<&GpuUuid> = on_demand_gpus(policy, &facts.inventory)
        .into_iter()
        .map(|gpu| &gpu.uuid)
        .collect();
    let mut gpus = gpus(nvml)?;
    gpus.retain(|gpu| allowed.contains(&&gpu.uuid) && can_be_made_on(gpu, policy));
    Ok(gpus)
}

/// Whether instances can be made on a GPU that the policy has for it: it is in MIG mode, and has no layout of its own.
pub(super) fn can_be_made_on(gpu: &MigGpu, policy: &Policy) -> bool {
    gpu.mode.current == MigMode::Enabled && !gpu.is_piece() && !policy.mig_layouts.iter().any(|one| one.names(gpu))
}

fn no_room(gpus: &[MigGpu], profile: &MigProfile) -> Error {
    let is_known = |gpu: &MigGpu| gpu.profiles.iter().any(|one| one.name.gpu_slices == profile.gpu_slices);
    let what = match gpus.iter().any(is_known) {
        true => "no GPU has room for one more",
        false => "no GPU has this profile",
    };
    Error::failed(profile, what)
        .hint("tranche mig status shows who uses what, tranche mig profiles what each GPU offers")
}

/// An instance that nobody uses and that was not made for anybody just now.
fn unused(gpus: &[MigGpu], profile: &MigProfile, tools: &MigTools<'_>) -> Result<Option<OnDemandInstance>> {
    let holders = holders(gpus, tools.claims)?;
    let is_it = |gpu: &MigGpu, one: &GpuInstance| gpu.profile(one.profile).is_some_and(|has| has.name == *profile);
    for gpu in gpus {
        for one in gpu.instances.iter().filter(|one| is_it(gpu, one)) {
            if one.compute.len() == 1
                && let Some(found) = OnDemandInstance::of(gpu, one)
                && !is_used(&holders, gpu, one)
            {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

fn is_used(holders: &[InstanceHolder], gpu: &MigGpu, instance: &GpuInstance) -> bool {
    holders
        .iter()
        .any(|holder| holder.gpu == gpu.uuid && holder.instance.is_none_or(|(id, _)| id == instance.id))
}

/// A new instance; `None` if there is no room for it.
fn create(gpus: &[MigGpu], profile: &MigProfile, tools: &MigTools<'_>) -> Result<Option<OnDemandInstance>> {
    let place = choose(gpus, profile);
    place
        .map(|place| create_at(place.gpu, place.profile, place.placement, tools))
        .transpose()
}

/// A new instance at this place of `gpu`, which is free.
///
/// # Errors
/// Returns what stands in the way, or that the driver does not say what it has made.
pub(super) fn create_at(
    gpu: &MigGpu,
    profile: &InstanceProfile,
    placement: Placement,
    tools: &MigTools<'_>,
) -> Result<OnDemandInstance> {
    let mut target = ExactGpu::of(gpu);
    target.instances.push(ExactInstance {
        profile: profile.id,
        name: profile.name.clone(),
        placement,
        compute: vec![ExactCompute {
            start: None,
            slices: profile.slices,
        }],
    });
    target.instances.sort_by_key(|one| one.placement);
    // It is recorded before the journal is removed: a broker that is killed forgets no instance.
    let now = tools.apply(&order(target, Record::OnDemand(placement)))?;
    let made = now
        .iter()
        .flat_map(|gpu| gpu.instances.iter().map(move |one| (gpu, one)));
    let mut made = made.filter(|(_, one)| one.placement == placement);
    made.find_map(|(gpu, one)| OnDemandInstance::of(gpu, one))
        .ok_or_else(|| Error::failed(&profile.name, "was made, and the driver does not say its UUID"))
}

fn order(target: ExactGpu, record: Record) -> MigOrder {
    MigOrder {
        target: vec![target],
        record,
        ..MigOrder::default()
    }
}

/// Destroys the instances that were made on demand and that nobody uses any more.
///
/// # Errors
/// Returns an error if the ledger or the driver does not answer.
pub(super) fn destroy_idle(commands: &Commands<'_>) -> Result<()> {
    let all = OnDemandInstances::read(commands.state_dir())?;
    let claims = Claims::open(commands.state_dir())?;
    let books = {
        let no_change = commands.mig.try_lock();
        let books = claims.books()?;
        let left = DevicesHeld::left(&books);
        match no_change.is_err() || left.is_empty() {
            true => books,
            false => {
                renew(commands)?;
                DevicesHeld::release_left(&claims, &left)?;
                claims.books()?
            }
        }
    };
    // The driver is asked only if the ledger has no claim on one of them.
    let is_claimed = |one: &OnDemandInstance| books.claims().any(|claim| claim.device.overlaps(&one.device));
    if all.made.iter().all(is_claimed) && !is_unfinished(commands)? {
        return Ok(());
    }
    let _one = lock(&commands.mig);
    with_tools(commands, false, |tools, nvml| destroy_unused(commands, tools, nvml))
}

/// Whether a change was begun that nobody makes now: what it has made could not be recorded on a full disk, and is not
/// among those that were made on demand.
fn is_unfinished(commands: &Commands<'_>) -> Result<bool> {
    match commands.mig.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(false),
        Ok(_) | Err(TryLockError::Poisoned(_)) => Ok(MigJournal::read(commands.state_dir())?.is_some()),
    }
}

/// Brings the specifications up to date, and what the broker knows of the host, which it returns.
pub(super) fn renew(commands: &Commands<'_>) -> Result<Arc<Facts>> {
    renew::after_change(commands.state_dir(), &commands.options.refresh)?;
    // Requests look at what is known of the host, under the ledger's lock.
    commands.host.now()
}

/// Destroys them, and brings the specifications up to date before anybody can claim what was destroyed: until then, the
/// broker knows it as a free device. Those of one GPU are destroyed together, because a refresh takes longer than that.
pub(super) fn destroy_unused(commands: &Commands<'_>, tools: &MigTools<'_>, nvml: &Nvml) -> Result<()> {
    let seen = gpus(nvml)?;
    let mut by_gpu: BTreeMap<Option<&GpuUuid>, Vec<OnDemandInstance>> = BTreeMap::new();
    for made in OnDemandInstances::read(tools.state_dir)?.made {
        let gpu = seen.iter().find(|gpu| instance_of(gpu, &made).is_some());
        by_gpu.entry(gpu.map(|gpu| &gpu.uuid)).or_default().push(made);
    }
    for (gpu, made) in by_gpu {
        let destroy = |made: &[OnDemandInstance]| destroy_of(commands, tools, nvml, gpu, made);
        let failed = match destroy(&made) {
            Ok(()) => continue,
            // One that cannot be destroyed keeps the others of its GPU from it, so each is tried alone. What was
            // destroyed and made again has another UUID.
            Err(_) if gpu.is_some() && made.len() > 1 => {
                let now = OnDemandInstances::read(tools.state_dir)?.made;
                now.chunks(1).filter_map(|one| destroy(one).err()).collect()
            }
            Err(error) => vec![error],
        };
        // It was put back, and what is recorded has followed it; or it is gone, which the next look sees.
        for error in failed {
            tracing::warn!("{}", line(&error));
        }
    }
    Ok(())
}

/// The instance of a GPU that was made so.
fn instance_of<'g>(gpu: &'g MigGpu, made: &OnDemandInstance) -> Option<&'g GpuInstance> {
    let has = |one: &&GpuInstance| {
        one.compute
            .iter()
            .any(|compute| compute.uuid.as_ref() == Some(&made.uuid))
    };
    gpu.instances.iter().find(has)
}

/// Destroys those that nobody uses of some that were made on one GPU; `None` if no GPU has them: they were destroyed by
/// hand, or by a broker that was killed before it had forgotten them.
fn destroy_of(
    commands: &Commands<'_>,
    tools: &MigTools<'_>,
    nvml: &Nvml,
    gpu: Option<&GpuUuid>,
    made: &[OnDemandInstance],
) -> Result<()> {
    let renewed = || renew(commands).map(drop);
    let forget = |made: &OnDemandInstance| OnDemandInstances::forget(tools.state_dir, &made.uuid);
    let Some(uuid) = gpu else {
        renewed()?;
        return made.iter().try_for_each(forget);
    };
    // Anew: a group before may have taken its time.
    let seen = gpus(nvml)?;
    let holders = holders(&seen, tools.claims)?;
    let Some(gpu) = seen.iter().find(|gpu| gpu.uuid == *uuid) else {
        return Ok(());
    };
    let there = made.iter().filter_map(|made| Some((made, instance_of(gpu, made)?)));
    let unused: Vec<_> = there.filter(|(_, one)| !is_used(&holders, gpu, one)).collect();
    if unused.is_empty() {
        return Ok(());
    }
    let mut target = ExactGpu::of(gpu);
    let is_unused = |placement: Placement| unused.iter().any(|(_, one)| one.placement == placement);
    target.instances.retain(|one| !is_unused(one.placement));
    tools.apply_then(&order(target, Record::Nothing), renewed)?;
    unused.into_iter().try_for_each(|(made, _)| forget(made))
}
