//! Shares of a device, as devices of a specification.

use super::{DerivedDevice, Options, hook};
use crate::edits::{Edits, HookEdit, MountEdit, Stage};
use crate::inventory::{HostDevice, Inventory};
use crate::policy::{Priority, WholeDevice};
use crate::share::{DirectoryInContainer, Method, Plan, SplitDevice};
use std::collections::BTreeSet;
use std::sync::Arc;
use tranche_core::call::{BoundPath, ClaimCall, InServiceCall, ReleaseCall, Siblings};
use tranche_core::error::Result;
use tranche_core::ledger::OutOfService;
use tranche_core::types::{CdiKind, DeviceKey, DeviceName, HostPath, Part, Promise, Subject, WaitTime};

/// How many seconds more a hook may take that waits for the lock of the ledger: for a queue of other starts, and for
/// one process that holds it (`core/ledger/lock.rs`).
const LOCKING: u32 = 20;

/// The plan of a specification, and where its hooks find the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharing {
    /// Which devices are split, and how.
    pub plan: Arc<Plan>,
    /// Devices of which a part is held under an earlier policy. If the plan does not split such a device, its names
    /// claim all of it, so that no container gets a device of which another holds a share.
    pub held: BTreeSet<DeviceKey>,
    /// The devices of which nothing new is given: `all` does not contain them, and names without a claim get a hook
    /// that refuses.
    pub out_of_service: OutOfService,
    /// Where the ledger is.
    pub state_dir: HostPath,
}

impl Sharing {
    /// Whether something of a device is held under an earlier policy, although the plan does not split it.
    pub(super) fn is_held(&self, device: HostDevice<'_>) -> bool {
        let key = device.key();
        self.plan.split(device.device()).is_none() && self.held.iter().any(|held| held.overlaps(&key))
    }

    /// Whether nothing new is given of a device now.
    pub(super) fn is_out(&self, device: HostDevice<'_>) -> bool {
        self.out_of_service.why(&device.key()).is_some()
    }

    /// Whether nothing new is given of a device now, or from a later time on.
    fn may_be_out(&self, device: HostDevice<'_>) -> bool {
        let key = device.key();
        self.is_out(device) || self.out_of_service.outages().any(|outage| outage.covers(&key))
    }

    /// Whether a container with a share of one of the devices must not have the driver's program `name`.
    pub(super) fn withholds(&self, name: &str) -> bool {
        self.plan.devices.iter().any(|split| split.method.withholds(name))
    }
}

/// The devices of `inventory` that `sharing` does not split and whose names claim the whole device all the same,
/// because something of them is held: as people name them, by index.
pub fn claimed_since_held(inventory: &Inventory, sharing: &Sharing) -> Vec<String> {
    let catalogue = inventory.catalogue();
    let claimed = catalogue.usable().filter(|device| sharing.is_held(*device));
    claimed.map(|device| device.to_string()).collect()
}

/// Makes the hooks by which containers claim the devices of a specification.
#[derive(Clone, Copy)]
pub(super) struct Claimer<'a> {
    sharing: &'a Sharing,
    hook: &'a HostPath,
}

impl<'a> Claimer<'a> {
    /// `None` without a plan, and without the program that can claim.
    pub(super) fn of(options: &'a Options) -> Option<Self> {
        let hook = options.hook.as_ref().filter(|hook| hook.is_tranche())?;
        Some(Self {
            sharing: options.sharing.as_ref()?,
            hook: &hook.path,
        })
    }

    /// A claim on `subject` of `split`. One that was reserved beforehand is not waited for: only its own user can have
    /// it.
    pub(super) fn call(self, split: &SplitDevice, subject: Subject) -> ClaimCall {
        let wait = match subject {
            // It is held already. By turns, its device may have to be waited for.
            Subject::Claim(..) if !matches!(split.method, Method::Turns(_)) => WaitTime::default(),
            Subject::Claim(..) | Subject::Part(..) => self.sharing.plan.wait,
        };
        ClaimCall {
            wait,
            state_dir: self.sharing.state_dir.clone(),
            // Also for the whole device: it must be as it was before shares of it were used.
            prepare: split.method.is_managed(),
            ..ClaimCall::of(split.key.clone(), split.device.to_string(), subject)
        }
    }

    /// The hook that makes a claim.
    pub(super) fn claim(self, call: &ClaimCall) -> HookEdit {
        let mut hook = hook::tranche(self.hook, Stage::CreateRuntime, call.write());
        let preparing = if call.prepare { ClaimCall::PREPARING } else { 0 };
        // Rounded up, because the engine must not end a hook that still waits. The longest time is a week.
        let waiting = call.wait.get().as_millis().div_ceil(1000);
        let more = preparing.saturating_add(u32::try_from(waiting).unwrap_or(u32::MAX));
        hook.timeout = hook
            .timeout
            .map(|timeout| timeout.saturating_add(LOCKING).saturating_add(more));
        hook
    }

