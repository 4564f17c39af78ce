//! GPUs whose instances of MIG are made for resource claims: what they can have now.
//!
//! The scheduler counts the instances of resource claims by itself. What others have on such a GPU it cannot see, so it
//! is said of each instance whether there is room for it.

use super::{Commands, Faults};
use crate::facts::Facts;
use crate::mig::{OnDemandInstances, gpus};
use crate::serve::on_demand::can_be_made_on;
use std::collections::BTreeSet;
use tranche_core::claims::just_made_for;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{Books, Claim, KubernetesObject};
use tranche_core::types::{DeviceKey, GpuUuid};
use tranche_plan::inventory::Gpu;
use tranche_plan::mig::{GpuInstance, MigGpu, Placement, ProfileId, fits_beside};
use tranche_plan::share::{ClaimableInstance, claimable_instances, dra_divided, on_demand_gpus};
use tranche_protocol::DraDivided;
use tranche_state::mutex::{lock, try_lock};
use tranche_state::planning;

/// What is offered of GPUs on which instances are made on demand.
#[derive(Debug, Clone, Default)]
pub(in crate::serve) struct DividedGpus {
    /// Those that claims have instances of.
    pub(super) offered: Vec<DraDivided>,
    /// The GPUs whose MIG devices are not offered by themselves, because they come and go.
    pub(super) hidden: BTreeSet<GpuUuid>,
}

/// The GPUs on which instances are made for claims. While a layout is being changed, it is what was found last.
///
/// # Errors
/// Returns an error if the policy or the ledger cannot be read, or the driver does not answer.
pub(super) fn divided_gpus(commands: &Commands<'_>, facts: &Facts, faults: &Faults<'_>) -> Result<DividedGpus> {
    let policy = planning::policy_in_force(&commands.options.policy, commands.state_dir())?;
    let mut meant = on_demand_gpus(&policy, &facts.inventory);
    meant.retain(|gpu| facts.plan.kubernetes.gives_instances_of(gpu));
    if meant.is_empty() {
        return Ok(DividedGpus::default());
    }
    let Some(_one) = try_lock(&commands.mig) else {
        let last = lock(&commands.divided).clone();
        return last.ok_or_else(|| Error::failed("MIG", "a layout is being changed").hint("try again"));
    };
    let nvml = commands.control.driver()?.nvml;
    let now = gpus(&nvml)?;
    let made = OnDemandInstances::read(commands.state_dir())?;
    let mut found = DividedGpus::default();
    for gpu in meant {
        let mig = now.iter().find(|mig| mig.uuid == gpu.uuid);
        match mig {
            Some(mig) if can_be_made_on(mig, &policy) => {
                let instances = claimable_instances(&policy, gpu, mig);
                let mut divided = dra_divided(gpu, mig, &instances);
                let whole = DeviceKey::whole(gpu.uuid.clone());
                divided.unhealthy = faults.of(&whole);
                divided.out_of_service = faults.books.out_of_service.why(&whole).map(|why| why.to_string());
                let others = Others::on(gpu, mig, &instances, &made, faults.books);
                for (shown, one) in divided.instances.iter_mut().zip(&instances) {
                    shown.held_by = others.in_the_way_of(one);
                }
                found.offered.push(divided);
            }
            // It has the instances of its layout and no others.
            Some(mig) if policy.mig_layouts.iter().any(|layout| layout.names(mig)) => continue,
            // What it has is perhaps a claim's.
            _ => {}
        }
        found.hidden.insert(gpu.uuid.clone());
    }
    *lock(&commands.divided) = Some(found.clone());
    Ok(found)
}

/// What is on a GPU that the scheduler does not count.
struct Others<'g> {
    mig: &'g MigGpu,
    /// Who has the whole GPU.
    all: Option<String>,
    instances: Vec<OtherInstance>,
}

/// An instance that the scheduler does not count.
struct OtherInstance {
    profile: ProfileId,
    placement: Placement,
    who: String,
    /// Nobody uses it, and a claim can have it as it is.
    is_free: bool,
}

impl<'g> Others<'g> {
    fn on(
        gpu: &Gpu,
        mig: &'g MigGpu,
        claimable: &[ClaimableInstance<'_>],
        made: &OnDemandInstances,
        books: &Books,
    ) -> Self {
        let here = || books.claims().filter(|claim| *claim.device.gpu() == gpu.uuid);
        let all = here().find(|claim| claim.device.is_whole());
        let other = |one: &GpuInstance| {
            let device = claimable.iter().find(|claimable| is_at(claimable, one));
            let is_on_it = |claim: &&Claim| claim.device.instance().is_some_and(|(id, _)| id == one.id);
            let on_it: Vec<&Claim> = here().filter(is_on_it).collect();
            if device.is_some_and(|device| on_it.iter().any(|claim| is_counted_as(claim, &device.device))) {
                return None;
            }
            let client = mig.clients.iter().find(|client| client.gpu_instance == Some(one.id));
            let uuid = match one.compute.as_slice() {
                [compute] => compute.uuid.as_ref(),
                _ => None,
            };
            let is_made = made.made.iter().any(|made| Some(&made.uuid) == uuid);
            let (who, is_free) = match (on_it.first(), client) {
                (Some(claim), _) if just_made_for(claim).is_some() => {
                    ("one who has just asked for it".to_owned(), false)
                }
                (Some(claim), _) => (claim.who(), false),
                (None, Some(client)) => (format!("process {}", client.pid), false),
                // It is destroyed when its place is needed.
                (None, None) if is_made => return None,
                (None, None) => ("an instance that was made by hand".to_owned(), uuid.is_some()),
            };
            Some(OtherInstance {
                profile: one.profile,
                placement: one.placement,
                who,
                is_free,
            })
        };
        Self {
            mig,
            all: all.map(Claim::who),
            instances: mig.instances.iter().filter_map(other).collect(),
        }
    }

    /// Who leaves no room for an instance.
    fn in_the_way_of(&self, one: &ClaimableInstance<'_>) -> Option<String> {
        if self.all.is_some() {
            return self.all.clone();
        }
        let (profile, placement) = (one.instance.profile, one.instance.placement);
        let is_itself =
            |other: &&OtherInstance| other.is_free && (other.profile, other.placement) == (profile.id, placement);
        let others: Vec<&OtherInstance> = self.instances.iter().filter(|other| !is_itself(other)).collect();
        let beside: Vec<_> = others.iter().map(|other| (other.profile, other.placement)).collect();
        if fits_beside(self.mig, &beside, profile, &placement) {
            return None;
        }
        // A limit of engines or of the profile has no single cause.
        let first = others.iter().find(|other| other.placement.overlaps(&placement));
        first.or(others.first()).map(|other| other.who.clone())
    }
}

/// Whether the instance is the one that has this name for claims.
pub(super) fn is_at(claimable: &ClaimableInstance<'_>, instance: &GpuInstance) -> bool {
    let wanted = &claimable.instance;
    (wanted.profile.id, wanted.placement) == (instance.profile, instance.placement)
}

/// Whether the scheduler counts the claim as the device of this name.
fn is_counted_as(claim: &Claim, device: &str) -> bool {
    let name = claim.name.as_deref().and_then(KubernetesObject::of_claim);
    !claim.once && !claim.joined && name.is_some_and(|(_, part)| part == device)
}
