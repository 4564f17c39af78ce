//! A claim as `tranche status` and `tranche claim list` show it. The names of the fields are documented in
//! docs/sharing.md, and programs depend on them.

use super::containers::Names;
use super::specs::Specs;
use crate::ledger::{Claim, ClaimState, HeldPart, Strategy, utc};
use crate::text::some;
use crate::types::{DeviceKey, MemorySize};
use serde::Serialize;
use std::fmt::Display;

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
    /// The memory that was promised; `null` without a limit.
    pub(super) memory_mib: Option<u64>,
    /// Percent of the device; `null` without a limit.
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
    /// Whether it is released together with its container.
    pub(super) once: bool,
    /// The specification of a claim made beforehand.
    pub(super) spec_file: Option<String>,
}

/// A container.
#[derive(Debug, Serialize)]
pub(super) struct Container {
    /// As its engine knows it.
    pub(super) id: String,
    /// The name that its engine shows; `null` if no file of the engine has it.
    pub(super) name: Option<String>,
    /// The directory of its bundle.
    pub(super) bundle: String,
    /// The number of its init, in the pid namespace of the engine.
    pub(super) pid: Option<u32>,
}

/// How claims are shown: by the names that specifications give to devices, and engines to containers.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) specs: Specs,
    pub(super) names: Names,
    /// Seconds since boot, by which a claim's time to live is counted.
    uptime: u64,
}

impl View {
    /// A view by the names of `specs` and of engines, at `uptime` seconds since boot.
    pub(super) fn new(specs: Specs, uptime: u64) -> Self {
        Self {
            specs,
            names: Names::default(),
            uptime,
        }
    }

    /// `claim` as it is shown.
    pub(super) fn held(&mut self, claim: &Claim) -> Held {
        let promise = claim.part.promise();
        let container = claim.holder.container().map(|container| Container {
            id: container.id.clone(),
            name: self.names.of(container),
            bundle: container.bundle.clone(),
            pid: claim.process.as_ref().map(|p| p.pid),
        });
        Held {
            cdi: self.specs.name(claim),
            name: claim.given_name().map(str::to_owned),
            device: self.specs.device(&claim.device),
            key: claim.device.clone(),
            whole: claim.part == HeldPart::Whole,
            shares: claim.part.shares().iter().map(|s| s.name.to_string()).collect(),
            strategy: claim.part.strategy(),
            memory_mib: promise.and_then(|p| p.memory()).map(MemorySize::mib),
            compute_percent: promise.and_then(|p| p.compute()),
            state: claim.state,
            container,
            uid: claim.uid,
            since: claim.since,
            ttl: claim.ttl,
            seconds_left: claim.until.map(|until| until.saturating_sub(self.uptime)),
            once: claim.once,
            spec_file: claim.spec_file.clone(),
        }
    }

    /// `claims` as a list in one line: what is held, by whom and since when.
    pub(super) fn list<'c>(&mut self, claims: impl IntoIterator<Item = &'c Claim>) -> String {
        let line = |claim| {
            let held = self.held(claim);
            format!("{} by {} since {}", held.cdi, held.by(), utc(held.since))
        };
        some(&claims.into_iter().map(line).collect::<Vec<_>>())
    }
}

impl Held {
    /// Who holds it, in a sentence.
    pub(super) fn by(&self) -> String {
        match &self.container {
            Some(container) => format!("container {}", container.shown()),
            None => format!("user {} (no container yet)", self.uid),
        }
    }

    /// Its memory, in a table.
    pub(super) fn memory(&self) -> String {
        or_dash(self.memory_mib.map(MemorySize::from_mib))
    }

    /// Its compute, in a table.
    pub(super) fn compute(&self) -> String {
        or_dash(self.compute_percent.map(|percent| format!("{percent}%")))
    }

    /// Who uses it, in a table.
    pub(super) fn holder(&self) -> String {
        or_dash(self.container.as_ref().map(Container::shown))
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
    fn shown(&self) -> String {
        container_text(&self.id, self.name.as_deref())
    }
}

/// The container `id`, which its engine calls `name`, for people: `train (262bf9f7e5a8)`, or the short id alone.
pub(super) fn container_text(id: &str, name: Option<&str>) -> String {
    let short: String = id.chars().take(12).collect();
    let short = if short.is_empty() { "unknown" } else { &short };
    name.map_or_else(|| short.to_owned(), |name| format!("{name} ({short})"))
}

/// The text of a value in a table; a dash without a value.
pub(super) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
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
