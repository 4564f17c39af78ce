//! What the claims on a device need of the machine.

use super::cgroup_limit::{WantedLimit, wanted};
use super::changes::DeviceChanges;
use super::daemon::Defaults;
use super::target::ControlTarget;
use serde::{Deserialize, Serialize};
use tranche_core::ledger::{Claim, ClaimState, HeldPart, Holder};
use tranche_core::types::Interval;
use tranche_core::types::{MemorySize, Percent, Strategy, in_mib_if_known};

/// The limits of MPS clients that have none of their own. A client that has some can only go below them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Limits {
    /// Memory; `None` if the device's memory is unknown, so that no limit can be set.
    #[serde(rename = "memory_mib", with = "in_mib_if_known", default)]
    pub(super) memory: Option<MemorySize>,
    /// The device's compute, at most all of it.
    pub(super) compute: Percent,
}

impl Limits {
    /// Whether a client that may have `other` is within these.
    pub(super) fn covers(self, other: Self) -> bool {
        self.max(other) == self
    }

    /// Whether a daemon that reports `percentage` as its default has this limit of compute.
    pub(super) fn is_percentage(self, percentage: f64) -> bool {
        (percentage - f64::from(self.compute.get())).abs() < 0.5
    }

    /// Whether a daemon with these defaults has these limits. It rounds sizes down to a unit.
    pub(super) fn are(self, defaults: Defaults) -> bool {
        let has_memory = match (self.memory, defaults.memory) {
            (Some(set), Some(has)) => has.may_be(set.mib()),
            (None, _) => true,
            (Some(_), None) => false,
        };
        has_memory && self.is_percentage(defaults.percentage)
    }

    /// The larger one of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            // No limit is the largest.
            memory: self.memory.zip(other.memory).map(|(a, b)| a.max(b)),
            compute: self.compute.max(other.compute),
        }
    }
}

/// What a device is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Goal {
    /// The limits of its MPS daemon; `None`: no daemon.
    pub(super) daemon: Option<Limits>,
    /// Whether larger limits are lowered to these, and limits of cgroups are removed that no claim needs. It is false
    /// while a claim is granted, which need not wait for that.
    pub(super) is_exact: bool,
    /// The limits of memory of the cgroups of containers.
    pub(super) cgroups: Vec<WantedLimit>,
    /// The length of a turn; `None`: as it was.
    pub(super) time_slice: Option<Interval>,
    /// The containers with claims under MPS.
    pub(super) holders: Vec<String>,
}

impl Goal {
    /// Whether the device is to be as it was.
    pub(super) fn is_empty(&self) -> bool {
        self.daemon.is_none() && self.time_slice.is_none()
    }
}

/// Whether something uses the claim, or is about to. A claim that a person reserved for later does not.
pub(super) fn is_live(claim: &Claim) -> bool {
    claim.state == ClaimState::Held || claim.holder != Holder::Person || claim.process.is_some()
}

/// What `claims`, the live ones on `target`, need at the time `now`, in seconds since 1970.
pub(super) fn goal(claims: &[&Claim], target: &ControlTarget, changes: Option<&DeviceChanges>, now: u64) -> Goal {
    let of = |strategy| claims.iter().filter(move |claim| claim.part.strategy() == strategy);
    let whole = whole(target);
    if let Some(limits) = of(Strategy::Mps)
        .map(|claim| limits_of(&claim.part, whole))
        .reduce(Limits::max)
    {
        let containers = of(Strategy::Mps).filter_map(|claim| claim.holder.container());
        return Goal {
            daemon: Some(limits),
            is_exact: true,
            cgroups: of(Strategy::Mps).filter_map(|claim| wanted(claim, target)).collect(),
            holders: containers.map(|container| container.id.clone()).collect(),
            time_slice: None,
        };
    }
    if of(Strategy::TimeSlicing).next().is_some() {
        let set = changes
            .and_then(|changes| changes.time_slice.as_ref())
            .map(|change| change.set);
        let wanted = Some(target.interval).filter(|interval| *interval != Interval::Default);
        return Goal {
            time_slice: set.or(wanted),
            ..Goal::default()
        };
    }
    // A container that has the whole device uses it without a daemon.
    let Some(changes) = changes.filter(|_| claims.is_empty()) else {
        return Goal::default();
    };
    let idle = changes.idle_since.map_or(0, |since| now.saturating_sub(since));
    let daemon = changes.daemon.as_ref();
    let limits = daemon.and_then(|daemon| daemon.limits).unwrap_or(whole);
    let stays = changes.is_kept || (changes.is_ready && daemon.is_some() && idle < u64::from(target.grace));
    Goal {
        daemon: stays.then_some(limits),
        is_exact: true,
        ..Goal::default()
    }
}

/// All of a device.
pub(super) fn whole(target: &ControlTarget) -> Limits {
    Limits {
        memory: target.memory.filter(|_| target.limits_memory),
        compute: Percent::ALL,
    }
}

/// The limits of the processes of a container that holds `part`. They are those of its environment, which the plan
/// writes: what has no limit is all of the device, and shares that are claimed as one are at most all of it.
fn limits_of(part: &HeldPart, whole: Limits) -> Limits {
    let promise = part.promise();
    let memory = promise.and_then(|promise| promise.memory());
    let compute = promise.and_then(|promise| promise.compute());
    Limits {
        memory: memory
            .map(|memory| whole.memory.map_or(memory, |most| memory.min(most)))
            .or(whole.memory),
        compute: compute.unwrap_or(Percent::ALL).clamp(Percent::of_sum(1), Percent::ALL),
    }
}
