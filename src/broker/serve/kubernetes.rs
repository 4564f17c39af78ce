//! What Kubernetes asks for. Here is what the device plugin does: what there is, and reservations for pods.

mod claims;
mod divided;
mod dra;
mod given_up;
mod health;
mod instances;
mod policy;

pub(super) use claims::{prepare_claim, unprepare_claim};
pub(super) use divided::DividedGpus;
pub(super) use dra::dra_devices;
pub(super) use policy::policy;

use super::commands::Commands;
use crate::facts::Facts;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::claims::Claims;
use tranche_core::error::{Context, Error, Result};
use tranche_core::ledger::{Books, Claim, ClaimState, HeldPart, Holder, PodName};
use tranche_core::types::{DeviceKey, GpuUuid, ShareName};
use tranche_plan::host_file::HostFileSeen;
use tranche_plan::reserve::{OfExamined, Reservation, Unoffered, explain, list};
use tranche_plan::share::{SplitDevice, Wish, offers as offered};
use tranche_protocol::{Offer, Offers, PodReservation, Taken};
use tranche_state::controlled::{ControlledDevice, DaemonState};

/// What the kubelet may allocate, what of it is taken, and what does not work.
///
/// # Errors
/// Returns an error if the host or the ledger cannot be read.
pub(super) fn offers(commands: &Commands<'_>) -> Result<Value> {
    let facts = commands.facts()?;
    let books = Claims::open(commands.state_dir())?.books()?;
    let mut offers = offered(&facts.inventory, &facts.plan);
    let faults = Faults::now(commands, &facts, &books);
    for (key, offer) in &mut offers {
        offer.taken = taken(key, offer, &books);
        offer.unhealthy = faults.of(key);
        offer.out_of_service = books.out_of_service.why(key).map(|why| why.to_string());
    }
    let offers = offers.into_iter().map(|(_, offer)| offer).collect();
    let wrong_policy = facts.wrong_policy.clone();
    let placement = facts.plan.kubernetes.placement;
    let offers = Offers {
        offers,
        wrong_policy,
        placement,
        reserved: Some(reserved(&books)),
    };
    serde_json::to_value(offers).about("broker", "cannot write what it offers")
}

/// What does not work on this node.
struct Faults<'a> {
    changed: Vec<ControlledDevice>,
    /// A GPU may have many devices and shares, and is looked at once.
    lost: BTreeMap<GpuUuid, String>,
    books: &'a Books,
}

impl<'a> Faults<'a> {
    fn now(commands: &Commands<'_>, facts: &Facts, books: &'a Books) -> Self {
        Self {
            changed: commands.control.devices(),
            lost: health::lost(health::PCI_DEVICES.as_ref(), &facts.inventory.gpus),
            books,
        }
    }

    /// Why no container can use the device; `None` if it works.
    fn of(&self, key: &DeviceKey) -> Option<String> {
        let is_it = |device: &&ControlledDevice| device.key == *key;
        unreadable(key, self.books)
            .or_else(|| self.lost.get(key.gpu()).cloned())
            .or_else(|| self.changed.iter().find(is_it).and_then(why_refused))
    }
}

/// Why no container gets a share of a changed device: its daemon serves nobody. Its other problems are remarks, with
/// which containers start.
fn why_refused(device: &ControlledDevice) -> Option<String> {
    let state = device.daemon.as_ref()?.state;
    match state {
        DaemonState::Failed | DaemonState::Foreign => {
            // What is wrong with the daemon comes after the remarks.
            let why = device.problems.last().cloned();
            Some(why.unwrap_or_else(|| "its MPS daemon does not serve tranche's clients".to_owned()))
        }
        DaemonState::ServerFailed => Some("its MPS server does not start".to_owned()),
        DaemonState::Starting | DaemonState::Running | DaemonState::Stopping => None,
    }
}

/// Why it is not known what is held of the device.
fn unreadable(key: &DeviceKey, books: &Books) -> Option<String> {
    let damaged = books.damaged.iter().find(|book| book.may_be_of(key.gpu()))?;
    Some(tranche_core::error::line(&damaged.error))
}

/// What is held or reserved of a device, as far as it concerns `offer`.
fn taken(key: &DeviceKey, offer: &Offer, books: &Books) -> Vec<Taken> {
    let here = books.claims().filter(|claim| claim.device.overlaps(key));
    let of_claim = |claim: &Claim| -> Vec<Taken> {
        let with = |share: Option<String>| Taken {
            share,
            pod: claim.pod(),
            by: claim.who(),
        };
        match &claim.part {
            HeldPart::Shares(shares) if claim.device == *key => {
                shares.iter().map(|share| with(Some(share.name.to_string()))).collect()
            }
            _ => vec![with(None)],
        }
    };
    let all = here.flat_map(of_claim);
    all.filter(|taken| offer.concerns(taken)).collect()
}

/// What is reserved for pods. A container that uses it has a claim of the same name.
fn reserved(books: &Books) -> Vec<PodReservation> {
    let of_pods = books.claims().filter_map(|claim| {
        let (pod, id) = PodName::of_claim(claim.name.as_deref()?)?;
        let id = id.to_owned();
        Some(PodReservation { id, pod })
    });
    let all: BTreeSet<PodReservation> = of_pods.collect();
    all.into_iter().collect()
}

