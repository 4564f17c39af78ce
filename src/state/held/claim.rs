//! A claim as it is shown to people and programs. The names of the fields are documented in docs/reference/claims.md,
//! and programs depend on them.

use super::{container_id, container_text, or_dash};
use crate::turns::TurnRecord;
use serde::{Deserialize, Serialize};
use std::path::Path;
use tranche_core::error::Result;
use tranche_core::ledger::{Claim, ClaimState, HeldPart, Holder, KubernetesObject, PodName, Strategy};
use tranche_core::text::some;
use tranche_core::types::{DeviceKey, MemorySize, Percent};
use tranche_plan::hold;

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The name under which an engine is asked for it: `nvidia.com/gpu=0.3`, `nvidia.com/claim=train1`.
    pub cdi: String,
    /// The claim's own name; `null` for one that a container's start made.
    pub name: Option<String>,
    /// The device: `nvidia.com/gpu=0`.
    pub device: String,
    /// The device's key in the ledger.
    pub key: DeviceKey,
    /// Whether the whole device is held.
    pub whole: bool,
    /// The shares that are held; empty for a whole device.
    pub shares: Vec<String>,
    /// How the device is shared.
    pub strategy: Strategy,
    /// The memory that was promised; `null` without a limit.
    pub memory_mib: Option<u64>,
    /// Percent of the device; `null` without a limit.
    pub compute_percent: Option<u32>,
    /// Whether it is in use.
    pub state: ClaimState,
    /// Who uses it; `null` while a claim made beforehand waits for its container.
    pub container: Option<HeldContainer>,
    /// The pod of Kubernetes that it is reserved for; `null` for every other claim.
    #[serde(default)]
    pub pod: Option<PodName>,
    /// The resource claim of Kubernetes that it is reserved for, or that its container uses; `null` for every other
    /// claim.
    #[serde(default)]
    pub resource_claim: Option<KubernetesObject>,
    /// The program that uses it without a container; `null` for any other holder.
    pub process: Option<HeldProcess>,
    /// The user who made it.
    pub uid: u32,
    /// When it was made, in seconds since 1970.
    pub since: u64,
    /// Seconds for which it lasts while no container uses it; `null` for one that lasts until it is released.
    pub ttl: Option<u64>,
    /// Seconds until it ends; `null` while it is in use, and for one without a ttl.
    pub seconds_left: Option<u64>,
    /// For how much longer it is held than the policy lets its user; `null` if it is not, and where nobody has looked.
    #[serde(default)]
    pub too_long: Option<HeldTooLong>,
    /// For how long it has done nothing, where the policy limits that; `null` elsewhere, and where nobody has looked.
    #[serde(default)]
    pub idle: Option<HeldIdle>,
    /// Whether it has the device now, where holders have it by turns; `null` elsewhere, and while nobody uses it.
    #[serde(default)]
    pub turn: Option<HeldTurn>,
    /// Why the broker cannot end its holder, as the policy wants it; `null` if it can, or if it does not want to.
    #[serde(default)]
    pub cannot_be_ended: Option<String>,
    /// Whether it is released together with its container.
    pub once: bool,
    /// Whether containers of engines that run as root may use it, although it belongs to another user.
    #[serde(default)]
    pub for_root: bool,
    /// The specification of a claim made beforehand.
    pub spec_file: Option<String>,
    /// What its processes use now; `null` if that was not asked or is unknown.
    pub usage: Option<HeldUsage>,
    /// The shares with their sizes, which two claims on one device never have in common.
    #[serde(skip)]
    pub sized: Vec<String>,
    /// Whether its processes can be told from others here.
    #[serde(skip)]
    pub can_be_seen: bool,
}

/// Whether a claim has a device that its holders have by turns. Each time is in seconds since boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTurn {
    /// Whether it can use the device.
    pub is_resident: bool,
    /// Since when it has been so.
    pub since: u64,
    /// Since when it has wanted the device; `null` if it does not, and while it has it.
    pub wants_since: Option<u64>,
    /// Whether a person has suspended it.
    pub is_put_aside: bool,
    /// Its memory that is in that of the machine.
    pub host_memory_mib: u64,
    /// Why the last change of the device failed; `null` after one that did not.
    pub trouble: Option<String>,
}

