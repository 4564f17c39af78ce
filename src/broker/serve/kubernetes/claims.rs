//! Resource claims of Kubernetes: their devices are reserved in the ledger and made ready, and a specification gives
//! them names for the engine.
//!
//! All of it may be done again at any time: after a reboot the specification is gone, and the kubelet asks again.

use super::given_up::GivenUp;
use super::instances::ClaimInstances;
use super::{Commands, warn};
use crate::facts::Facts;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use tranche_core::claims::{ClaimPart, Claims, LockedClaims, NotReserved, explain, remove};
use tranche_core::error::{Context, Error, Result, line};
use tranche_core::ledger::{KubernetesObject, LedgerError, OutOfService, Refused};
use tranche_core::types::{CdiKind, DeviceKey, HostPath};
use tranche_plan::cdi::build;
use tranche_plan::cdi::encode::{Format, encode};
use tranche_plan::derive::{self, ClaimDevice, HookOptions, Options, RESOURCE_CLAIM_FILE, Sharing, WatchedDevice};
use tranche_plan::host_file::HostFileSeen;
use tranche_plan::share::{dra_instance, dra_limits, dra_part, dra_together, dra_watched};
use tranche_protocol::{AllocatedDevice, GivenDevice, PrepareClaimRequest, PreparedClaim};
use tranche_state::replace::{FileOptions, Prepared};

/// The most devices of one claim (`resource.k8s.io/v1`, AllocationResultsMaxSize).
const MOST_DEVICES: usize = 32;

/// Makes the devices of a claim ready for its containers, and returns their CDI names.
///
/// # Errors
/// Returns who holds one of them, what is not on this node, or what does not work. Nothing is reserved then but what
/// was before.
pub(in crate::serve) fn prepare_claim(commands: &Commands<'_>, request: &PrepareClaimRequest) -> Result<Value> {
    check(&request.claim, &request.devices)?;
    let claims = Claims::open(commands.state_dir())?;
    let instances = ClaimInstances::wanted(&request.devices);
    if !instances.is_empty() {
        // A late call makes no instance.
        drop(lock_ledger(commands, &claims, request)?);
    }
    let instances = ClaimInstances::make(commands, &request.claim, &instances)?;
    let prepared = instances
        .facts(commands)
        .and_then(|(seen, facts)| prepare(commands, &facts, &seen, &claims, request, &instances.keys));
    if !prepared.as_ref().is_ok_and(|prepared| prepared.held.is_none()) {
        instances.give_back(commands);
    }
    serde_json::to_value(prepared?).about("broker", "cannot write its answer")
}

/// Locks the ledger, if the claim was not given up since the kubelet has asked.
fn lock_ledger<'c>(
    commands: &Commands<'_>,
    claims: &'c Claims,
    request: &PrepareClaimRequest,
) -> Result<LockedClaims<'c>> {
    let locked = claims.lock()?;
    match GivenUp::read(commands.state_dir())?.is_since(&request.claim.uid, request.asked_at) {
        false => Ok(locked),
        true => Err(Error::failed(
            &request.claim,
            "was given up after the kubelet had asked for this",
        )),
    }
}