/// Reserves for `pod` what the kubelet has allocated to it: all of `ids`, or nothing.
///
/// # Errors
/// Returns who has one of them, that there is no such device, or why the ledger cannot be used.
pub(super) fn reserve(commands: &Commands<'_>, pod: &PodName, ids: &[String]) -> Result<Value> {
    check(pod)?;
    let seen = HostFileSeen::now(commands.state_dir());
    let facts = commands.facts()?;
    let known = offered(&facts.inventory, &facts.plan);
    let claims = Claims::open(commands.state_dir())?;
    let locked = claims.lock()?;
    let books = locked.books()?;
    let mut reservations = Vec::new();
    for id in ids {
        let found = known.iter().find(|(_, offer)| offer.has(id));
        let (key, offer) = found.ok_or_else(|| {
            Error::failed(format!("device {id}"), "is not offered to Kubernetes any more")
                .hint("the policy or the host has changed; delete the pod, so that it gets another device")
        })?;
        // Of a device that no policy names, nobody keeps a record.
        let Some(split) = facts.plan.devices.iter().find(|split| split.key == *key) else {
            continue;
        };
        let share = offer.share_of(id).map(str::parse).transpose()?;
        let share = share.unwrap_or_else(ShareName::whole);
        let part = split.part(std::slice::from_ref(&share));
        let name = pod.claim_on(id);
        match books.claims().find(|claim| claim.name.as_ref() == Some(&name)) {
            Some(claim) if claim.part == part && !claim.once => continue,
            // It ends with the container that uses it, or was of another size: it is reserved anew.
            Some(claim) if claim.state == ClaimState::Reserved => {
                locked.give_up(pod, std::slice::from_ref(id))?;
            }
            Some(claim) => {
                let what = format!("{} of an earlier policy is still in use by {}", claim.part, claim.who());
                return Err(Error::failed(format!("device {id}"), what));
            }
            None => {}
        }
        reservations.push(reservation(name, split, share, offer.cdi_name(id)));
    }
    if !reservations.is_empty() {
        let offer = OfExamined {
            offer: Unoffered,
            inventory: &facts.inventory,
            seen: &seen,
        };
        let reserved = facts.plan.reserve_all(&locked, &reservations, &offer);
        reserved.map_err(|error| explain(pod, error, list))?;
    }
    // Also what the pod had already: a request that is repeated makes its promise again.
    let is_asked = |gpu: &GpuUuid| {
        let mut devices = known.iter().filter(|(_, offer)| ids.iter().any(|id| offer.has(id)));
        devices.any(|(key, _)| key.gpu() == gpu)
    };
    warn(&locked.keep(is_asked)?);
    Ok(json!({}))
}

fn reservation(name: String, split: &SplitDevice, share: ShareName, cdi: String) -> Reservation {
    let wish = Wish {
        names: vec![share],
        device: Some(split.device),
        ..Wish::default()
    };
    Reservation {
        name,
        wish,
        holder: Holder::Person,
        process: None,
        asked_as: Some(cdi),
        once: false,
        for_root: false,
        ttl: None,
    }
}

/// Gives up what `pod` had of `ids`.
///
/// # Errors
/// Returns an error if the ledger cannot be changed.
pub(super) fn give_up(commands: &Commands<'_>, pod: &PodName, ids: &[String]) -> Result<Value> {
    check(pod)?;
    let claims = Claims::open(commands.state_dir())?;
    let damaged = claims.lock()?.give_up(pod, ids)?;
    warn(&damaged);
    Ok(json!({}))
}

fn check(pod: &PodName) -> Result<()> {
    match pod.is_valid() {
        true => Ok(()),
        false => Err(Error::usage("pod", "its namespace or name is not valid in Kubernetes")),
    }
}

/// Reservations of other GPUs that could not be read or kept. The kubelet names pods and resource claims again.
fn warn(wrong: &[Error]) {
    for error in wrong {
        tracing::warn!("reservations over a reboot: {}", tranche_core::error::line(error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_state::controlled::DaemonStatus;

    fn device(state: DaemonState, problems: &[&str]) -> ControlledDevice {
        ControlledDevice {
            device: "nvidia.com/gpu=1".into(),
            key: "GPU-11111111".parse().unwrap(),
            daemon: Some(DaemonStatus {
                is_of_earlier_version: false,
                state,
                pid: None,
                since: None,
                restarts: 0,
                memory_mib: None,
                compute_percent: None,
                lost: Vec::new(),
            }),
            compute_mode_before: None,
            time_slice: None,
            cgroup_limits: Vec::new(),
            idle_since: None,
            problems: problems.iter().map(|&line| line.to_owned()).collect(),
        }
    }

    #[test]
    fn only_a_daemon_that_serves_nobody_makes_a_device_unhealthy() {
        let remark = "is in the compute mode EXCLUSIVE_PROCESS, which tranche did not set";
        for state in [DaemonState::Starting, DaemonState::Running, DaemonState::Stopping] {
            assert_eq!(why_refused(&device(state, &[remark])), None, "{state:?}");
        }
        for state in [DaemonState::Failed, DaemonState::Foreign] {
            let failed = device(state, &[remark, "its MPS daemon has ended"]);
            assert_eq!(why_refused(&failed).unwrap(), "its MPS daemon has ended");
            assert!(why_refused(&device(state, &[])).is_some());
        }
        let by_turns = ControlledDevice {
            daemon: None,
            ..device(DaemonState::Running, &["the length of a turn could not be asked"])
        };
        assert_eq!(why_refused(&by_turns), None);
    }
}
