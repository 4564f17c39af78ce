//! What one container gets: whole devices, and shares that were reserved for its start.

use super::share::Claimer;
use super::{Derived, DerivedDevice, Options, gpu, open_directories, settle};
use crate::edits::Edits;
use crate::inventory::Inventory;
use crate::share::{Fit, SplitDevice};
use tranche_core::call::{ClaimCall, ReleaseCall};
use tranche_core::error::{Error, Result};
use tranche_core::types::{Device, Subject};

/// Shares of one device that are reserved under a name.
#[derive(Debug, Clone)]
pub struct ReservedShares {
    /// The name of the claim.
    pub claim: String,
    /// The device and its shares.
    pub fit: Fit,
    /// How the container asked for them, for messages: `nvidia.com/gpu=0.3`.
    pub asked_as: Option<String>,
}

/// Why a container cannot get what it asks for.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// A container with an MPS share asks for something else as well: a process sees one MPS daemon, and the daemon
    /// shows it one device.
    #[error(
        "{share}: this container has an MPS share of it and asks for {other} as well, and a container with an MPS share \
         can have nothing else; {}", instead(*share, *other)
    )]
    NotBesideMps {
        /// The device of the MPS share.
        share: Device,
        /// The other device; the same one if it asks for the whole of it, or for a second claim on it.
        other: Device,
    },
    /// Anything else.
    #[error("{0}")]
    Failed(#[from] Error),
}

fn instead(share: Device, other: Device) -> &'static str {
    match share == other {
        true => "ask once for several shares of this device, or for the whole of it",
        false => "give each device a container of its own, or ask for several shares of one device",
    }
}

/// What a container gets that asks for the whole of each device in `plain` and has `reserved` for itself:
/// [`Derived::common`] once, and a device for each of them. Without any device, it gets the driver's files.
///
/// # Errors
/// Returns [`ContainerError::NotBesideMps`] for an MPS share with something else, and an error if a device is unknown,
/// if one of its nodes is missing, or if the policy hides the whole of a device in `plain`.
pub fn container(
    inventory: &Inventory,
    options: &Options,
    plain: &[Device],
    reserved: &[ReservedShares],
) -> Result<Derived, ContainerError> {
    let (mut derived, programs) = gpu::without_devices(inventory, options)?;
    let claimer = Claimer::of(options);
    for device in plain {
        let one = inventory.catalogue().at(*device);
        let one = one.ok_or_else(|| Error::usage(device, "not found"))?;
        let name = device.cdi_name();
        let asked_as = format!("nvidia.com/gpu={name}");
        let edits = gpu::nodes_of(inventory, options, *device)?;
        let whole = gpu::whole(one, asked_as, &edits, &programs, options)?.ok_or_else(|| {
            Error::usage(device, "the policy splits it and hides the device as a whole").hint("ask for a share of it")
        })?;
        derived.devices.push(DerivedDevice::named(&name, whole)?);
    }
    for one in reserved {
        let (split, claimer) = split_of(options, &one.fit)?;
        let mut edits = gpu::nodes_of(inventory, options, one.fit.device)?;
        if split.method.is_whole() {
            edits.merge(&programs)?;
        }
        let needs_daemon = claim_of(claimer, &mut edits, split, one)?;
        let mut others = reserved.iter().filter(|other| other.claim != one.claim);
        let other = plain
            .first()
            .copied()
            .or_else(|| others.next().map(|other| other.fit.device));
        if let Some(other) = other.filter(|_| needs_daemon) {
            let share = one.fit.device;
            return Err(ContainerError::NotBesideMps { share, other });
        }
        derived.devices.push(DerivedDevice::named(&one.claim, edits)?);
    }
    if let Some(claimer) = claimer.filter(|_| derived.devices.iter().any(|device| claims_something(&device.edits))) {
        derived.common.hooks.push(claimer.release(ReleaseCall::default()));
    }
    if let Some(hook) = &options.hook {
        open_directories(hook, &mut derived);
    }
    settle(&mut derived);
    Ok(derived)
}

/// The plan of the device of `fit`, and what makes the hooks of claims.
pub(super) fn split_of<'a>(options: &'a Options, fit: &Fit) -> Result<(&'a SplitDevice, Claimer<'a>)> {
    let sharing = options.sharing.as_ref();
    let sharing = sharing.ok_or_else(|| Error::failed("claim", "there is no plan"))?;
    let split = sharing.plan.split(fit.device);
    let split = split.ok_or_else(|| Error::failed(fit.device, "is not split"))?;
    let claimer = Claimer::of(options).ok_or_else(|| Error::usage("claim", "needs the hook of tranche"))?;
    Ok((split, claimer))
}

/// Adds to `edits` the limits of all shares of a claim in sum, and the hook by which the container enters the claim.
/// Returns whether an MPS daemon serves it.
pub(super) fn claim_of(
    claimer: Claimer<'_>,
    edits: &mut Edits,
    split: &SplitDevice,
    ReservedShares { claim, fit, asked_as }: &ReservedShares,
) -> Result<bool> {
    let promise = split.part(&fit.shares).promise();
    let promise = promise.ok_or_else(|| Error::failed(fit.device, "has no such shares"))?;
    let first = fit.shares.iter().find_map(|name| split.share(name));
    let priority = first.map(|share| share.priority).unwrap_or_default();
    // With the promise, so that the limits are never those of another claim of this name.
    let mut call = claimer.call(split, Subject::Claim(claim.clone(), Some(promise)));
    call.asked_as.clone_from(asked_as);
    claimer.limit(edits, call, split, promise, priority)
}

/// Whether a hook of `edits` claims something.
fn claims_something(edits: &Edits) -> bool {
    edits.hooks.iter().any(|hook| ClaimCall::of_hook(&hook.args).is_some())
}

#[cfg(test)]
mod tests;
