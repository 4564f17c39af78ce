//! GPUs whose instances of MIG are made for resource claims: what the driver for dynamic resource allocation gets of
//! them.

use super::dra::{DraPart, dra_engines, dra_gpu, gpu_name, label};
use super::{KubernetesPlan, Plan};
use crate::inventory::{Gpu, HostDevice};
use crate::mig::{MigGpu, Placement, PossibleInstance, instance_counters, possible_instances};
use crate::policy::{Door, Parts, Policy, Priority, Resource};
use crate::share::Grade;
use tranche_core::error::{Error, Result};
use tranche_core::types::{DeviceKey, HeldPart, MigProfile, Promise};
use tranche_protocol::{AllocatedDevice, DraDivided, DraInstance, DraKind};

/// An instance that a claim can have, with the name of the device that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimableInstance<'g> {
    /// The name: `gpu-0-mig-1g-10gb-19-at-4`. A device that exists has none that ends so.
    pub device: String,
    /// The instance.
    pub instance: PossibleInstance<'g>,
}

/// Whether `device` can be the name of a [`ClaimableInstance`].
pub fn is_claimable_name(device: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    device.split_once("-mig-").is_some_and(|(_, rest)| {
        let start = rest.rsplit_once("-at-");
        start.is_some_and(|(profile, start)| {
            is_number(start) && profile.rsplit_once('-').is_some_and(|(_, number)| is_number(number))
        })
    })
}

/// The instances that claims can have of `gpu`, which the driver reports as `mig`, in the order in which they are to be
/// given away. Those of a profile that the policy divides further are left out.
pub fn claimable_instances<'g>(policy: &Policy, gpu: &Gpu, mig: &'g MigGpu) -> Vec<ClaimableInstance<'g>> {
    let whole = HostDevice { gpu, mig: None };
    let all = possible_instances(mig).into_iter();
    all.filter(|one| !is_divided(policy, &one.profile.name))
        .map(|instance| ClaimableInstance {
            device: name(whole, instance.profile.id.0, &instance.profile.name, instance.placement),
            instance,
        })
        .collect()
}

/// Two profiles may differ in what a DNS label cannot have (`+me`, `-me`), so the driver's number is in the name.
fn name(gpu: HostDevice<'_>, number: u32, profile: &MigProfile, place: Placement) -> String {
    let profile = label(&profile.to_string());
    DraKind::mig_name(&gpu_name(gpu), &format!("{profile}-{number}-at-{}", place.start))
}

fn is_divided(policy: &Policy, profile: &MigProfile) -> bool {
    policy.splits.iter().any(|split| {
        let is_meant = match &split.resource {
            Resource::Gpu => false,
            Resource::Mig(meant) => meant == profile,
            Resource::Every => true,
        };
        is_meant && !matches!(split.parts, Parts::Whole)
    })
}

/// What the driver gets of such a GPU. Who holds something of it is left open.
pub fn dra_divided(gpu: &Gpu, mig: &MigGpu, instances: &[ClaimableInstance<'_>]) -> DraDivided {
    let of_one = |one: &ClaimableInstance<'_>| DraInstance {
        name: one.device.clone(),
        profile: one.instance.profile.name.to_string(),
        memory: one.instance.profile.memory,
        multiprocessors: one.instance.profile.sms,
        engines: Some(dra_engines(one.instance.profile.engines)),
        consumes: one.instance.consumes.clone(),
        held_by: None,
    };
    DraDivided {
        gpu: dra_gpu(HostDevice { gpu, mig: None }),
        counters: instance_counters(mig),
        instances: instances.iter().map(of_one).collect(),
        guarantee: Grade::Hard.to_string(),
        unhealthy: None,
        out_of_service: None,
    }
}

/// What a claim gets for an instance that exists as the device `key`.
///
/// # Errors
/// Returns an error if the policy does not give the device to one holder at a time.
pub fn dra_instance<'a>(plan: &'a Plan, allocated: &AllocatedDevice, key: &DeviceKey) -> Result<DraPart<'a>> {
    let split = plan
        .devices
        .iter()
        .find(|split| split.key == *key && split.method.is_whole());
    let split = split.ok_or_else(|| {
        let what = "is divided by the policy of this node, or is not given to claims";
        Error::failed(format!("device {}", allocated.device), what)
            .hint("the policy or the host has changed; delete the pod, so that it gets another device")
    })?;
    Ok(DraPart::of(split, HeldPart::Whole, Promise::Whole, Priority::default()))
}

impl KubernetesPlan {
    /// Whether claims get the instances of MIG that are made on `gpu`.
    pub fn gives_instances_of(&self, gpu: &Gpu) -> bool {
        self.door(HostDevice { gpu, mig: None }.device()) == Door::Dra
    }
}
