//! Shares of a device, as devices of a specification.

use super::{DerivedDevice, Options, hook};
use crate::call::{ClaimCall, OwnNode, ReleaseCall, Siblings, Subject};
use crate::edits::{Edits, HookEdit, MountEdit, Stage};
use crate::error::Result;
use crate::inventory::{HostDevice, Inventory};
use crate::policy::WholeDevice;
use crate::share::{Held, Plan, SplitDevice};
use crate::types::{CdiKind, DeviceKey, DeviceName, HostPath, Percent, Promise, ShareName};
use std::collections::BTreeSet;

/// The plan of a specification, and where its hooks find the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharing {
    /// Which devices are split, and how.
    pub plan: Plan,
    /// Devices of which somebody holds something under an earlier policy. Where the plan does not split them, their names
    /// claim the whole device, so that no container gets a device of which another holds a share.
    pub held: BTreeSet<DeviceKey>,
    /// Where the ledger is.
    pub state_dir: HostPath,
}

impl Sharing {
    /// Whether somebody holds something of a device, under an earlier policy.
    pub(super) fn is_held(&self, device: HostDevice<'_>) -> bool {
        let key = device.key();
        self.held.iter().any(|held| held.overlaps(&key))
    }

    /// Whether a container with a share of one of the devices must not have the driver's program `name`.
    pub(super) fn withholds(&self, name: &str) -> bool {
        self.plan.devices.iter().any(|split| split.method.withholds(name))
    }
}

/// The devices of `inventory` that `sharing` does not split and whose names claim the whole device all the same, because
/// something of them is held: as people name them, by index.
pub fn claimed_since_held(inventory: &Inventory, sharing: &Sharing) -> Vec<String> {
    let catalogue = inventory.catalogue();
    let claimed = catalogue
        .usable()
        .filter(|device| sharing.plan.split(device.device()).is_none() && sharing.is_held(*device));
    claimed.map(|device| device.to_string()).collect()
}

/// The hook that claims the whole of a device that is not split and of which something is held. `asked_as` is the
/// device's name for engines.
pub(super) fn take_held(asked_as: &str, device: HostDevice<'_>, sharing: &Sharing, hook: &HostPath) -> HookEdit {
    let call = ClaimCall {
        asked_as: Some(asked_as.to_owned()),
        state_dir: sharing.state_dir.clone(),
        ..ClaimCall::of(device.key(), device.device().to_string(), Subject::Whole)
    };
    hook::tranche(hook, Stage::CreateRuntime, call.write())
}

/// What the whole of a split or dedicated device does to a container, beyond `edits`; `None` where the policy hides it.
///
/// `asked_as` is its name for engines.
pub(super) fn whole(
    asked_as: &str,
    edits: &Edits,
    split: &SplitDevice,
    sharing: &Sharing,
    hook: &HostPath,
) -> Option<Edits> {
    let is_whole = split.method.is_whole();
    match sharing.plan.whole_device {
        WholeDevice::Hide if !is_whole => None,
        WholeDevice::Open if !is_whole => Some(edits.clone()),
        _ => {
            let mut edits = edits.clone();
            let mut call = ClaimCall {
                asked_as: Some(asked_as.to_owned()),
                ..claim_on(split, sharing, Subject::Whole)
            };
            if !is_whole {
                call.siblings = siblings(split);
            }
            edits
                .hooks
                .push(hook::tranche(hook, Stage::CreateRuntime, call.write()));
            Some(edits)
        }
    }
}

