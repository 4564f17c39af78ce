//! The instances of MIG that a resource claim has: each is made at its place when the claim is prepared, and destroyed
//! after its last use, like any other that was made on demand.

use super::Commands;
use super::divided::is_at;
use crate::facts::Facts;
use crate::mig::{MigTools, holders};
use crate::serve::mig::with_tools;
use crate::serve::on_demand::{create_at, destroy_unused, on_demand_now, renew};
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};
use tranche_core::claims::{Claims, just_made_for};
use tranche_core::error::{Error, Result, line};
use tranche_core::ledger::{Claim, KubernetesObject};
use tranche_core::types::DeviceKey;
use tranche_plan::host_file::HostFileSeen;
use tranche_plan::inventory::Inventory;
use tranche_plan::mig::{GpuInstance, MigGpu, Placement, ProfileId, fits_beside};
use tranche_plan::policy::Policy;
use tranche_plan::share::{ClaimableInstance, claimable_instances, is_claimable_name};
use tranche_protocol::AllocatedDevice;
use tranche_state::mutex::lock;
use tranche_state::planning;

/// The instances of one claim. No layout changes while this exists, if there is an instance.
#[derive(Default)]
pub(super) struct ClaimInstances<'a> {
    /// Which device each is, by the name under which the scheduler has allocated it.
    pub(super) keys: BTreeMap<String, DeviceKey>,
    /// Those that were made for this call, and are reserved for it until the ledger has the claim.
    new: Vec<DeviceKey>,
    layout: Option<MutexGuard<'a, ()>>,
}

impl<'a> ClaimInstances<'a> {
    /// The names of instances among the devices that a claim owns.
    pub(super) fn wanted(devices: &[AllocatedDevice]) -> Vec<&str> {
        let owned = devices.iter().filter(|device| !device.admin);
        let names = owned.map(|device| device.device.as_str());
        names.filter(|name| is_claimable_name(name)).collect()
    }

    /// Makes the instances `wanted` that do not exist, for `claim`. Names that no GPU has are left out.
    ///
    /// # Errors
    /// Returns who leaves no room for one, or why the driver does not make it. What was made before it is destroyed.
    pub(super) fn make(commands: &'a Commands<'_>, claim: &KubernetesObject, wanted: &[&str]) -> Result<Self> {
        let mut made = Self::default();
        if wanted.is_empty() {
            return Ok(made);
        }
        made.layout = Some(lock(&commands.mig));
        match made.make_all(commands, &claim.uid, wanted) {
            Ok(()) => Ok(made),
            Err(error) => {
                made.give_back(commands);
                Err(error)
            }
        }
    }

    fn make_all(&mut self, commands: &Commands<'_>, whom: &str, wanted: &[&str]) -> Result<()> {
        let facts = commands.facts()?;
        let inventory = &facts.inventory;
        let policy = planning::policy_in_force(&commands.options.policy, commands.state_dir())?;
        with_tools(commands, false, |tools, nvml| {
            let look = || on_demand_now(commands, &policy, nvml);
            give_up_lost(tools, &policy, inventory, &look()?)?;
            for name in wanted {
                let now = look()?;
                let Some((gpu, one)) = find(&policy, inventory, &now, name) else {
                    continue;
                };
                if let Some(found) = gpu.instances.iter().find(|found| is_at(&one, found)) {
                    let key = existing(tools, whom, gpu, &one, found)?;
                    self.keys.insert(one.device, key);
                    continue;
                }
                if !has_room(gpu, &one) {
                    destroy_unused(commands, tools, nvml)?;
                }
                let now = look()?;
                let Some((gpu, one)) = find(&policy, inventory, &now, name) else {
                    continue;
                };
                if !has_room(gpu, &one) {
                    return Err(no_room(tools, gpu, &one)?);
                }
                let made = create_at(gpu, one.instance.profile, one.instance.placement, tools)?;
                tools.claims.hold_made(&made.device, whom)?;
                self.new.push(made.device.clone());
                self.keys.insert(one.device, made.device);
            }
            Ok(())
        })
    }

    /// The host with these instances, and its file as it was before: the host is examined anew if one of them is new,
    /// or is not known. What was known before the layout was this call's does not count: an instance that was destroyed
    /// since may have had the numbers of a new one.
    ///
    /// # Errors
    /// Returns an error if the host cannot be examined.
    pub(super) fn facts(&self, commands: &Commands<'_>) -> Result<(HostFileSeen, Arc<Facts>)> {
        let look = || Ok((HostFileSeen::now(commands.state_dir()), commands.facts()?));
        let (seen, facts) = look()?;
        let has = |key: &DeviceKey| facts.plan.devices.iter().any(|split| split.key == *key);
        if self.new.is_empty() && self.keys.values().all(has) {
            return Ok((seen, facts));
        }
        renew(commands)?;
        look()
    }

