//! What differs from the expected state, although it could be read.

use super::Observed;
use super::gpu::DeviceUsage;
use super::process::ProcessRow;
use serde::Serialize;
use std::collections::BTreeMap;
use tranche_core::types::Strategy;
use tranche_plan::inventory::ComputeMode;
use tranche_plan::share::Method;
use tranche_state::access::Enforcement;
use tranche_state::controlled::DaemonState;
use tranche_state::held::{Held, span};

/// Something that differs from the expected state. docs/reference/claims.md documents the fields and the kinds.
#[derive(Debug, Serialize)]
pub struct Deviation {
    /// `nvidia.com/gpu=0`; `null` for one that is about no device.
    pub device: Option<String>,
    /// What kind of difference it is.
    pub kind: DeviationKind,
    /// What differs, and what to do.
    pub text: String,
}

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviationKind {
    /// A share is held that the policy does not have any more.
    EarlierPolicy,
    /// The part of the ledger about the device cannot be read.
    UnreadableLedger,
    /// The device is reserved for one process, although nothing of it is held.
    ExclusiveWithoutClaim,
    /// MPS shares are held that are only worth something in another compute mode.
    NotExclusive,
    /// A process uses the device without a claim on it.
    ProcessWithoutClaim,
    /// The processes of a claim use more memory than it was promised.
    MoreMemoryThanPromised,
    /// A user holds something for longer than the policy allows.
    HeldTooLong,
    /// A user holds something without using it for longer than the policy allows.
    IdleTooLong,
    /// The MPS daemon of the device does not serve clients.
    Daemon,
    /// host.json does not describe the host.
    HostFile,
    /// The policy closes device nodes, and the driver opens them again.
    AccessNotInForce,
    /// Who has a device by turns cannot change.
    Turns,
}

impl DeviationKind {
    /// The word for it, in JSON and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EarlierPolicy => "earlier-policy",
            Self::UnreadableLedger => "unreadable-ledger",
            Self::ExclusiveWithoutClaim => "exclusive-without-claim",
            Self::NotExclusive => "not-exclusive",
            Self::ProcessWithoutClaim => "process-without-claim",
            Self::MoreMemoryThanPromised => "more-memory-than-promised",
            Self::HeldTooLong => "held-too-long",
            Self::IdleTooLong => "idle-too-long",
            Self::Daemon => "daemon",
            Self::HostFile => "host-file",
            Self::AccessNotInForce => "access-not-in-force",
            Self::Turns => "turns",
        }
    }
}

impl Serialize for DeviationKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// All of them.
pub(super) fn find(observed: &Observed) -> Vec<Deviation> {
    let mut found = Vec::new();
    for device in &observed.devices {
        let mut add = |kind, text| found.push(Deviation::of(&device.device, kind, text));
        if !device.readable {
            let text = "its part of the ledger cannot be read, so nothing of it is given out; see the problems below";
            add(DeviationKind::UnreadableLedger, text.to_owned());
        }
        if !device.held_of_earlier_policy.is_empty() {
            let shares = tranche_core::text::some(&device.held_of_earlier_policy);
            // A container, a program, a pod, or a person.
            let text = format!("{shares}: held, and not in the present policy; released with the holder");
            add(DeviationKind::EarlierPolicy, text);
        }
    }
    for gpu in observed.gpus.iter().flatten() {
        found.extend(of_mode(observed, gpu));
    }
    found.extend(observed.claims.iter().filter_map(of_memory));
    found.extend(observed.claims.iter().filter_map(of_time));
    found.extend(observed.claims.iter().filter_map(of_idleness));
    found.extend(strangers(observed));
    let troubles = observed.claims.iter().filter_map(|held| {
        let trouble = held.turn.as_ref()?.trouble.as_ref()?;
        Some((held.device.as_str(), trouble))
    });
    // All holders of a device have one.
    for (device, trouble) in troubles.collect::<BTreeMap<_, _>>() {
        found.push(Deviation::of(device, DeviationKind::Turns, trouble.clone()));
    }
    for daemon in &observed.daemons {
        let text = match daemon.state {
            DaemonState::Failed => "its MPS daemon does not run and could not be started again; see tranche mps status",
            DaemonState::ServerFailed => "the server of its MPS daemon does not start; see tranche mps status",
            DaemonState::Foreign => "another program runs an MPS daemon for it, so no share of it is given out",
            DaemonState::Starting | DaemonState::Running | DaemonState::Stopping => continue,
        };
        found.push(Deviation::of(&daemon.device, DeviationKind::Daemon, text.to_owned()));
    }
    if let Some(text) = &observed.host_file.problem {
        found.push(Deviation {
            device: None,
            kind: DeviationKind::HostFile,
            text: text.clone(),
        });
    }
    if observed.access == Enforcement::NotInForce {
        found.push(Deviation {
            device: None,
            kind: DeviationKind::AccessNotInForce,
            text: "the policy says access: enforce, and every user can open the device nodes; see tranche doctor"
                .to_owned(),
        });
    }
    found
}

