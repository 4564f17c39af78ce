//! Waiting for the first turn: until then, a holder cannot open its device.

use super::TurnDesk;
use crate::serve::commands::Commands;
use crate::serve::peer::BrokerClient;
use crate::turns::TurnHolder;
use crate::verbs::Caller;
use serde_json::Value;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tranche_core::broker::{FirstTurnAnswer, FirstTurnRequest, first_turn_refused};
use tranche_core::claims::Claims;
use tranche_core::error::{Context, Error, Result};
use tranche_core::ledger::process::Machine;
use tranche_core::ledger::{InitProcess, Strategy};
use tranche_core::types::DeviceKey;
use tranche_plan::hold;
use tranche_state::held::span;
use tranche_state::mutex::lock;
use tranche_state::turns::TurnRecord;

/// How often it is looked whether the claim still exists.
const LOOK: Duration = Duration::from_secs(1);

impl TurnDesk {
    /// Waits until another look is over, at most for `most`. Returns whether there will be another one.
    fn next_look(&self, most: Duration) -> bool {
        let state = lock(&self.state);
        let waited = self.looked.wait_timeout(state, most);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_closed
    }
}

/// Answers what a claim waits for, after its wait.
///
/// # Errors
/// Returns an error if the process of the request holds nothing of the device.
pub(in crate::serve) fn first_turn(
    commands: &Commands<'_>,
    peer: &BrokerClient,
    request: &FirstTurnRequest,
) -> Result<Value> {
    let waits_for = wait(commands, peer, &request.device, request.pid, request.wait.get())?;
    serde_json::to_value(FirstTurnAnswer { waits_for }).about("broker", "cannot write its answer")
}

/// Waits up to `left` until the container with this init has the device, if its holders have that by turns.
///
/// # Errors
/// Returns what it waits for after that time, or that nothing of the device is held any more.
pub(in crate::serve) fn await_first_turn(
    commands: &Commands<'_>,
    peer: &BrokerClient,
    device: &DeviceKey,
    pid: u32,
    left: Duration,
) -> Result<()> {
    match wait(commands, peer, device, pid, left)? {
        None => Ok(()),
        Some(waits_for) => Err(first_turn_refused(device, &waits_for, left)),
    }
}

fn wait(
    commands: &Commands<'_>,
    peer: &BrokerClient,
    device: &DeviceKey,
    pid: u32,
    most: Duration,
) -> Result<Option<String>> {
    let process = peer.init(pid, &Machine::here()?)?;
    let until = Instant::now() + most;
    loop {
        let waits_for = waits_for(commands, peer.caller(), device, &process)?;
        let left = until.saturating_duration_since(Instant::now());
        // The next broker is asked again.
        if waits_for.is_none() || left.is_zero() || !commands.turns.next_look(left.min(LOOK)) {
            return Ok(waits_for);
        }
    }
}

/// What the claim of a process on the device waits for; `None` if it has the device, or needs no turn.
fn waits_for(
    commands: &Commands<'_>,
    caller: Caller,
    device: &DeviceKey,
    process: &InitProcess,
) -> Result<Option<String>> {
    let state_dir = commands.state_dir();
    let ended = || Error::failed(device, format!("process {} holds nothing of it any more", process.pid));
    let claims = Claims::existing(state_dir)?.ok_or_else(ended)?;
    let books = claims.books()?;
    let is_of = |init: &InitProcess| (init.pid, init.namespace) == (process.pid, process.namespace);
    let mut own = books
        .claims()
        .filter(|claim| claim.device == *device && caller.sees(claim) && claim.process.as_ref().is_some_and(is_of));
    let claim = own.next().ok_or_else(ended)?;
    if claim.part.strategy() != Strategy::Turns {
        return Ok(None);
    }
    let holders = TurnHolder::all(&books, device);
    let holder = holders.iter().find(|(_, holder)| holder.claim.part == claim.part);
    let (key, _) = holder.ok_or_else(ended)?;
    let record = TurnRecord::read(state_dir, device)?;
    let is_changing = record.change.as_ref().is_some_and(|change| change.is_of(key));
    if record.is_resident(key) && !is_changing {
        return Ok(None);
    }
    let resident = record.resident.as_ref().and_then(|resident| holders.get(resident));
    let is_aside = record.holders.get(key).is_some_and(|known| known.is_put_aside);
    let waits_for = match resident {
        _ if is_aside => "it was suspended, and tranche resume lets it have the device".to_owned(),
        Some(resident) if resident.claim.part != claim.part => {
            let who = match caller.sees(&resident.claim) {
                true => resident.who(),
                false => "another holder".to_owned(),
            };
            let since = record.holders.get(&hold::key(&resident.claim)).map(|known| known.since);
            let had = since.map(|since| span(claims.uptime().saturating_sub(since)));
            let gives_way = if is_changing { ", and gives way now" } else { "" };
            format!(
                "{who} has had the device for {}{gives_way}",
                had.unwrap_or_else(|| span(0))
            )
        }
        _ if is_changing => "the device is being given to it".to_owned(),
        Some(_) | None => "others wait for the device, too".to_owned(),
    };
    // What is wrong with a change names holders.
    let trouble = record.trouble.filter(|_| caller == Caller::Root);
    let trouble = trouble.map(|why| format!("; {why}")).unwrap_or_default();
    Ok(Some(format!("{waits_for}{trouble}")))
}
