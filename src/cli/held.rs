//! A claim as `tranche status` and `tranche claim list` show it. The names of the fields are documented in
//! docs/sharing.md, and programs depend on them.

use super::containers::Names;
use super::specs::Specs;
use crate::ledger::{Claim, ClaimState, HeldPart, Promise, Strategy};
use crate::text::some;
use crate::types::{DeviceKey, MemorySize};
use serde::Serialize;

/// A claim.
#[derive(Debug, Serialize)]
pub(super) struct Held {
    /// The name under which an engine is asked for it: `nvidia.com/gpu=0.3`, `nvidia.com/claim=train1`.
    pub(super) cdi: String,
    /// The claim's own name; `null` for one that a container's start made.
    pub(super) name: Option<String>,
    /// The device: `nvidia.com/gpu=0`.
    pub(super) device: String,
    /// The device's key in the ledger.
    pub(super) key: DeviceKey,
    /// Whether the whole device is held.
    pub(super) whole: bool,
    /// The shares that are held; empty for a whole device.
    pub(super) shares: Vec<String>,
    pub(super) strategy: Strategy,
    /// What was promised; `null` where there is no limit.
    pub(super) memory_mib: Option<u64>,
    /// Percent of the device; `null` where there is no limit.
    pub(super) compute_percent: Option<u32>,
    pub(super) state: ClaimState,
    /// Who uses it; `null` while a claim made beforehand waits for its container.
    pub(super) container: Option<Container>,
    /// The user who made it.
    pub(super) uid: u32,
    /// When it was made, in seconds since 1970.
    pub(super) since: u64,
    /// Seconds for which it lasts while no container uses it; `null` for one that lasts until it is released.
    pub(super) ttl: Option<u64>,
    /// Seconds until it ends; `null` while it is in use, and for one without a ttl.
    pub(super) seconds_left: Option<u64>,
    /// Whether it is given back together with its container.
    pub(super) once: bool,
    /// The specification of a claim made beforehand.
    pub(super) spec_file: Option<String>,
}

/// A container.
#[derive(Debug, Serialize)]
pub(super) struct Container {
    /// As its engine knows it.
    pub(super) id: String,
    /// The name that its engine shows; `null` where no file tells it.
    pub(super) name: Option<String>,
    /// The directory of its bundle.
    pub(super) bundle: String,
    /// The number of its init, in the pid namespace of the engine.
    pub(super) pid: Option<u32>,
}

impl Held {
    /// `claim` as it is shown, at `uptime` seconds since boot.
    pub(super) fn of(claim: &Claim, specs: &Specs, names: &mut Names, uptime: u64) -> Self {
        let compute = |promise| match promise {
            Promise::Mps { compute, .. } => compute,
            _ => None,
        };
        let promise = claim.part.promise();
        let container = claim.holder.container().map(|container| Container {
            id: container.id.clone(),
            name: names.of(container),
            bundle: container.bundle.clone(),
            pid: claim.process.as_ref().map(|p| p.pid),
        });
        Self {
            cdi: specs.name(claim),
            name: claim.name.clone(),
            device: specs.device(&claim.device),
            key: claim.device.clone(),
            whole: claim.part == HeldPart::Whole,
            shares: claim.part.shares().iter().map(|s| s.name.to_string()).collect(),
            strategy: claim.part.strategy(),
            memory_mib: promise.and_then(|p| p.memory()).map(MemorySize::mib),
            compute_percent: promise.and_then(compute),
            state: claim.state,
            container,
            uid: claim.uid,
            since: claim.since,
            ttl: claim.ttl,
            seconds_left: claim.until.map(|until| until.saturating_sub(uptime)),
            once: claim.once,
            spec_file: claim.spec_file.clone(),
        }
    }

    /// Who holds it, for a table or a message.
    pub(super) fn holder(&self) -> String {
        self.container.as_ref().map_or_else(|| "-".to_owned(), Container::shown)
    }

    /// Its shares, each with its device: `0.a, 0.b`; the device for all of it.
    pub(super) fn shares(&self) -> String {
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

impl Container {
    /// `train (262bf9f7e5a8)`, or the short id alone.
    pub(super) fn shown(&self) -> String {
        let short: String = self.id.chars().take(12).collect();
        match &self.name {
            Some(name) => format!("{name} ({short})"),
            None => short,
        }
    }
}

/// The state of a claim, in a table.
pub(super) fn state(state: ClaimState) -> &'static str {
    match state {
        ClaimState::Reserved => "reserved",
        ClaimState::Held => "held",
    }
}

/// A span of time for people: `45 s`, `12 min`, `3 h 5 min`.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..=90 => format!("{seconds} s"),
        91..=5_400 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        assert_eq!(span(0), "0 s");
        assert_eq!(span(91), "1 min");
        assert_eq!(span(3_700 * 3), "3 h 5 min");
    }
}