impl HeldTurn {
    /// That of `claim`, as the broker has recorded it. For root alone, why the device was not given to others.
    ///
    /// # Errors
    /// Returns an error if the record cannot be used.
    pub fn of(claim: &Claim, state_dir: &Path, is_for_root: bool) -> Result<Option<Self>> {
        if claim.part.strategy() != Strategy::Turns {
            return Ok(None);
        }
        let record = TurnRecord::read(state_dir, &claim.device)?;
        let key = hold::key(claim);
        let is_resident = record.is_resident(&key);
        Ok(record.holders.get(&key).map(|holder| Self {
            is_resident,
            since: holder.since,
            wants_since: holder.wants_since,
            is_put_aside: holder.is_put_aside,
            host_memory_mib: if is_resident { 0 } else { holder.bytes >> 20 },
            trouble: match is_for_root {
                true => record.trouble.as_ref(),
                false => record.trouble_for(&key),
            }
            .cloned(),
        }))
    }

    /// In a few words: `has the device`, `suspended`, `waits for its turn`, `away`.
    pub fn state(&self) -> &'static str {
        match (self.is_resident, self.is_put_aside, self.wants_since) {
            (true, ..) => "has the device",
            (_, true, _) => "suspended",
            (.., Some(_)) => "waits for its turn",
            (.., None) => "away",
        }
    }
}

/// A claim that its user has held for too long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTooLong {
    /// For how many seconds longer than the limit.
    pub by_seconds: u64,
    /// The entry of the policy that has the limit: `sharing.users.default`.
    pub limit: String,
}

/// For how long a claim has done nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldIdle {
    /// Seconds since its last work; `null` if the driver does not say it.
    pub seconds: Option<u64>,
    /// Why the driver does not say it; `null` if it does.
    pub unknown: Option<String>,
    /// For how many seconds longer than the limit; `null` if it is not.
    pub by_seconds: Option<u64>,
    /// The entry of the policy that has the limit: `sharing.users.default`.
    pub limit: String,
}

/// What the processes of a claim use. A field is `null` if the driver does not report it of each process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldUsage {
    /// How many processes of it use the device.
    pub processes: usize,
    /// Their memory.
    pub memory_mib: Option<u64>,
    /// Percent of the last sample period in which a kernel of them ran.
    pub busy_percent: Option<u32>,
}

/// A program that `tranche run` started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldProcess {
    /// The name of its file.
    pub program: String,
    /// Its number.
    pub pid: Option<u32>,
}

/// A container that uses a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldContainer {
    /// As its engine knows it.
    pub id: String,
    /// The user whose own engine has it; `null` for one of an engine that runs as root. A user chooses the id.
    pub user: Option<u32>,
    /// The name that its engine shows; `null` if no file of the engine has it.
    pub name: Option<String>,
    /// The directory of its bundle.
    pub bundle: String,
    /// The number of its init, in the pid namespace of the engine.
    pub pid: Option<u32>,
}

/// What the ledger does not know of a claim, because it changes or belongs to others.
#[derive(Debug)]
pub struct ClaimNames {
    /// The name under which an engine is asked for it.
    pub cdi: String,
    /// The name of its device.
    pub device: String,
    /// The name of its container in the engine.
    pub container: Option<String>,
}

