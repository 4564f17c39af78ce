//! Shares of a device, as devices of a specification; and claims on shares, as specifications of their own.

use super::{Derived, DerivedDevice, Options, gpu, hook};
use crate::call::{ClaimCall, OwnNode, ReleaseCall, Siblings, Subject};
use crate::edits::{Edits, HookEdit, MountEdit, Stage};
use crate::error::{Error, Result};
use crate::inventory::{HostDevice, Inventory};
use crate::policy::{Priority, WholeDevice};
use crate::share::{Fit, Method, Plan, SplitDevice};
use crate::types::{CdiKind, ContainerPath, DeviceKey, DeviceName, HostPath, MemorySize, ShareName};
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

/// Where CUDA looks for the daemon of MPS when nothing says otherwise: a process that an engine starts by `exec` gets
/// no environment of CDI's, and must find the daemon all the same.
const PIPE_IN_CONTAINER: &str = "/tmp/nvidia-mps";

impl Sharing {
    /// Whether somebody holds something of a device, under an earlier policy.
    pub(super) fn is_held(&self, device: HostDevice<'_>) -> bool {
        let key = device.key();
        self.held.iter().any(|held| held.overlaps(&key))
    }

    /// Whether any device is shared by MPS.
    pub fn has_mps(&self) -> bool {
        self.plan.devices.iter().any(|d| matches!(d.method, Method::Mps { .. }))
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
    let dedicated = split.method == Method::Dedicated;
    match sharing.plan.whole_device {
        WholeDevice::Hide if !dedicated => None,
        WholeDevice::Open if !dedicated => Some(edits.clone()),
        _ => {
            let mut edits = edits.clone();
            let mut call = ClaimCall {
                asked_as: Some(asked_as.to_owned()),
                ..claim_on(split, sharing, Subject::Whole)
            };
            if !dedicated {
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
            limit(
                &mut edits,
                split,
                sharing,
                share.memory,
                share.compute.map(|c| c.get()),
                share.priority,
            )?;
            let asked_as: DeviceName = format!("{base}.{name}").parse()?;
            // Turns are fractions of a whole that needs no number.
            let is_mps = matches!(split.method, Method::Mps { .. });
            let mut call = ClaimCall {
                asked_as: Some(format!("{}={asked_as}", split.kind)),
                siblings: siblings(split),
                bounds: is_mps.then(|| split.bounds()),
                ..claim_on(split, sharing, subject)
            };
            neighbours(&mut call, &edits, split, sharing);
            edits
                .hooks
                .push(hook::tranche(hook, Stage::CreateRuntime, call.write()));
            let name = asked_as;
            Ok((split.kind.clone(), DerivedDevice { name, edits }))
        })
        .collect()
}

/// The specification of a claim that was made beforehand: `nvidia.com/claim=NAME`, with the limits of its shares in
/// sum. `spec_file` is where it will lie, so that it can go with the claim.
///
/// # Errors
/// A device that is not in the inventory, or has no node; a name that CDI does not allow.
pub fn claim(inventory: &Inventory, options: &Options, fit: &Fit, name: &str, spec_file: &HostPath) -> Result<Derived> {
    let sharing = options
        .sharing
        .as_ref()
        .ok_or_else(|| Error::failed("claim", "there is no plan"))?;
    let split = sharing
        .plan
        .split(fit.device)
        .ok_or_else(|| Error::failed(fit.device, "is not split"))?;
    let hook = hook_of(options).ok_or_else(|| Error::usage("claim", "needs the hook of tranche"))?;
    let (mut derived, mut edits) = gpu::one(inventory, options, fit.device)?;
    let priority = fit
        .shares
        .iter()
        .filter_map(|n| split.share(n))
        .map(|s| s.priority)
        .next()
        .unwrap_or_default();
    limit(&mut edits, split, sharing, fit.memory, fit.compute, priority)?;
    // With the promise, so that the limits above are never those of another claim of this name.
    let subject = Subject::Claim(name.to_owned(), split.promise_of(&fit.shares));
    let mut call = claim_on(split, sharing, subject);
    neighbours(&mut call, &edits, split, sharing);
    edits
        .hooks
        .push(hook::tranche(&hook, Stage::CreateRuntime, call.write()));
    let release = ReleaseCall {
        device: Some(split.key.clone()),
        claim: Some(name.to_owned()),
        spec_file: Some(spec_file.clone()),
        state_dir: sharing.state_dir.clone(),
    };
    edits.hooks.push(hook::tranche(&hook, Stage::Poststop, release.write()));
    derived.kind = CdiKind::new("nvidia.com", "claim")?;
    derived.devices = vec![DerivedDevice {
        name: name.parse()?,
        edits,
    }];
    Ok(derived)
}

/// The program that can claim, where the specification has it.
pub(super) fn hook_of(options: &Options) -> Option<HostPath> {
    let hook = options.hook.as_ref().filter(|hook| hook.is_tranche())?;
    Some(hook.path.clone())
}

/// Sets what MPS reads in a container. Every variable of the family, so that what an image or its user sets is written
/// over; `CUDA_MPS_SM_PARTITION` alone is left, since it has no value that means nothing, and the daemon heeds it only
/// where it was started for static partitions (MPS documentation, "Environment Variables").
fn limit(
    edits: &mut Edits,
    split: &SplitDevice,
    sharing: &Sharing,
    memory: Option<MemorySize>,
    compute: Option<u32>,
    priority: Priority,
) -> Result<()> {
    if !matches!(split.method, Method::Mps { .. }) {
        return Ok(());
    }
    let uuid = split
        .uuid
        .as_ref()
        .ok_or_else(|| Error::failed(split.device, "has no UUID to limit it by"))?;
    let memory = memory.or(split.memory).map(MemorySize::mib);
    // With overcommit, shares that are claimed as one are more together than there is.
    let memory = memory.map(|mib| split.memory.map_or(mib, |whole| mib.min(whole.mib())));
    let compute = compute.map(|percent| percent.min(100));
    let mut set = |name: &str, value: String| edits.env.insert(name.to_owned(), value);
    set("CUDA_MPS_PIPE_DIRECTORY", PIPE_IN_CONTAINER.into());
    set("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", compute.unwrap_or(100).to_string());
    if let Some(mib) = memory {
        // By UUID: an ordinal means another device on either side of the daemon.
        set("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", format!("{uuid}={mib}M"));
        set("NVIDIA_GPU_MEMORY_LIMIT", mib.to_string());
    }
    set("NVIDIA_GPU_MEMORY_REQUEST", "0".into());
    let priority = if priority == Priority::BelowNormal { "1" } else { "0" };
    set("CUDA_MPS_CLIENT_PRIORITY", priority.into());
    set("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING", "0".into());
    set("CUDA_VISIBLE_DEVICES", uuid.clone());
    edits.mounts.insert(
        ContainerPath::new(PIPE_IN_CONTAINER)?,
        MountEdit {
            host: split.pipe_directory(&sharing.state_dir),
            options: ["rw", "nosuid", "nodev", "noexec", "rbind", "rprivate"]
                .map(str::to_owned)
                .to_vec(),
        },
    );
    Ok(())
}

/// A claim on `subject` of `split`.
fn claim_on(split: &SplitDevice, sharing: &Sharing, subject: Subject) -> ClaimCall {
    ClaimCall {
        state_dir: sharing.state_dir.clone(),
        ..ClaimCall::of(split.key.clone(), split.device.to_string(), subject)
    }
}

/// Adds to `call` what the claim hook must know of other shares and devices in the container.
fn neighbours(call: &mut ClaimCall, edits: &Edits, split: &SplitDevice, sharing: &Sharing) {
    let mps = matches!(split.method, Method::Mps { .. });
    call.alone = mps || split.one_share_a_claim;
    if mps {
        let own = edits
            .nodes
            .iter()
            .filter(|(path, _)| path.as_str().starts_with("/dev/nvidia"));
        let own = own.map(|(path, node)| OwnNode {
            container: path.clone(),
            host: node.host.clone(),
        });
        call.nodes = own.collect();
        call.daemon = Some(split.pipe_directory(&sharing.state_dir));
    }
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
