//! `/metrics`: what every user may know, as `tranche metrics` writes it. Nobody is named, because everybody reads it.

use crate::public::Public;
use crate::spans::uptime;
use rusqlite::{Connection, OptionalExtension, params};
use std::path::Path;
use tranche_core::ledger::events::this_boot;
use tranche_core::ledger::{ClaimState, OutOfService, Outage};
use tranche_core::types::{PROGRAM_VERSION, Strategy};
use tranche_state::metrics::{
    Exposition, Identity, Names, Naming, catalogue as family, count, of_daemon, of_devices, of_turns, truth,
};
use tranche_state::public_status::PublicDevice;

/// The text about the machine whose state is in `state_dir`, with these names.
///
/// # Errors
/// Returns the error of SQLite.
pub(crate) fn metrics(database: &Connection, state_dir: &Path, names: Names) -> rusqlite::Result<String> {
    let public = Public::read(state_dir);
    let out_of_service = OutOfService::read(state_dir);
    let mut out = Exposition::default();
    out.add(family::BUILD, &[PROGRAM_VERSION], 1.0);
    let missing = usize::from(public.status.is_none()) + usize::from(out_of_service.unreadable.is_some());
    out.add(family::PROBLEMS, &[], count(missing));
    of_devices(&mut out, &public.devices);
    let name = |outage: &Outage| {
        let known = public.devices.iter().find(|device| device.key == outage.device);
        known.map_or_else(|| outage.device.to_string(), |device| device.device.clone())
    };
    for outage in out_of_service.drained.iter().chain(&out_of_service.prohibited) {
        let labels = [&name(outage), outage.reason.as_deref().unwrap_or_default()];
        out.add(family::OUT, &labels, truth(outage.is_in_force()));
    }
    let devices = || public.status.iter().flat_map(|status| &status.devices);
    for device in devices() {
        of_claims(&mut out, device);
        if let Some(daemon) = &device.daemon {
            of_daemon(&mut out, &device.device, daemon.state, daemon.restarts);
        }
        if let Some(turns) = &device.turns {
            of_turns(&mut out, &device.device, turns);
        }
    }
    of_waits(&mut out, database)?;
    let identities = devices().map(|device| (device.device.clone(), identity(device)));
    Ok(out.text(&Naming::new(names, identities.collect())))
}

/// Two claims of an earlier and the present policy on shares of one name are one series: what the file does not have
/// are their sizes.
fn of_claims(out: &mut Exposition, device: &PublicDevice) {
    for claim in &device.claims {
        let (shares, strategy) = match &claim.shares[..] {
            [] => ("whole".to_owned(), Some(Strategy::Dedicated)),
            shares => (shares.join(","), device.strategy),
        };
        let label = [device.device.as_str(), &shares];
        let strategy = strategy.map(|strategy| strategy.to_string()).unwrap_or_default();
        let labels = [label[0], label[1], &strategy, "", "", ""];
        out.add(family::CLAIM, &labels, truth(claim.state == ClaimState::Held));
        out.add(family::CLAIM_SINCE, &label, claim.since as f64);
    }
}

fn of_waits(out: &mut Exposition, database: &Connection) -> rusqlite::Result<()> {
    let mut open = database.prepare_cached(
        "SELECT count(*), min(w.began) FROM waits w JOIN boots b ON b.id = w.boot WHERE b.boot = ?1 AND w.ended IS NULL",
    )?;
    let found = open.query_row(params![this_boot()], |row| Ok((row.get(0)?, row.get(1)?)));
    let (number, first): (i64, Option<i64>) = found.optional()?.unwrap_or_default();
    out.add(family::WAITERS, &[], number as f64);
    let waited = first.map_or(0, |first| (uptime() - first).max(0));
    out.add(family::LONGEST, &[], waited as f64);
    Ok(())
}

/// The file has neither the address nor the model of a GPU.
fn identity(device: &PublicDevice) -> Identity {
    let name = device.device.split_once('=').map(|(_, name)| name);
    let index = name.and_then(|name| name.split(':').next());
    Identity {
        key: device.key.clone(),
        index: index.filter(|index| index.parse::<u32>().is_ok()).map(str::to_owned),
        pci: None,
        model: None,
        profile: None,
    }
}

#[cfg(test)]
mod tests;