impl Held {
    /// `claim` under these names, at `uptime` seconds since boot.
    pub fn new(claim: &Claim, names: ClaimNames, uptime: u64) -> Self {
        let promise = claim.part.promise();
        let container = claim.holder.any_container().map(|container| HeldContainer {
            id: container.id.clone(),
            user: match claim.holder {
                Holder::Rootless { user, .. } => Some(user),
                _ => None,
            },
            name: names.container,
            bundle: container.bundle.clone(),
            pid: claim.process.as_ref().map(|p| p.pid),
        });
        let process = match &claim.holder {
            Holder::Process { program, .. } => Some(HeldProcess {
                program: program.clone(),
                pid: claim.process.as_ref().map(|p| p.pid),
            }),
            _ => None,
        };
        Self {
            cdi: names.cdi,
            name: claim.given_name().map(str::to_owned),
            device: names.device,
            key: claim.device.clone(),
            whole: claim.part == HeldPart::Whole,
            shares: claim.part.shares().iter().map(|s| s.name.to_string()).collect(),
            strategy: claim.part.strategy(),
            memory_mib: promise.and_then(|p| p.memory()).map(MemorySize::mib),
            compute_percent: promise.and_then(|p| p.compute()).map(Percent::get),
            state: claim.state,
            container,
            pod: claim.pod(),
            resource_claim: claim.resource_claim(),
            process,
            uid: claim.uid,
            since: claim.since,
            ttl: claim.ttl,
            seconds_left: claim.until.map(|until| until.saturating_sub(uptime)),
            too_long: None,
            idle: None,
            turn: None,
            cannot_be_ended: None,
            once: claim.once,
            for_root: claim.for_root,
            spec_file: claim.spec_file.clone(),
            usage: None,
            sized: claim
                .part
                .shares()
                .iter()
                .map(|s| format!("{} ({})", s.name, s.promise))
                .collect(),
            can_be_seen: true,
        }
    }

    /// Whether a container uses it.
    pub fn is_in_use(&self) -> bool {
        self.state == ClaimState::Held
    }

    /// Who holds it, in a sentence.
    pub fn by(&self) -> String {
        if let Some(pod) = &self.pod {
            return pod.to_string();
        }
        if let Some(claim) = &self.resource_claim {
            return claim.to_string();
        }
        match (&self.container, &self.process) {
            (Some(container), _) => format!("container {}", container.shown()),
            (None, Some(process)) => process.shown(),
            (None, None) => format!("user {} (no container yet)", self.uid),
        }
    }

    /// Its state, in a table: where holders have a device by turns, whether it has it.
    pub fn state_words(&self) -> String {
        let turn = self.turn.as_ref().map(HeldTurn::state);
        turn.map_or_else(|| self.state.to_string(), str::to_owned)
    }

    /// Its memory, in a table.
    pub fn memory(&self) -> String {
        or_dash(self.memory_mib.map(MemorySize::from_mib))
    }

    /// Its compute, in a table.
    pub fn compute(&self) -> String {
        or_dash(self.compute_percent.map(|percent| format!("{percent}%")))
    }

    /// Who uses it, in a table.
    pub fn holder(&self) -> String {
        let pod = self.pod.as_ref().map(PodName::to_string);
        let claim = self.resource_claim.as_ref().map(KubernetesObject::to_string);
        let container = pod
            .or(claim)
            .or_else(|| self.container.as_ref().map(HeldContainer::shown));
        or_dash(container.or_else(|| self.process.as_ref().map(HeldProcess::shown)))
    }

    /// Its shares, each with its device: `0.a, 0.b`; the device for all of it.
    pub fn shares(&self) -> String {
        let device = self
            .device
            .split_once('=')
            .map_or(self.device.as_str(), |(_, name)| name);
        if self.whole {
            return device.to_owned();
        }
        let shares: Vec<String> = self.shares.iter().map(|s| format!("{device}.{s}")).collect();
        some(&shares)
    }
}

impl HeldContainer {
    /// `train (262bf9f7e5a8)`, or the short id alone; `1000.262bf9f7e5a8` for one of a user's own engine.
    fn shown(&self) -> String {
        container_id(&container_text(&self.id, self.name.as_deref()), self.user)
    }

    /// Its id: `262bf9f7e5a8…`; with the number of the user for one of a user's own engine, because that user chose the
    /// id.
    pub fn own_id(&self) -> String {
        container_id(&self.id, self.user)
    }
}

impl HeldProcess {
    /// `train.py (process 4242)`.
    fn shown(&self) -> String {
        match self.pid {
            Some(pid) => format!("{} (process {pid})", self.program),
            None => self.program.clone(),
        }
    }
}
