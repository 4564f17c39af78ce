//! Instances of MIG that are made when somebody asks for one, and destroyed when nobody uses them any more.

use super::commands::Commands;
use super::mig::with_tools;
use crate::control::nvml::Nvml;
use crate::mig::{MigOrder, MigTools, OnDemandInstance, OnDemandInstances, Record, gpus, holders};
use tranche_core::broker::MigMakeAnswer;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result, line};
use tranche_core::ledger::OutOfService;
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

/// An instance of `profile` that nobody uses: one that exists, or a new one.
///
/// # Errors
/// Returns an error if the policy allows none, or if no GPU has room for it.
pub(super) fn make(commands: &Commands<'_>, profile: &MigProfile) -> Result<MigMakeAnswer> {
    let _one = lock(&commands.mig);
    let policy = planning::policy_or_none(&commands.options.policy)?;
    let made = with_tools(commands, false, |tools, nvml| {
        let gpus = candidates(commands, &policy, profile, nvml)?;
        let made = match unused(&gpus, profile, tools)? {
            Some(unused) => unused,
            None => match create(&gpus, profile, tools)? {
                Some(made) => made,
                None => {
                    destroy_unused(tools, nvml)?;
                    let gpus = candidates(commands, &policy, profile, nvml)?;
                    create(&gpus, profile, tools)?.ok_or_else(|| no_room(&gpus, profile))?
                }
            },
        };
        // Before anybody can see it: a user's `any` would take it.
        tools.claims.hold_made(&made.device, "somebody")?;
        Ok(made)
    })?;
    renew::specifications(commands.state_dir(), &commands.options.refresh)?;
    Ok(MigMakeAnswer {
        device: DeviceSelector::MigUuid(made.uuid),
    })
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
    let now = apply(tools, target, Record::OnDemand(placement))?;
    let made = now
        .iter()
        .flat_map(|gpu| gpu.instances.iter().map(move |one| (gpu, one)));
    let mut made = made.filter(|(_, one)| one.placement == placement);
    made.find_map(|(gpu, one)| OnDemandInstance::of(gpu, one))
        .ok_or_else(|| Error::failed(&profile.name, "was made, and the driver does not say its UUID"))
}

fn apply(tools: &MigTools<'_>, target: ExactGpu, record: Record) -> Result<Vec<MigGpu>> {
    tools.apply(&MigOrder {
        target: vec![target],
        record,
        ..MigOrder::default()
    })
}

/// Destroys the instances that were made on demand and that nobody uses any more.
///
/// # Errors
/// Returns an error if the ledger or the driver does not answer.
pub(super) fn destroy_idle(commands: &Commands<'_>) -> Result<()> {
    let all = OnDemandInstances::read(commands.state_dir())?;
    if all.made.is_empty() {
        return Ok(());
    }
    // The driver is asked only if the ledger has no claim on one of them.
    let books = Claims::open(commands.state_dir())?.books()?;
    let is_claimed = |one: &OnDemandInstance| books.claims().any(|claim| claim.device.overlaps(&one.device));
    if all.made.iter().all(is_claimed) {
        return Ok(());
    }
    let _one = lock(&commands.mig);
    match with_tools(commands, false, destroy_unused)? {
        true => renew::specifications(commands.state_dir(), &commands.options.refresh),
        false => Ok(()),
    }
}

/// Destroys them. Returns whether there was one.
pub(super) fn destroy_unused(tools: &MigTools<'_>, nvml: &Nvml) -> Result<bool> {
    let mut is_less = false;
    for made in OnDemandInstances::read(tools.state_dir)?.made {
        // Each time anew: the one before was perhaps on the same GPU.
        let gpus = gpus(nvml)?;
        let has = |one: &GpuInstance| {
            one.compute
                .iter()
                .any(|compute| compute.uuid.as_ref() == Some(&made.uuid))
        };
        let found = gpus
            .iter()
            .find_map(|gpu| Some((gpu, gpu.instances.iter().find(|one| has(one))?)));
        if let Some((gpu, instance)) = found {
            if is_used(&holders(&gpus, tools.claims)?, gpu, instance) {
                continue;
            }
            let mut target = ExactGpu::of(gpu);
            target.instances.retain(|one| one.placement != instance.placement);
            if let Err(error) = apply(tools, target, Record::Nothing) {
                // It was put back, and what is recorded has followed it.
                tracing::warn!("{}", line(&error));
                continue;
            }
        }
        // Otherwise it was destroyed by hand.
        OnDemandInstances::forget(tools.state_dir, &made.uuid)?;
        is_less = true;
    }
    Ok(is_less)
}