/// Reserves the devices of a claim, of which `instances` are made, and writes its specification.
fn prepare(
    commands: &Commands<'_>,
    facts: &Facts,
    seen: &HostFileSeen,
    claims: &Claims,
    request: &PrepareClaimRequest,
    instances: &BTreeMap<String, DeviceKey>,
) -> Result<PreparedClaim> {
    let claim = &request.claim;
    // First, so that a late call is known as one whatever else is wrong with it.
    let locked = lock_ledger(commands, claims, request)?;
    let names = names(claim, &request.devices)?;
    let parts = parts(facts, claim, &request.devices, &names, instances)?;
    let watched = watched(facts, &request.devices, &names)?;
    let gone = seen.gone(&facts.inventory).about("host", "is not known")?;
    if let Some(one) = parts.iter().find(|one| gone.contains(&one.part.split.key)) {
        return Err(Error::failed(one.part.split.device, "was destroyed meanwhile"));
    }
    // What needs room comes before the reservation, which could not be given up on a full disk.
    let specification = specification(commands, facts, claim, &parts, &watched)?;
    let wanted: Vec<ClaimPart> = parts.iter().map(|one| reservation(one)).collect();
    let reserved = match locked.reserve_for(claim, &wanted) {
        Ok(reserved) => reserved,
        Err(NotReserved { part, error }) => {
            let may_end = matches!(&error, LedgerError::Refused(refused) if ends_by_itself(refused));
            let error = match part.and_then(|place| parts.get(place)) {
                Some(one) => explain(format_args!("{claim} on {}", one.part.split.device), error),
                None => explain(claim, error),
            };
            return match request.waits && may_end {
                true => Ok(PreparedClaim {
                    cdi: Vec::new(),
                    held: Some(line(&error)),
                    given: Vec::new(),
                }),
                false => Err(error),
            };
        }
    };
    warn(&reserved.problems);
    let prepared = specification.put_in_place();
    drop(locked);
    let prepared = prepared.and_then(|()| make_ready(commands, &parts));
    if let Err(error) = prepared {
        // What its containers use already stays reserved.
        let given_up = match reserved.had {
            true => Ok(()),
            false => claims
                .lock()
                .map_err(Error::from)
                .and_then(|locked| give_up(commands, &locked, &claim.uid)),
        };
        return Err(match given_up {
            Ok(()) => error,
            Err(other) => error.and_hint(format_args!("it stays reserved, because {}", line(&other))),
        });
    }
    let cdi = names
        .iter()
        .map(|name| format!("{}={name}", CdiKind::claim()))
        .collect();
    let mut owned = parts.iter().map(given);
    let given = request.devices.iter().map(|one| match one.admin {
        true => None,
        false => owned.next(),
    });
    Ok(PreparedClaim {
        cdi,
        held: None,
        given: given.collect(),
    })
}

fn given(one: &ClaimDevice<'_>) -> GivenDevice {
    GivenDevice {
        uuid: one.part.split.uuid.clone(),
        strategy: one.part.promise.strategy(),
        share: one.part.part.shares().first().map(|share| share.name.to_string()),
        memory: one.limits.memory(),
        compute: one.limits.compute(),
    }
}

/// Whether a holder may end soon, and with it what it refuses.
fn ends_by_itself(refused: &Refused) -> bool {
    matches!(
        refused,
        Refused::Taken { .. } | Refused::Misfit { .. } | Refused::Waiting { .. }
    )
}

/// Gives up what is reserved for a claim. It needs neither the driver nor the policy, and a claim that is unknown is
/// given up already.
///
/// # Errors
/// Returns an error if the ledger or a file cannot be changed.
pub(in crate::serve) fn unprepare_claim(commands: &Commands<'_>, uid: &str) -> Result<Value> {
    if !KubernetesObject::is_uid(uid) {
        return Err(Error::usage(format!("claim {uid:?}"), "is not the UID of an object"));
    }
    let claims = Claims::open(commands.state_dir())?;
    let locked = claims.lock()?;
    GivenUp::read(commands.state_dir())?.add(uid)?;
    give_up(commands, &locked, uid)?;
    drop(locked);
    commands.wake();
    Ok(json!({}))
}

fn give_up(commands: &Commands<'_>, locked: &LockedClaims<'_>, uid: &str) -> Result<()> {
    warn(&locked.give_up_claim(uid)?);
    // No container can use what is left.
    remove(&file(commands, uid)).map_err(|error| {
        Error::failed(format!("claim {uid}"), "was given up, and its specification is left").from_source(error)
    })
}

/// The name of each device in the specification of the claim.
fn names(claim: &KubernetesObject, devices: &[AllocatedDevice]) -> Result<Vec<String>> {
    let own: Vec<String> = devices.iter().map(own_name).collect();
    let mut seen = BTreeSet::new();
    match own.iter().find(|name| !seen.insert(*name)) {
        Some(twice) => Err(Error::usage(format!("device {twice}"), "is in the claim twice")),
        None => Ok(own.iter().map(|name| format!("{}-{name}", claim.uid)).collect()),
    }
}

/// What tells a device from the others of its claim.
fn own_name(device: &AllocatedDevice) -> String {
    match &device.share_id {
        Some(share) => format!("{}-{share}", device.device),
        None => device.device.clone(),
    }
}

