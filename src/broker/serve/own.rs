//! Claims of users: made in the user's turn and within the user's limits, and what a user sees and releases.

use super::commands::Commands;
use super::peer::BrokerClient;
use super::queue::{UserAttempt, WaitOptions};
use super::quota::ClientQuota;
use super::times;
use crate::facts::Facts;
use crate::verbs::{self, ClaimPlace, CreatedClaim, Turn, WhatToRelease};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tranche_core::broker::ErrorFields;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{Claim, OutOfService, Refused};
use tranche_core::types::{DeviceKey, HostPath, RequestedDevice};
use tranche_plan::derive::Sharing;
use tranche_plan::reserve::{Offer, Reservation, ReserveError};
use tranche_plan::share::{Fit, Plan};
use tranche_protocol::ClaimRequest;
use tranche_state::claim_spec::ClaimFile;
use tranche_state::held::names::DeviceNames;

/// Makes the claim that `request` asks for.
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
    facts.refuse_mps(request.device.as_ref().and_then(RequestedDevice::named))?;
    let place = ClaimPlace {
        inventory: &facts.inventory,
        sharing: Sharing {
            plan: Arc::clone(&facts.for_users),
            held: BTreeSet::new(),
            out_of_service: OutOfService::default(),
            state_dir: HostPath::new(commands.state_dir())?,
        },
        hook: facts.hook.clone(),
        spec_dir: &commands.options.spec_dir,
    };
    let turn = UsersTurn {
        commands,
        facts: &facts,
        options: WaitOptions {
            peer,
            rules: commands.accounts.rules(peer.uid, &facts.plan.users),
            about: format!("claim {}", peer.caller().own_name(&request.name)?),
            wait: request.wait.get(),
            client,
        },
    };
    let CreatedClaim { cdi, held, notes } = verbs::create(place, peer.caller(), request, &turn)?;
    Ok(json!({"cdi": cdi.to_string(), "claim": held, "note": notes.join("\n")}))
}

/// The turn of a user, who waits in the order of the queue and holds no more than the policy allows.
struct UsersTurn<'a> {
    commands: &'a Commands<'a>,
    facts: &'a Facts,
    options: WaitOptions<'a>,
}

impl Turn for UsersTurn<'_> {
    fn reserve(
        &self,
        plan: &Plan,
        claims: &Claims,
        reservation: &Reservation,
        file: ClaimFile<'_>,
    ) -> Result<(Fit, Claim), ReserveError> {
        let offer = WithinQuota {
            offer: file,
            quota: ClientQuota::of(self.commands, self.options.peer, claims).map_err(ReserveError::Offer)?,
            claims,
            plan: &self.facts.plan,
        };
        reserve(self.commands, plan, reservation, &offer, &self.options)
    }

    fn ends_within(&self) -> Option<u64> {
        times::ends_within(self.commands, self.facts, self.options.peer)
    }
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
) -> Result<(Fit, Claim), ReserveError> {
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
        renew: &|| offer.quota.renew(),
        is_over_limit: |error| matches!(error, ReserveError::OverLimit(_)),
    };
    let reserved = commands.queue.take_turn(commands, offer.claims, &asked, options)?;
    let lost = || Refused::NoSuchClaim(reservation.name.clone());
    Ok(reserved.into_iter().next().ok_or_else(lost)?)
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

    fn gone(&self, plan: &Plan) -> Result<Vec<DeviceKey>> {
        // Who destroys an instance has the broker look at the host before the ledger lets others have it, so this is a
        // look at what is known.
        let now = self.quota.facts_now()?;
        let devices = plan.devices.iter().map(|split| &split.key);
        let has = |key: &DeviceKey| now.plan.devices.iter().any(|split| split.key == *key);
        Ok(match std::ptr::eq(plan, &*now.for_users) {
            true => Vec::new(),
            false => devices.filter(|key| !has(key)).cloned().collect(),
        })
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

/// What `peer` holds, and waits for.
///
/// # Errors
/// Returns an error if the ledger cannot be read.
pub(super) fn list(commands: &Commands<'_>, peer: &BrokerClient) -> Result<Value> {
    let policy = commands.facts().map(|facts| facts.plan.users.clone());
    let listed = verbs::list(
        commands.state_dir(),
        verbs::Caller::User(peer.uid),
        names(commands),
        &policy.unwrap_or_default(),
        commands.accounts,
    )?;
    let mut waiting = commands.queue.waiting();
    waiting.retain(|waits| waits.uid == peer.uid);
    Ok(json!({ "claims": listed.claims, "waiting": waiting }))
}

/// Releases what `peer` means by `what`: a claim, a device or share, or a container.
///
/// # Errors
/// Returns an error if nothing of the user is meant, if more than one is, or if a container uses it.
pub(super) fn release(commands: &Commands<'_>, peer: &BrokerClient, what: &str, force: bool) -> Result<Value> {
    let what = WhatToRelease::Named(what);
    let mut unreadable = Vec::new();
    let done = verbs::release(
        commands.state_dir(),
        peer.caller(),
        names(commands),
        what,
        force,
        &mut unreadable,
    )?;
    let left: Vec<ErrorFields> = done.left.iter().map(ErrorFields::from).collect();
    Ok(json!({ "released": done.released, "left": left }))
}

/// The names of now. Without any, devices have the names that the ledger has for them.
fn names(commands: &Commands<'_>) -> DeviceNames {
    let of = |facts: Arc<Facts>| DeviceNames::new(facts.inventory.clone(), Arc::clone(&facts.plan));
    commands.facts().map(of).unwrap_or_default()
}
