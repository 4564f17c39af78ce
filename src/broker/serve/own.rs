//! Claims that a user makes beforehand, and what a user sees and releases: the user's own.

use super::commands::Commands;
use super::peer::BrokerClient;
use super::queue::{UserAttempt, WaitOptions};
use super::quota::ClientQuota;
use super::refusal::reserve_refused;
use crate::facts::Facts;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use tranche_core::broker::ClaimRequest;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{Claim, HeldShare, OutOfService};
use tranche_core::text::some;
use tranche_core::types::{DeviceKey, DeviceSelector, HostPath, RequestedDevice, Strategy};
use tranche_plan::derive::Sharing;
use tranche_plan::reserve::{Offer, Reservation, ReserveError};
use tranche_plan::share::{Fit, Plan};
use tranche_state::claim_spec::{self, ClaimFile, describe, is_of_user};
use tranche_state::held::{ClaimNames, Held, idleness, not_ended};
use tranche_state::overdue::TimeLimits;

/// The fewest characters of a container's id that are taken for the beginning of one.
const SHORTEST_ID: usize = 4;

/// The name that a claim of `peer` has for everybody: `1000.train` for `train`. So no user takes a name from another
/// one.
///
/// # Errors
/// Returns an error for the name of another user's claim.
pub(super) fn own_name(peer: &BrokerClient, name: &str) -> Result<String> {
    let prefix = format!("{}.", peer.uid);
    match is_of_user(name) {
        _ if peer.is_owner() => Ok(name.to_owned()),
        false => Ok(format!("{prefix}{name}")),
        true if name.starts_with(&prefix) => Ok(name.to_owned()),
        true => Err(Error::failed(format!("claim {name}"), "not found").hint("tranche claim list shows yours")),
    }
}

/// Reserves what `request` says for `peer`.
///
/// # Errors
/// Returns why nothing was reserved.
pub(super) fn claim(
    commands: &Commands<'_>,
    peer: &BrokerClient,
    client: &UnixStream,
    request: ClaimRequest,
) -> Result<Value> {
    let facts = commands.facts()?;
    let request = ClaimRequest {
        name: own_name(peer, &request.name)?,
        ..request
    };
    let cdi = claim_spec::device_name(&request.name)?;
    let named = request.device.as_ref().and_then(RequestedDevice::named);
    let plan = for_users(&facts, named)?;
    let reservation = claim_spec::reservation(&request, &facts.inventory, &plan)?;
    let sharing = Sharing {
        plan,
        held: BTreeSet::new(),
        out_of_service: OutOfService::default(),
        state_dir: HostPath::new(commands.state_dir())?,
    };
    let claims = commands.claims(peer)?;
    let offer = WithinQuota {
        offer: ClaimFile::new(
            &request,
            &facts.inventory,
            &sharing,
            facts.hook.clone(),
            &commands.options.spec_dir,
        )?,
        quota: ClientQuota::of(commands, peer, &facts, &claims)?,
        claims: &claims,
        plan: &facts.plan,
    };
    let options = WaitOptions {
        peer,
        rules: commands.accounts.rules(peer.uid, &facts.plan.users),
        about: format!("claim {}", request.name),
        wait: request.wait.get(),
        client,
    };
    let reserved = reserve(commands, &sharing.plan, &reservation, &offer, &options);
    let reserved =
        reserved.map_err(|error| reserve_refused(peer.uid, format_args!("claim {}", request.name), error))?;
    let Some((fit, claim)) = reserved.into_iter().next() else {
        return Err(Error::failed(cdi, "was not reserved"));
    };
    let held = held(&claim, &facts.plan, claims.uptime());
    Ok(json!({"cdi": cdi.to_string(), "claim": held, "note": describe(&fit, &sharing.plan)}))
}

/// Reserves what `reservation` says, in the user's turn.
///
/// # Errors
/// Returns why nothing was reserved.
pub(super) fn reserve<O: Offer>(
    commands: &Commands<'_>,
    plan: &Plan,
    reservation: &Reservation,
    offer: &WithinQuota<'_, O>,
    options: &WaitOptions<'_>,
) -> Result<Vec<(Fit, Claim)>, ReserveError> {
    let attempt = plan.attempt(offer.claims, std::slice::from_ref(reservation), offer);
    let taken = |got: &Vec<(Fit, Claim)>| {
        let parts = got.iter();
        parts
            .map(|(_, claim)| (claim.device.clone(), claim.part.clone()))
            .collect()
    };
    let asked = UserAttempt {
        attempt: &attempt,
        taken: &taken,
        is_over_limit: |error| matches!(error, ReserveError::OverLimit(_)),
    };
    commands.queue.take_turn(commands, offer.claims, &asked, options)
}

