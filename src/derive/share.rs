//! Shares of a device, as devices of a specification; and claims on shares, as specifications of their own.

use super::{Derived, DerivedDevice, Options, gpu};
use crate::claims;
use crate::edits::{Edits, HookEdit, MountEdit, Stage};
use crate::error::{Error, Result};
use crate::inventory::{HostDevice, Inventory};
use crate::ledger::{Promise, STATE_DIR};
use crate::policy::{Priority, WholeDevice};
use crate::share::{Fit, Method, Plan, SplitDevice};
use crate::types::{CdiKind, ContainerPath, Device, DeviceKey, DeviceName, HostPath, MemorySize, ShareName};
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

/// Seconds after which an engine ends a claim hook: as for the hook that prepares the root.
const TIMEOUT: u32 = 10;

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
    let claim = vec!["--whole".to_owned(), format!("--as={asked_as}")];
    take(&device.key(), device.device(), sharing, hook, claim)
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
            let mut claim = vec!["--whole".to_owned(), format!("--as={asked_as}")];
            if !dedicated {
                claim.push(format!("--of={}", siblings(split)));
            }
            edits.hooks.push(take(&split.key, split.device, sharing, hook, claim));
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
    let any = split.replica().map(|share| (ShareName::ANY, share));
    let named = sharing.plan.named_shares(split);
    let named = named.iter().map(|share| (share.name.as_str(), share));
    any.into_iter()
        .chain(named)
        .map(|(name, share)| {
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
            let promise = claims::promise(split, share);
            let mut claim = vec![
                format!("--share={name}"),
                format!("--size={promise}"),
                format!("--as={}={asked_as}", split.kind),
                format!("--of={}", siblings(split)),
            ];
            // Turns are fractions of a whole that needs no number.
            if matches!(promise, Promise::Mps { .. }) {
                claim.push(format!("--capacity={}", claims::bounds(split)));
            }
            claim.extend(neighbours(&edits, split, sharing));
            edits.hooks.push(take(&split.key, split.device, sharing, hook, claim));
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
    let own = format!("--claim={name}");
    let mut claim = vec![own.clone()];
    // So that the limits above are never those of another claim of this name.
    claim.extend(
        claims::part(split, &fit.shares)
            .promise()
            .map(|promise| format!("--size={promise}")),
    );
    claim.extend(neighbours(&edits, split, sharing));
    edits.hooks.push(take(&split.key, split.device, sharing, &hook, claim));
    let release = [
        format!("--device={}", split.key),
        own,
        format!("--spec-file={spec_file}"),
    ];
    edits.hooks.push(give_back(sharing, &hook, release.to_vec()));
    derived.kind = CdiKind::new("nvidia.com", "claim")?;
    derived.devices = vec![DerivedDevice {
        name: name.parse()?,
        edits,
    }];
    Ok(derived)
}

/// The hook that can claim: ours. NVIDIA's knows no shares.
pub(super) fn hook_of(options: &Options) -> Option<HostPath> {
    let path = &options.hook.as_ref()?.path;
    (!matches!(path.file_name(), "nvidia-cdi-hook" | "nvidia-ctk")).then(|| path.clone())
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

/// What the claim hook must know of other shares and devices in the container.
fn neighbours(edits: &Edits, split: &SplitDevice, sharing: &Sharing) -> Vec<String> {
    let mps = matches!(split.method, Method::Mps { .. });
    let mut args = Vec::new();
    if mps || split.one_share_a_claim {
        args.push("--alone".to_owned());
    }
    if mps {
        let own = edits
            .nodes
            .iter()
            .filter(|(path, _)| path.as_str().starts_with("/dev/nvidia"));
        args.extend(own.map(|(path, node)| match node.host.as_str() == path.as_str() {
            true => format!("--node={path}"),
            false => format!("--node={path}:{}", node.host),
        }));
        args.push(format!("--daemon={}", split.pipe_directory(&sharing.state_dir)));
    }
    args
}

/// The shares that a device has, as the hook takes them: a number for replicas, names for others.
fn siblings(split: &SplitDevice) -> String {
    if split.replica().is_some() {
        return split.shares.len().to_string();
    }
    let names: Vec<&str> = split.shares.iter().map(|s| s.name.as_str()).collect();
    names.join(",")
}

/// The hook that takes a share. Engines parse as many of these at each start as there are shares, under all their names: so
/// an option and its value are one argument.
fn take(key: &DeviceKey, label: Device, sharing: &Sharing, hook: &HostPath, claim: Vec<String>) -> HookEdit {
    let mut args = vec![format!("--device={key}"), format!("--label={label}")];
    args.extend(claim);
    verb("claim", Stage::CreateRuntime, sharing, hook, args)
}

/// The hook that gives back: what `release` names, or, with nothing named, all that the container holds.
fn give_back(sharing: &Sharing, hook: &HostPath, release: Vec<String>) -> HookEdit {
    verb("release", Stage::Poststop, sharing, hook, release)
}

/// The hook that gives back whatever the container holds: one for a whole specification.
pub(super) fn give_all_back(sharing: &Sharing, hook: &HostPath) -> HookEdit {
    give_back(sharing, hook, Vec::new())
}

fn verb(name: &str, stage: Stage, sharing: &Sharing, hook: &HostPath, more: Vec<String>) -> HookEdit {
    let mut args = ["tranche-oci", "hook", name].map(str::to_owned).to_vec();
    args.extend(more);
    if sharing.state_dir.as_str() != STATE_DIR {
        args.push(format!("--state-dir={}", sharing.state_dir));
    }
    HookEdit {
        stage,
        path: hook.clone(),
        args,
        env: vec![super::hook::ENVIRONMENT.to_owned()],
        timeout: Some(TIMEOUT),
    }
}