impl Deviation {
    /// The device and the text, in a line.
    pub fn line(&self) -> String {
        match &self.device {
            Some(device) => format!("{device}: {}", self.text),
            None => self.text.clone(),
        }
    }

    fn of(device: &str, kind: DeviationKind, text: String) -> Self {
        Self {
            device: Some(device.to_owned()),
            kind,
            text,
        }
    }
}

/// A compute mode that does not fit what is held.
fn of_mode(observed: &Observed, gpu: &DeviceUsage) -> Option<Deviation> {
    let (key, mode) = (gpu.key.as_ref()?, gpu.mode()?);
    let device = observed.devices.iter().find(|device| device.key == *key)?;
    let is_default = gpu.compute_mode == Some(ComputeMode::Default);
    let has_daemon = observed.daemons.iter().any(|daemon| daemon.device == device.device);
    if !is_default && device.readable && !device.is_held() && !has_daemon {
        let uuid = key.gpu();
        let text = format!(
            "its compute mode is {mode}, although nothing of it is held; to change it: nvidia-smi -i {uuid} -c DEFAULT"
        );
        return Some(Deviation::of(
            &device.device,
            DeviationKind::ExclusiveWithoutClaim,
            text,
        ));
    }
    let split = observed.view.devices.shared().iter().find(|split| split.key == *key)?;
    let expects_exclusive = matches!(&split.method, Method::Mps(mps) if mps.exclusive_process);
    let by_mps = |held: &Held| held.key == *key && held.strategy == Strategy::Mps && held.is_in_use();
    let is_exclusive = gpu.compute_mode == Some(ComputeMode::ExclusiveProcess);
    (expects_exclusive && !is_exclusive && observed.claims.iter().any(by_mps)).then(|| {
        let text = format!(
            "MPS shares of it are held and its compute mode is {mode}, so a process that leaves MPS has no limit; the \
             plan expects EXCLUSIVE_PROCESS"
        );
        Deviation::of(&device.device, DeviationKind::NotExclusive, text)
    })
}

fn of_memory(held: &Held) -> Option<Deviation> {
    let (used, promised) = (held.usage.as_ref()?.memory_mib?, held.memory_mib?);
    // Under time-slicing, a size is counted in the ledger and limits nothing: it is not more than was promised.
    (held.strategy == Strategy::Mps && used > promised).then(|| {
        let text = format!(
            "{} by {} uses {used} MiB and was promised {promised} MiB: the limit holds for each process",
            held.cdi,
            held.by()
        );
        Deviation::of(&held.device, DeviationKind::MoreMemoryThanPromised, text)
    })
}

fn of_time(held: &Held) -> Option<Deviation> {
    let too_long = held.too_long.as_ref()?;
    let text = format!(
        "{} by {} is held {} longer than maxHold in {} allows{}",
        held.cdi,
        held.by(),
        span(too_long.by_seconds),
        too_long.limit,
        not_ended(held)
    );
    Some(Deviation::of(&held.device, DeviationKind::HeldTooLong, text))
}

fn of_idleness(held: &Held) -> Option<Deviation> {
    let idle = held.idle.as_ref()?;
    idle.by_seconds?;
    let text = format!(
        "{} by {} has done nothing for {}, which is longer than idle in {} allows{}",
        held.cdi,
        held.by(),
        span(idle.seconds?),
        idle.limit,
        not_ended(held)
    );
    Some(Deviation::of(&held.device, DeviationKind::IdleTooLong, text))
}

/// Why it is still held although the policy ends it.
fn not_ended(held: &Held) -> String {
    let why = held.cannot_be_ended.as_ref();
    why.map_or_else(String::new, |why| format!("; it cannot be ended: {why}"))
}

/// Processes without a claim on devices that are handed out with one. If a holder of the device is in a foreign pid
/// namespace, they may be its processes.
fn strangers(observed: &Observed) -> impl Iterator<Item = Deviation> + '_ {
    let is_claimed = |row: &&ProcessRow| {
        let mut devices = observed.devices.iter();
        devices.any(|device| row.key.as_ref() == Some(&device.key) && device.readable)
    };
    let can_tell = |row: &&ProcessRow| {
        let on_it = observed
            .claims
            .iter()
            .filter(|held| Some(&held.key) == row.key.as_ref());
        observed.sees_ledger && on_it.clone().all(|held| !held.is_in_use() || held.can_be_seen)
    };
    let rows = observed
        .processes
        .iter()
        .filter(|row| !row.is_mps_server && row.claim.is_none() && row.computes());
    rows.filter(is_claimed).filter(can_tell).map(|row| {
        let command = row.command.as_deref().unwrap_or("ended since");
        let text = format!("process {} ({command}) uses it without a claim", row.pid);
        Deviation::of(&row.device, DeviationKind::ProcessWithoutClaim, text)
    })
}