/// The plan without the devices of which users can have no share. `named` is the device that is asked for by name.
///
/// # Errors
/// Returns an error if users can have no share of `named`, or of any device.
pub(super) fn for_users(facts: &Facts, named: Option<&DeviceSelector>) -> Result<Plan> {
    if let Some(selector) = named {
        let device = facts.inventory.catalogue().get(selector)?.device();
        if facts
            .plan
            .split(device)
            .is_some_and(|split| split.method.strategy() == Strategy::Mps)
        {
            let what = "its shares are under MPS, and are for containers of engines that run as root";
            return Err(Error::failed(device, what).hint("choose a device under time-slicing, or ask root for a claim"));
        }
    }
    let mut plan = facts.plan.clone();
    plan.devices.retain(|split| split.method.strategy() != Strategy::Mps);
    match plan.devices.is_empty() {
        false => Ok(plan),
        true => Err(Error::failed("policy", "no device has shares that a user may claim")
            .hint("shares under MPS are for containers of engines that run as root")),
    }
}

/// What makes a claim known, if the user may hold as much as was found for it.
pub(super) struct WithinQuota<'a, O> {
    pub(super) offer: O,
    pub(super) quota: ClientQuota<'a>,
    pub(super) claims: &'a Claims,
    pub(super) plan: &'a Plan,
}

impl<O> WithinQuota<'_, O> {
    /// The device of `fit` and the number of its shares; none is the whole device.
    fn asked(&self, fit: &Fit) -> Result<(&DeviceKey, usize)> {
        let split = self.plan.split(fit.device);
        let split = split.ok_or_else(|| Error::failed(fit.device, "is not shared by the policy of this host"))?;
        let more = if split.method.is_whole() { 0 } else { fit.shares.len() };
        Ok((&split.key, more))
    }
}

impl<O: Offer> Offer for WithinQuota<'_, O> {
    fn sweep(&self, claims: &[&Claim]) -> Result<()> {
        self.offer.sweep(claims)
    }

    fn allow(&self, fit: &Fit) -> Result<()> {
        let (device, more) = self.asked(fit)?;
        // The caller has locked the ledger, and has not written it yet.
        self.quota.allow(&self.claims.books()?, device, more)
    }

    fn allow_ever(&self, fit: &Fit) -> Result<()> {
        let (device, more) = self.asked(fit)?;
        match self.quota.may_allow(device, more) {
            true => Ok(()),
            // The refusal says what is held.
            false => self.quota.allow(&self.claims.books()?, device, more),
        }
    }

    fn publish(&self, fit: &Fit) -> Result<Option<String>> {
        self.offer.publish(fit)
    }

    fn withdraw(&self) -> Result<()> {
        self.offer.withdraw()
    }
}

/// What `peer` holds.
///
/// # Errors
/// Returns an error if the ledger cannot be read.
pub(super) fn list(commands: &Commands<'_>, peer: &BrokerClient) -> Result<Value> {
    let claims = commands.claims(peer)?;
    let books = claims.books()?;
    let plan = plan(commands);
    let own = books.claims().filter(|claim| claim.uid == peer.uid);
    let limits = TimeLimits {
        accounts: commands.accounts,
        policy: &plan.users,
        uptime: claims.uptime(),
    };
    let idleness = idleness::read(commands.state_dir())?;
    let not_ended = not_ended::read(commands.state_dir())?;
    let shown = |claim| {
        let mut shown = held(claim, &plan, claims.uptime());
        limits.show(&mut shown, claim, &idleness, &not_ended);
        shown
    };
    let own: Vec<Held> = own.map(shown).collect();
    let mut waiting = commands.queue.waiting();
    waiting.retain(|waits| waits.uid == peer.uid);
    Ok(json!({ "claims": own, "waiting": waiting }))
}

