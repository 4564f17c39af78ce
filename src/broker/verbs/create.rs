//! `claim create`: shares are reserved for a container that starts later, and offered to engines by a specification.

use super::Caller;
use super::refusal::reserve_refused;
use std::path::Path;
use std::time::Duration;
use tranche_core::claims::Claims;
use tranche_core::error::Result;
use tranche_core::ledger::Claim;
use tranche_core::types::{HostPath, QualifiedName};
use tranche_plan::derive::Sharing;
use tranche_plan::host_file::HostFileSeen;
use tranche_plan::inventory::Inventory;
use tranche_plan::reserve::{OfExamined, Reservation, ReserveError};
use tranche_plan::share::{Fit, Plan};
use tranche_protocol::ClaimRequest;
use tranche_state::claim_spec::{self, ClaimFile, describe};
use tranche_state::held::Held;
use tranche_state::held::names::DeviceNames;
use tranche_state::planning::{needs, pipe_directories};

/// The host on which a claim is made.
#[derive(Debug)]
pub struct ClaimPlace<'a> {
    /// What it has.
    pub inventory: &'a Inventory,
    /// How it is shared, and where the ledger is.
    pub sharing: Sharing,
    /// The program `tranche-oci`, as engines find it.
    pub hook: HostPath,
    /// The directory for specifications of claims.
    pub spec_dir: &'a Path,
}

/// Who reserves, in which order with others who wait and within which limits.
pub trait Turn {
    /// Reserves what `reservation` says, and offers it by `file`.
    ///
    /// # Errors
    /// Returns why nothing was reserved.
    fn reserve(
        &self,
        plan: &Plan,
        claims: &Claims,
        reservation: &Reservation,
        file: ClaimFile<'_>,
    ) -> Result<(Fit, Claim), ReserveError>;

    /// After how many seconds the claim is known to end; `None` if nothing ends it.
    fn ends_within(&self) -> Option<u64> {
        None
    }
}

/// Root's turn: in the order of coming, without a limit.
#[derive(Debug)]
pub struct RootsTurn<'a> {
    /// For how long root waits for what others hold.
    pub wait: Duration,
    /// What the host had when it was examined for this claim.
    pub inventory: &'a Inventory,
    /// `host.json` as it was before that.
    pub seen: HostFileSeen,
}

impl Turn for RootsTurn<'_> {
    fn reserve(
        &self,
        plan: &Plan,
        claims: &Claims,
        reservation: &Reservation,
        file: ClaimFile<'_>,
    ) -> Result<(Fit, Claim), ReserveError> {
        let offer = OfExamined {
            offer: file,
            inventory: self.inventory,
            seen: &self.seen,
        };
        plan.reserve_waiting(claims, reservation, &offer, self.wait)
    }
}

/// A claim that was made.
#[derive(Debug)]
pub struct CreatedClaim {
    /// The name under which containers request it.
    pub cdi: QualifiedName,
    /// The claim.
    pub held: Held,
    /// What was found for it, and what the host lacks for it, each in a sentence.
    pub notes: Vec<String>,
}

/// Makes the claim that `request` asks for.
///
/// # Errors
/// Returns why nothing was reserved.
pub fn create(place: ClaimPlace<'_>, caller: Caller, request: ClaimRequest, turn: &impl Turn) -> Result<CreatedClaim> {
    let request = ClaimRequest {
        name: caller.new_name(&request.name)?,
        ..request
    };
    // A device and a file get this name, so it is checked before anything is reserved.
    let cdi = claim_spec::device_name(&request.name)?;
    let sharing = place.sharing;
    let plan = &*sharing.plan;
    let reservation = claim_spec::reservation(&request, place.inventory, plan)?;
    let file = ClaimFile::new(&request, place.inventory, &sharing, place.hook, place.spec_dir)?;
    let ends_within = turn.ends_within().filter(|_| !request.for_root);
    let claims = caller.claims(sharing.state_dir.as_path())?.ending_within(ends_within);
    pipe_directories::make(&sharing)?;
    let reserved = turn.reserve(plan, &claims, &reservation, file);
    let view = |uptime| caller.view(DeviceNames::new(place.inventory.clone(), plan.clone()), uptime);
    let (found, claim) = reserved.map_err(|error| {
        let object = format!("claim {}", request.name);
        match caller {
            Caller::Root => view(0).not_reserved(object, error),
            Caller::User(uid) => reserve_refused(uid, object, error),
        }
    })?;
    let needs = plan.split(found.device).and_then(|split| needs::note(&sharing, split));
    Ok(CreatedClaim {
        cdi,
        held: view(claims.uptime()).held(&claim),
        notes: std::iter::once(describe(&found, plan)).chain(needs).collect(),
    })
}