    /// The hook that releases what `call` says; by default, all that a container holds.
    pub(super) fn release(self, call: ReleaseCall) -> HookEdit {
        let call = ReleaseCall {
            state_dir: self.sharing.state_dir.clone(),
            ..call
        };
        let hook = hook::tranche(self.hook, Stage::Poststop, call.write());
        HookEdit {
            timeout: hook.timeout.map(|timeout| timeout.saturating_add(LOCKING)),
            ..hook
        }
    }

    /// The hook that claims the whole of a device that is not split and of which something is held. `asked_as` is the
    /// device's name for engines.
    pub(super) fn whole_of(self, asked_as: String, device: HostDevice<'_>) -> HookEdit {
        self.claim(&ClaimCall {
            asked_as: Some(asked_as),
            wait: self.sharing.plan.wait,
            state_dir: self.sharing.state_dir.clone(),
            ..ClaimCall::of(device.key(), device.device().to_string(), Subject::WHOLE)
        })
    }

    /// The hook that refuses a device that is out of service, for a container that claims nothing of it; `None` if the
    /// device stays in service.
    pub(super) fn in_service(self, device: HostDevice<'_>) -> Option<HookEdit> {
        let call = InServiceCall {
            device: device.key(),
            label: device.device().to_string(),
            state_dir: self.sharing.state_dir.clone(),
        };
        let is_needed = self.sharing.may_be_out(device);
        is_needed.then(|| hook::tranche(self.hook, Stage::CreateRuntime, call.write()))
    }

    /// The edits of the whole of a split or dedicated device; `None` if the policy hides it. `edits` are those of the
    /// device without a claim, and `asked_as` is its name for engines.
    pub(super) fn whole(self, asked_as: String, edits: &Edits, split: &SplitDevice) -> Option<Edits> {
        let is_whole = split.method.is_whole();
        let mut edits = edits.clone();
        match self.sharing.plan.whole_device {
            WholeDevice::Hide if !is_whole => return None,
            WholeDevice::Open if !is_whole => {}
            _ => {
                let mut call = self.call(split, Subject::WHOLE);
                call.asked_as = Some(asked_as);
                if !is_whole {
                    call.siblings = siblings(split);
                }
                edits.hooks.push(self.claim(&call));
            }
        }
        Some(edits)
    }

    /// The shares of a split device that is called `base`, with their kind. `edits` are those of the whole device.
    pub(super) fn shares(
        self,
        base: &DeviceName,
        edits: &Edits,
        split: &SplitDevice,
    ) -> Result<Vec<(CdiKind, DerivedDevice)>> {
        // Replicas differ in nothing that a container sees, so one device serves all of them: its hook picks a free
        // one.
        let any = split.replica().map(|share| (Part::Any, share));
        let named = self.sharing.plan.named_shares(split);
        let named = named.filter_map(|name| split.share(&name).map(|share| (Part::Share(name), share)));
        let mut devices = Vec::new();
        for (part, share) in any.into_iter().chain(named) {
            let promise = split.promise(share);
            let name: DeviceName = part.name_of(base).parse()?;
            let mut call = self.call(split, Subject::Part(part, promise));
            call.asked_as = Some(format!("{}={name}", split.kind));
            call.siblings = siblings(split);
            // Turns are fractions of a whole that needs no number.
            call.bounds = matches!(promise, Promise::Mps { .. }).then(|| split.bounds());
            let mut edits = edits.clone();
            self.limit(&mut edits, call, split, promise, share.priority)?;
            devices.push((split.kind.clone(), DerivedDevice { name, edits }));
        }
        Ok(devices)
    }

    /// Adds what the strategy of `split` gives a container with `promise` of it, and the hook of `call`, with what it
    /// must then check. Returns whether an MPS daemon serves it, so that the container can have nothing else.
    pub(super) fn limit(
        self,
        edits: &mut Edits,
        mut call: ClaimCall,
        split: &SplitDevice,
        promise: Promise,
        priority: Priority,
    ) -> Result<bool> {
        let inside = split.in_container(promise, priority, &self.sharing.state_dir)?;
        let environment = inside.environment.into_iter();
        edits
            .env
            .extend(environment.map(|(name, value)| (name.to_owned(), value)));
        for DirectoryInContainer { path, host } in inside.directories {
            let options = ["ro", "nosuid", "nodev", "noexec", "rbind", "rprivate"].map(str::to_owned);
            let options = options.to_vec();
            edits.mounts.insert(path, MountEdit { host, options });
        }
        call.alone = inside.daemon.is_some() || split.one_share_a_claim;
        if inside.daemon.is_some() {
            let nodes = edits.nodes.iter();
            let own = nodes.filter(|(path, _)| path.as_str().starts_with("/dev/nvidia"));
            let own = own.map(|(path, node)| BoundPath {
                container: path.clone(),
                host: node.host.clone(),
            });
            call.nodes = own.collect();
        }
        call.daemon = inside.daemon;
        edits.hooks.push(self.claim(&call));
        Ok(call.daemon.is_some())
    }
}

fn siblings(split: &SplitDevice) -> Siblings {
    match split.replicas() {
        1.. => Siblings::Replicas(split.replicas()),
        0 => Siblings::Named(split.shares.names().map(|name| name.to_string()).collect()),
    }
}