/// The devices that the claim owns. `names` has a name for each of `devices`.
fn parts<'a>(
    facts: &'a Facts,
    claim: &KubernetesObject,
    devices: &[AllocatedDevice],
    names: &[String],
    instances: &BTreeMap<String, DeviceKey>,
) -> Result<Vec<ClaimDevice<'a>>> {
    let owned = devices.iter().zip(names).filter(|(device, _)| !device.admin);
    let part = |(device, name): (&AllocatedDevice, &String)| {
        let part = match instances.get(&device.device) {
            Some(key) => dra_instance(&facts.plan, device, key)?,
            None => dra_part(&facts.inventory, &facts.plan, device)?,
        };
        let limits = dra_limits(device, &part)?;
        Ok(ClaimDevice {
            name: name.clone(),
            claim: claim.claim_on(&own_name(device)),
            part,
            limits,
        })
    };
    let parts: Vec<ClaimDevice<'_>> = owned.clone().map(part).collect::<Result<_>>()?;
    dra_together(owned.map(|(device, _)| device).zip(parts.iter().map(|one| &one.part)))?;
    Ok(parts)
}

/// The devices that the claim watches by admin access: no hook claims them, and nobody waits for them.
fn watched(facts: &Facts, devices: &[AllocatedDevice], names: &[String]) -> Result<Vec<WatchedDevice>> {
    let watched = devices.iter().zip(names).filter(|(device, _)| device.admin);
    let one = |(device, name): (&AllocatedDevice, &String)| {
        Ok(WatchedDevice {
            name: name.clone(),
            device: dra_watched(&facts.inventory, &facts.plan, &device.device)?,
        })
    };
    watched.map(one).collect()
}

fn reservation(one: &ClaimDevice<'_>) -> ClaimPart {
    ClaimPart {
        device: one.part.split.key.clone(),
        part: one.part.part.clone(),
        bounds: one.part.split.bounds(),
        name: one.claim.clone(),
        asked_as: one.cdi_name(),
    }
}

/// The specification of the claim, which is on the disk and has no name yet that engines read.
fn specification(
    commands: &Commands<'_>,
    facts: &Facts,
    claim: &KubernetesObject,
    parts: &[ClaimDevice<'_>],
    watched: &[WatchedDevice],
) -> Result<Prepared> {
    let options = Options {
        hook: Some(HookOptions::at(facts.hook.clone())),
        sharing: Some(Sharing {
            plan: Arc::clone(&facts.plan),
            held: BTreeSet::new(),
            out_of_service: OutOfService::default(),
            state_dir: HostPath::new(commands.state_dir())?,
        }),
        ..Options::default()
    };
    let derived = derive::resource_claim(&facts.inventory, &options, &claim.to_string(), parts, watched)?;
    let (spec, _) = build(&derived, None)?;
    let header = format!("Made by tranche {} for {claim}", env!("CARGO_PKG_VERSION"));
    let text = encode(&spec, Format::Yaml, &[header])?;
    Prepared::new(&file(commands, &claim.uid), &text, &FileOptions::default())
}

/// Changes the machine for the shares of the claim: an MPS daemon takes seconds to start, and the kubelet says so at
/// the pod while it waits.
fn make_ready(commands: &Commands<'_>, parts: &[ClaimDevice<'_>]) -> Result<()> {
    let keys: BTreeSet<&DeviceKey> = parts.iter().map(|one| &one.part.split.key).collect();
    for key in keys {
        let prepared = commands.make_ready(key);
        commands.wake();
        prepared?;
    }
    Ok(())
}

fn file(commands: &Commands<'_>, uid: &str) -> PathBuf {
    commands
        .options
        .spec_dir
        .join(format!("{RESOURCE_CLAIM_FILE}{uid}.yaml"))
}

fn check(claim: &KubernetesObject, devices: &[AllocatedDevice]) -> Result<()> {
    if !claim.is_valid() {
        return Err(Error::usage(
            "claim",
            "its namespace, name or UID is not valid in Kubernetes",
        ));
    }
    match devices.len() {
        0 => Err(Error::usage(claim, "has no device of this node")),
        1..=MOST_DEVICES => Ok(()),
        many => Err(Error::usage(
            claim,
            format!("has {many} devices, and Kubernetes allocates at most {MOST_DEVICES}"),
        )),
    }
}
