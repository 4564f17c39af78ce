//! What users reserve for later.

use super::commands::Commands;
use super::peer::BrokerClient;
use crate::facts::Facts;
use crate::verbs::{self, CalendarPlace, Caller};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use tranche_core::error::{Context, Error, Result};
use tranche_plan::policy::AtLimit;
use tranche_protocol::{CancelTimeRequest, ReserveTimeRequest};
use tranche_state::accounts::Account;

/// Reserves what `request` says for `peer`.
///
/// # Errors
/// Returns why it cannot be reserved.
pub(super) fn reserve(commands: &Commands<'_>, peer: &BrokerClient, request: ReserveTimeRequest) -> Result<Value> {
    let facts = commands.facts()?;
    let place = CalendarPlace {
        state_dir: commands.state_dir(),
        inventory: &facts.inventory,
        plan: &facts.for_users,
    };
    value(verbs::reserve_time(place, caller(commands, peer)?, request)?)
}

/// Gives up a reservation of `peer`.
///
/// # Errors
/// Returns an error if it is not the user's.
pub(super) fn cancel(commands: &Commands<'_>, peer: &BrokerClient, request: &CancelTimeRequest) -> Result<Value> {
    value(verbs::cancel_time(
        commands.state_dir(),
        caller(commands, peer)?,
        request.id,
    )?)
}

/// For whom `peer` reserves: a subordinate uid does it for its user, so that the limits count both together.
fn caller(commands: &Commands<'_>, peer: &BrokerClient) -> Result<Caller> {
    match peer.is_owner() {
        true => Ok(peer.caller()),
        false => match commands.accounts.of(peer.uid) {
            Account::User(uid) => Ok(Caller::User(uid)),
            Account::Owner | Account::Shared => Err(Error::failed(
                format!("uid {}", peer.uid),
                "is a subordinate uid whose user is not known, and reserves nothing",
            )
            .hint("reserve as the user")),
        },
    }
}

/// What is reserved.
///
/// # Errors
/// Returns an error if the calendar or the ledger cannot be read.
pub(super) fn show(commands: &Commands<'_>, peer: &BrokerClient) -> Result<Value> {
    let plan = commands
        .facts()
        .map(|facts| (*facts.for_users).clone())
        .unwrap_or_default();
    value(verbs::calendar(commands.state_dir(), peer.caller(), &plan)?)
}

fn value(answer: impl Serialize) -> Result<Value> {
    serde_json::to_value(answer).about("broker", "cannot write its answer")
}

/// After how many seconds a new hold of `peer` is known to end, by `maxHold` with `atLimit: end`; `None` where
/// nothing ends it.
pub(super) fn ends_within(commands: &Commands<'_>, facts: &Facts, peer: &BrokerClient) -> Option<u64> {
    let users = &facts.plan.users;
    let limits = (users.limits_time() && !peer.is_owner()).then(|| commands.accounts.limits(peer.uid, users));
    let limit = limits?.hold?.value;
    let seconds = |time: Duration| time.as_secs();
    (limit.at_limit == AtLimit::End).then(|| seconds(limit.most.get()).saturating_add(seconds(limit.grace.get())))
}