/// Releases what `peer` means by `what`: a claim, a device or share, or a container.
///
/// # Errors
/// Returns an error if nothing of the user is meant, if more than one is, or if a container uses it.
pub(super) fn release(commands: &Commands<'_>, peer: &BrokerClient, what: &str, force: bool) -> Result<Value> {
    let claims = commands.claims(peer)?;
    let plan = plan(commands);
    let locked = claims.lock()?;
    let books = locked.books()?;
    let own = books.claims().filter(|claim| claim.uid == peer.uid);
    let own: Vec<(&Claim, Held)> = own.map(|claim| (claim, held(claim, &plan, claims.uptime()))).collect();
    let meant = meant(peer, what, &own)?;
    let all: Vec<&Claim> = meant.iter().map(|(claim, _)| *claim).collect();
    locked.release_by_hand(&all, force)?;
    // As `tranche claim release` does it: a process that is killed in between leaves a specification that nobody can
    // use.
    let left: Vec<Error> = all
        .iter()
        .filter_map(|claim| claim_spec::remove_of(claim, commands.state_dir()).err())
        .collect();
    drop(locked);
    let released: Vec<&Held> = meant.iter().map(|(_, held)| held).collect();
    match left.into_iter().next() {
        None => Ok(json!({ "released": released })),
        Some(error) => Err(error),
    }
}

type Own<'a> = (&'a Claim, Held);

/// Those of `own` that are meant by `what`: by the name of the claim, of the device or share, or of the container.
fn meant<'a, 'c>(peer: &BrokerClient, what: &str, own: &'a [Own<'c>]) -> Result<Vec<&'a Own<'c>>> {
    let name = what.strip_prefix("nvidia.com/claim=").unwrap_or(what);
    let name = own_name(peer, name)?;
    let of =
        |is_meant: &dyn Fn(&Own<'c>) -> bool| -> Vec<&'a Own<'c>> { own.iter().filter(|one| is_meant(one)).collect() };
    let by_name = of(&|(claim, _)| claim.name.as_ref() == Some(&name));
    let is_named = |cdi: &str| cdi == what || cdi.split_once('=').is_some_and(|(_, rest)| rest == what);
    let by_device = of(&|(_, held)| is_named(&held.cdi));
    let id = |claim: &Claim| claim.holder.any_container().map(|container| container.id.clone());
    let by_id = of(&|(claim, _)| id(claim).as_deref() == Some(what));
    let begins = of(&|(claim, _)| what.len() >= SHORTEST_ID && id(claim).is_some_and(|id| id.starts_with(what)));
    for found in [by_name, by_device, by_id, begins] {
        let same = found
            .first()
            .is_some_and(|first| found.iter().all(|one| one.0.holder == first.0.holder));
        match found.len() {
            0 => {}
            1 => return Ok(found),
            _ if same => return Ok(found),
            _ => {
                let names: Vec<&str> = found.iter().map(|(_, held)| held.cdi.as_str()).collect();
                let error = Error::usage(what, "matches more than one");
                return Err(error.hint(format!("name one of them: {}", some(&names))));
            }
        }
    }
    let names: Vec<&str> = own.iter().map(|(_, held)| held.cdi.as_str()).collect();
    Err(
        Error::usage(what, "not found among your claims").hint(match names.is_empty() {
            true => "you hold nothing".to_owned(),
            false => format!("you hold {}", some(&names)),
        }),
    )
}

/// The plan of now. Without one, devices have the names that the ledger has for them.
fn plan(commands: &Commands<'_>) -> Plan {
    commands.facts().map(|facts| facts.plan.clone()).unwrap_or_default()
}

/// `claim` under the names that `plan` gives.
fn held(claim: &Claim, plan: &Plan, uptime: u64) -> Held {
    let split = plan.devices.iter().find(|split| split.key == claim.device);
    let device = split.map_or_else(
        || claim.device.to_string(),
        |split| format!("{}={}", split.kind, split.device.cdi_name()),
    );
    let share = |share: &HeldShare| format!("{device}.{}", share.name);
    let shares: Vec<String> = claim.part.shares().iter().map(share).collect();
    let cdi = match claim.given_name() {
        Some(name) => format!("nvidia.com/claim={name}"),
        None if shares.is_empty() => device.clone(),
        None => some(&shares),
    };
    let container = None;
    Held::new(claim, ClaimNames { cdi, device, container }, uptime)
}
