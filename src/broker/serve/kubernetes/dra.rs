//! What the driver for dynamic resource allocation may publish.

use super::divided::divided_gpus;
use super::{Commands, Faults};
use serde_json::Value;
use std::collections::BTreeSet;
use tranche_core::claims::Claims;
use tranche_core::error::{Context, Result};
use tranche_core::ledger::{Books, Claim, HeldPart, KubernetesObject};
use tranche_core::types::DeviceKey;
use tranche_protocol::{DraDevices, DraHeld};

/// The devices, what of them others hold, and the resource claims for which something is reserved here.
///
/// # Errors
/// Returns an error if the host or the ledger cannot be read.
pub(in crate::serve) fn dra_devices(commands: &Commands<'_>) -> Result<Value> {
    let facts = commands.facts()?;
    let books = Claims::open(commands.state_dir())?.books()?;
    let faults = Faults::now(commands, &facts, &books);
    let divided = divided_gpus(commands, &facts, &faults)?;
    let mut devices = Vec::new();
    for (key, mut device) in tranche_plan::share::dra_devices(&facts.inventory, &facts.plan) {
        if !key.is_whole() && divided.hidden.contains(key.gpu()) {
            continue;
        }
        device.unhealthy = faults.of(&key);
        device.out_of_service = books.out_of_service.why(&key).map(|why| why.to_string());
        device.held = held(&key, &books);
        devices.push(device);
    }
    let driver = facts.inventory.driver.as_ref();
    let answer = DraDevices {
        devices,
        driver: driver.map(|driver| driver.version.to_string()),
        cuda: driver.and_then(|driver| driver.cuda).map(|cuda| cuda.to_string()),
        claims: reserved(&books),
        divided: divided.offered,
    };
    serde_json::to_value(answer).about("broker", "cannot write what it offers")
}

/// The resource claims for which something is reserved.
fn reserved(books: &Books) -> Vec<KubernetesObject> {
    let of_claims = books.claims().filter(|claim| is_counted_by_the_scheduler(claim));
    let claims: BTreeSet<KubernetesObject> = of_claims.filter_map(Claim::resource_claim).collect();
    claims.into_iter().collect()
}

/// Whether the scheduler knows of it. What was given up while a container ran is one that it gives away again.
fn is_counted_by_the_scheduler(claim: &Claim) -> bool {
    claim.resource_claim().is_some() && !claim.once
}

/// What others hold of the device.
fn held(key: &DeviceKey, books: &Books) -> Vec<DraHeld> {
    let others = books.claims().filter(|claim| {
        let is_others = !claim.joined && !is_counted_by_the_scheduler(claim);
        claim.device.overlaps(key) && is_others
    });
    let of_claim = |claim: &Claim| -> Vec<DraHeld> {
        let by = claim.who();
        match &claim.part {
            HeldPart::Shares(shares) if claim.device == *key => {
                let share = |share: &tranche_core::types::HeldShare| DraHeld {
                    share: Some(share.name.to_string()),
                    memory: share.promise.memory(),
                    compute: share.promise.compute(),
                    by: by.clone(),
                };
                shares.iter().map(share).collect()
            }
            _ => vec![DraHeld {
                share: None,
                memory: None,
                compute: None,
                by,
            }],
        }
    };
    others.flat_map(of_claim).collect()
}
