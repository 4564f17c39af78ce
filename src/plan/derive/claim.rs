//! A claim on shares, as a specification of its own.

use super::container::{ReservedShares, claim_of, split_of};
use super::share::Claimer;
use super::{Derived, DerivedDevice, Options, gpu};
use crate::inventory::Inventory;
use crate::share::{DraPart, Fit};
use tranche_core::call::ReleaseCall;
use tranche_core::error::{Error, Result};
use tranche_core::types::{CdiKind, Device, HostPath, Promise, Subject};

/// The specification of a claim that was made beforehand: `nvidia.com/claim=NAME`, with the limits of its shares in
/// sum. `spec_file` is where it will be, so that it can be removed together with the claim.
///
/// # Errors
/// Returns an error if the device is not in the inventory or has no node, or if CDI does not allow the name.
pub fn claim(inventory: &Inventory, options: &Options, fit: &Fit, name: &str, spec_file: &HostPath) -> Result<Derived> {
    let (split, claimer) = split_of(options, fit)?;
    let (mut derived, programs) = gpu::without_devices(inventory, options)?;
    let mut edits = gpu::nodes_of(inventory, options, fit.device)?;
    if split.method.is_whole() {
        edits.merge(&programs)?;
    }
    let reserved = ReservedShares {
        claim: name.to_owned(),
        fit: fit.clone(),
        asked_as: None,
    };
    claim_of(claimer, &mut edits, split, &reserved)?;
    edits.hooks.push(claimer.release(ReleaseCall {
        device: Some(split.key.clone()),
        claim: Some(name.to_owned()),
        spec_file: Some(spec_file.clone()),
        ..ReleaseCall::default()
    }));
    derived.kind = CdiKind::claim();
    derived.devices = vec![DerivedDevice::named(name, edits)?];
    Ok(derived)
}

/// What the name of the specification of a resource claim begins with. The engine of the node's pods alone uses it.
pub const RESOURCE_CLAIM_FILE: &str = "nvidia.com-resource-claim_";

/// A device of a resource claim of Kubernetes.
#[derive(Debug)]
pub struct ClaimDevice<'a> {
    /// Its name in the specification: with the UID, so that no later claim has it (an engine may remember names), and
    /// without who uses it.
    pub name: String,
    /// The name of the claim in the ledger.
    pub claim: String,
    /// What is reserved.
    pub part: DraPart<'a>,
    /// The limits of each process, at most those of the part.
    pub limits: Promise,
}

impl ClaimDevice<'_> {
    /// The name under which an engine finds it.
    pub fn cdi_name(&self) -> String {
        format!("{}={}", CdiKind::claim(), self.name)
    }
}

/// A device that a resource claim of Kubernetes only watches (admin access): it may be anybody's.
#[derive(Debug)]
pub struct WatchedDevice {
    /// Its name in the specification.
    pub name: String,
    /// The device.
    pub device: Device,
}

/// The specification of a resource claim of Kubernetes, with all of `devices` and the nodes of `watched`. Messages call
/// the claim `asked_as`.
///
/// # Errors
/// As [`claim`].
pub fn resource_claim(
    inventory: &Inventory,
    options: &Options,
    asked_as: &str,
    devices: &[ClaimDevice<'_>],
    watched: &[WatchedDevice],
) -> Result<Derived> {
    let claimer = Claimer::of(options).ok_or_else(|| Error::usage("claim", "needs the hook of tranche"))?;
    let (mut derived, programs) = gpu::without_devices(inventory, options)?;
    derived.kind = CdiKind::claim();
    for ClaimDevice {
        name,
        claim,
        part,
        limits,
    } in devices
    {
        let split = part.split;
        let mut edits = gpu::nodes_of(inventory, options, split.device)?;
        if split.method.is_whole() {
            edits.merge(&programs)?;
        }
        let mut call = claimer.call(split, Subject::Claim(claim.clone(), Some(part.promise)));
        call.asked_as = Some(asked_as.to_owned());
        claimer.limit(&mut edits, call, split, *limits, part.priority)?;
        edits.hooks.push(claimer.release(ReleaseCall {
            device: Some(split.key.clone()),
            ..ReleaseCall::default()
        }));
        derived.devices.push(DerivedDevice::named(name, edits)?);
    }
    for WatchedDevice { name, device } in watched {
        let mut edits = gpu::nodes_of(inventory, options, *device)?;
        edits.merge(&programs)?;
        derived.devices.push(DerivedDevice::named(name, edits)?);
    }
    Ok(derived)
}
