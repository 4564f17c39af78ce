//! Programs of users that run in a share without a container (`tranche run`).
//!
//! The program's process waits until it is answered. It enters the claim here, so that the claim ends with it.

use super::commands::Commands;
use super::own::{WithinQuota, reserve};
use super::peer::BrokerClient;
use super::queue::WaitOptions;
use super::quota::ClientQuota;
use super::times;
use crate::facts::Facts;
use crate::run::{planned::PlannedClaim, wanted};
use crate::verbs::refusal::{entry_refused, refuse_mps, reserve_refused};
use serde_json::Value;
use std::os::unix::net::UnixStream;
use tranche_core::claims::{Attempt, ClaimEntry, Claims};
use tranche_core::error::{Context, Error, Result};
use tranche_core::ledger::process::Machine;
use tranche_core::ledger::{Claim, Holder, InitProcess, Strategy, start_name};
use tranche_core::types::{DevicePart, DeviceSelector, HostPath};
use tranche_plan::reserve::{Reservation, Unoffered};
use tranche_protocol::{RunAnswer, RunRequest};

/// The most characters of a program's name that are kept.
const LONGEST_NAME: usize = 64;

/// Lets the process of `request` hold what it asks for. Returns the variables of the share.
///
/// # Errors
/// Returns why it cannot. Nothing is held then.
pub(super) fn run(
    commands: &Commands<'_>,
    peer: &BrokerClient,
    client: &UnixStream,
    request: &RunRequest,
) -> Result<Value> {
    let facts = commands.facts()?;
    let process = peer.init(request.pid, &Machine::here()?)?;
    let claims = commands
        .claims(peer)?
        .ending_within(times::ends_within(commands, &facts, peer));
    let holder = Holder::Process {
        program: plain(&request.program),
        id: start_name()?,
    };
    let meant = match (&request.claim, request.shares.as_slice()) {
        (Some(name), []) => of_claim(peer, name, &claims)?,
        (Some(_), _) | (None, []) => return Err(Error::usage("request", "expected shares or a claim")),
        (None, _) => {
            let options = WaitOptions {
                peer,
                rules: commands.accounts.rules(peer.uid, &facts.plan.users),
                about: request.shares.join(" "),
                wait: request.wait.get(),
                client,
            };
            reserved(commands, &facts, &claims, request, &holder, process.pid, &options)?
        }
    };
    let entered = enter(commands, &facts, &claims, &holder, &meant, process);
    if entered.is_err() && request.claim.is_none() {
        claims.withdraw(&[&meant.0])?;
    }
    serde_json::to_value(entered?).about("broker", "cannot write its answer")
}

/// Reserves the shares of `request` in the user's turn. The reservation ends with the process `pid`.
fn reserved(
    commands: &Commands<'_>,
    facts: &Facts,
    claims: &Claims,
    request: &RunRequest,
    holder: &Holder,
    pid: u32,
    options: &WaitOptions<'_>,
) -> Result<(String, Claim)> {
    let named: Option<DevicePart> = request.shares.first().and_then(|typed| typed.parse().ok());
    let named = named.map(|part| part.device);
    let is_here = |selector: &&DeviceSelector| facts.inventory.catalogue().get(selector).is_ok();
    let named = named.as_ref().filter(is_here);
    facts.refuse_mps(named)?;
    let plan = &*facts.for_users;
    let wish = wanted::wish(&request.shares, &request.select, &facts.inventory, plan)?;
    let reservation = Reservation {
        asked_as: wanted::asked_as(&request.shares, &wish, plan),
        ..Reservation::for_start(wish, holder.clone(), Some(pid))?
    };
    let offer = WithinQuota {
        offer: Unoffered,
        quota: ClientQuota::of(commands, options.peer, claims)?,
        claims,
        plan: &facts.plan,
    };
    let label = reservation.wish.text();
    let reserved = reserve(commands, plan, &reservation, &offer, options);
    let (_, claim) = reserved.map_err(|error| reserve_refused(options.peer.uid, &label, error))?;
    Ok((reservation.name, claim))
}

/// The claim that the user made under `name`, with its name in the ledger.
fn of_claim(peer: &BrokerClient, name: &str, claims: &Claims) -> Result<(String, Claim)> {
    let name = peer.caller().own_name(name)?;
    let books = claims.books()?;
    let mut own = books.claims().filter(|claim| claim.uid == peer.uid);
    let claim = own.find(|claim| claim.name.as_ref() == Some(&name)).cloned();
    let claim = claim
        .ok_or_else(|| Error::failed(format!("claim {name}"), "not found").hint("tranche claim list shows yours"))?;
    Ok((name, claim))
}

/// Enters `claim` for the process of the program, and makes its device ready. Returns the variables of the share.
fn enter(
    commands: &Commands<'_>,
    facts: &Facts,
    claims: &Claims,
    holder: &Holder,
    (name, claim): &(String, Claim),
    process: InitProcess,
) -> Result<RunAnswer> {
    let planned = PlannedClaim::of(claim, &facts.plan)?;
    let PlannedClaim { label, split, .. } = &planned;
    refuse_mps(label, claim.part.strategy())?;
    let environment = planned.environment(&HostPath::new(commands.state_dir())?)?;
    let entry = ClaimEntry::reserved(name, claim);
    // The process as it was when it was known to be the user's: its number may be another one's by now.
    let entered = claims
        .entry_attempt(&entry, holder, Some(process))
        .make(&claims.lock()?, None);
    entered.map_err(|refused| entry_refused(claim.uid, label, refused.error, &[]))?;
    if split.method.is_managed()
        && let Err(error) = commands.make_ready(&split.key)
    {
        return Err(match claims.release(holder, Some(&split.key), None) {
            Ok(_) => error,
            // It is collected when the process has ended.
            Err(other) => error.and_hint(tranche_core::error::line(&Error::from(other))),
        });
    }
    let by_turns = claim.part.strategy() == Strategy::Turns;
    Ok(RunAnswer {
        environment,
        by_turns: by_turns.then(|| split.key.clone()),
    })
}

/// `name` as it is shown to root: without characters that a terminal or a table would not print as they are.
fn plain(name: &str) -> String {
    let plain = |character: char| match character {
        '_' | '+' | '-' | '.' => character,
        _ if character.is_alphanumeric() => character,
        _ => '_',
    };
    let plain: String = name.chars().take(LONGEST_NAME).map(plain).collect();
    if plain.is_empty() { "_".to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_is_printed_as_one_word() {
        for (name, shown) in [("train.py", "train.py"), ("", "_"), ("a b\n\u{1b}[2J", "a_b___2J")] {
            assert_eq!(plain(name), shown, "{name:?}");
        }
        assert_eq!(plain(&"x".repeat(1000)).len(), LONGEST_NAME);
    }
}