/// The shares of a split device that is called `base`, with their kind. `edits` are those of the whole device.
pub(super) fn shares(
    base: &DeviceName,
    edits: &Edits,
    split: &SplitDevice,
    sharing: &Sharing,
    hook: &HostPath,
) -> Result<Vec<(CdiKind, DerivedDevice)>> {
    // Replicas differ in nothing that a container sees, so one device serves all of them: its hook picks a free one.
    let any = split.replica().map(|share| {
        let subject = Subject::Any(split.promise(share));
        (ShareName::ANY, subject, share)
    });
    let named = sharing.plan.named_shares(split).iter().map(|share| {
        let subject = Subject::Share(share.name.clone(), split.promise(share));
        (share.name.as_str(), subject, share)
    });
    any.into_iter()
        .chain(named)
        .map(|(name, subject, share)| {
            let mut edits = edits.clone();
            let asked_as: DeviceName = format!("{base}.{name}").parse()?;
            let promise = split.promise(share);
            let mut call = ClaimCall {
                asked_as: Some(format!("{}={asked_as}", split.kind)),
                siblings: siblings(split),
                bounds: match promise {
                    Promise::Mps { .. } => Some(split.bounds()),
                    // Turns are fractions of a whole that needs no number.
                    Promise::Turns { .. } | Promise::Whole => None,
                },
                ..claim_on(split, sharing, subject)
            };
            let held = Held {
                memory: share.memory,
                compute: share.compute.map(Percent::get),
                priority: share.priority,
            };
            limit(&mut edits, &mut call, split, sharing, &held)?;
            edits
                .hooks
                .push(hook::tranche(hook, Stage::CreateRuntime, call.write()));
            let name = asked_as;
            Ok((split.kind.clone(), DerivedDevice { name, edits }))
        })
        .collect()
}

/// The program that can claim, where the specification has it.
pub(super) fn hook_of(options: &Options) -> Option<HostPath> {
    let hook = options.hook.as_ref().filter(|hook| hook.is_tranche())?;
    Some(hook.path.clone())
}

/// A claim on `subject` of `split`.
pub(super) fn claim_on(split: &SplitDevice, sharing: &Sharing, subject: Subject) -> ClaimCall {
    ClaimCall {
        state_dir: sharing.state_dir.clone(),
        ..ClaimCall::of(split.key.clone(), split.device.to_string(), subject)
    }
}

/// Adds what the strategy of `split` gives a container with `held`, and what its claim hook must then check.
pub(super) fn limit(
    edits: &mut Edits,
    call: &mut ClaimCall,
    split: &SplitDevice,
    sharing: &Sharing,
    held: &Held,
) -> Result<()> {
    let inside = split.in_container(held, &sharing.state_dir)?;
    let environment = inside.environment.into_iter();
    edits
        .env
        .extend(environment.map(|(name, value)| (name.to_owned(), value)));
    for (path, host) in inside.directories {
        let options = ["rw", "nosuid", "nodev", "noexec", "rbind", "rprivate"].map(str::to_owned);
        let options = options.to_vec();
        edits.mounts.insert(path, MountEdit { host, options });
    }
    call.alone = inside.daemon.is_some() || split.one_share_a_claim;
    if inside.daemon.is_some() {
        let own = edits
            .nodes
            .iter()
            .filter(|(path, _)| path.as_str().starts_with("/dev/nvidia"));
        let own = own.map(|(path, node)| OwnNode {
            container: path.clone(),
            host: node.host.clone(),
        });
        call.nodes = own.collect();
    }
    call.daemon = inside.daemon;
    Ok(())
}

fn siblings(split: &SplitDevice) -> Siblings {
    match (split.replica(), u32::try_from(split.shares.len())) {
        (Some(_), Ok(replicas)) => Siblings::Replicas(replicas),
        _ => Siblings::Named(split.shares.iter().map(|share| share.name.to_string()).collect()),
    }
}

/// The hook that gives back all that a container holds: one for a whole specification.
pub(super) fn give_all_back(sharing: &Sharing, hook: &HostPath) -> HookEdit {
    let release = ReleaseCall {
        state_dir: sharing.state_dir.clone(),
        ..ReleaseCall::default()
    };
    hook::tranche(hook, Stage::Poststop, release.write())
}