    /// The claim does not get them: those that were made for it are destroyed.
    pub(super) fn give_back(&self, commands: &Commands<'_>) {
        for device in &self.new {
            let left = Claims::open(commands.state_dir()).and_then(|claims| claims.leave_made(device));
            if let Err(error) = left {
                // It ends by itself after half a minute.
                tracing::warn!("{device}: {}", line(&error));
            }
        }
        commands.wake();
    }
}

/// The instance of this name, with its GPU.
fn find<'g>(
    policy: &Policy,
    inventory: &Inventory,
    gpus: &'g [MigGpu],
    name: &str,
) -> Option<(&'g MigGpu, ClaimableInstance<'g>)> {
    gpus.iter().find_map(|mig| {
        let gpu = inventory.gpus.iter().find(|gpu| gpu.uuid == mig.uuid)?;
        let mut all = claimable_instances(policy, gpu, mig).into_iter();
        Some((mig, all.find(|one| one.device == name)?))
    })
}

/// The device that an instance is. Whether the claim may have it is for the ledger to say.
fn existing(
    tools: &MigTools<'_>,
    whom: &str,
    gpu: &MigGpu,
    one: &ClaimableInstance<'_>,
    found: &GpuInstance,
) -> Result<DeviceKey> {
    let refused = |what: &str| Error::failed(format!("device {}", one.device), what);
    let whole = one.instance.profile.whole_compute();
    match found.compute.as_slice() {
        [compute] if whole.is_some_and(|whole| whole.id == compute.profile) => {
            let key = DeviceKey::mig(gpu.uuid.clone(), found.id, compute.id);
            // A broker that was killed left what it had made for the same claim.
            let is_for_another =
                |claim: &Claim| claim.device == key && just_made_for(claim).is_some_and(|of| of != whom);
            match tools.claims.books()?.claims().any(is_for_another) {
                true => Err(refused("was made for another holder just now")),
                false => Ok(key),
            }
        }
        _ => Err(refused("exists, and was not made as one device").hint("tranche mig status shows it")),
    }
}

fn has_room(gpu: &MigGpu, one: &ClaimableInstance<'_>) -> bool {
    let beside: Vec<(ProfileId, Placement)> = gpu.instances.iter().map(|one| (one.profile, one.placement)).collect();
    fits_beside(gpu, &beside, one.instance.profile, &one.instance.placement)
}

/// Says which instance is in the way, and who uses it.
fn no_room(tools: &MigTools<'_>, gpu: &MigGpu, one: &ClaimableInstance<'_>) -> Result<Error> {
    let overlaps = |other: &&GpuInstance| other.placement.overlaps(&one.instance.placement);
    let what = match gpu.instances.iter().find(overlaps) {
        None => format!("has no room on gpu {} beside the instances that it has", gpu.index),
        Some(other) => {
            let all = holders(std::slice::from_ref(gpu), tools.claims)?;
            let mut on_it = all
                .into_iter()
                .filter(|holder| holder.instance.is_some_and(|(id, _)| id == other.id));
            let who = on_it.next().map_or_else(|| "nobody".to_owned(), |holder| holder.who);
            let profile = gpu.profile(other.profile).map(|profile| profile.name.to_string());
            let profile = profile.unwrap_or_else(|| "an instance".to_owned());
            let start = other.placement.start;
            format!(
                "has no room on gpu {}: {profile} at {start} is in use by {who}",
                gpu.index
            )
        }
    };
    Ok(Error::failed(format!("device {}", one.device), what).hint("tranche mig status shows who uses what"))
}

/// Gives up what is reserved for resource claims on instances that do not exist any more: no instance survives a boot,
/// and the driver may give their numbers to others. Their claims are prepared again.
fn give_up_lost(tools: &MigTools<'_>, policy: &Policy, inventory: &Inventory, gpus: &[MigGpu]) -> Result<()> {
    let is_lost = |claim: &Claim| {
        let name = claim.name.as_deref().and_then(KubernetesObject::of_claim);
        let Some((gpu, one)) = name.and_then(|(_, part)| find(policy, inventory, gpus, part)) else {
            return false;
        };
        let has = |found: &GpuInstance| {
            let is_it = |(id, compute)| id == found.id && found.compute.iter().any(|one| one.id == compute);
            is_at(&one, found) && claim.device.instance().is_some_and(is_it)
        };
        *claim.device.gpu() != gpu.uuid || !gpu.instances.iter().any(has)
    };
    if !tools.claims.books()?.claims().any(is_lost) {
        return Ok(());
    }
    for problem in tools.claims.lock()?.give_up_lost(is_lost)? {
        tracing::warn!("{}", line(&problem));
    }
    Ok(())
}
