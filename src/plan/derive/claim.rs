//! A claim on shares, as a specification of its own.

use super::container::{ReservedShares, claim_of, split_of};
use super::share::Claimer;
use super::{Derived, DerivedDevice, Options, gpu};
use crate::inventory::Inventory;
use crate::share::{DraPart, Fit};
use tranche_core::call::ReleaseCall;
use tranche_core::error::{Error, Result};
use tranche_core::types::{CdiKind, HostPath, Promise, Subject};

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

/// A device of a specification by which containers use what is reserved for a resource claim of Kubernetes.
#[derive(Debug)]
pub struct PreparedPart<'a> {
    /// The name of the device, which says nothing of who uses it: `UID-gpu-0`.
    pub name: String,
    /// The name of the claim in the ledger.
    pub claim: String,
    /// How the claim is called in messages.
    pub asked_as: String,
    /// What is reserved.
    pub part: DraPart<'a>,
    /// The limits of each process, at most those of the part.
    pub limits: Promise,
}

/// The specification of a resource claim of Kubernetes: `nvidia.com/claim=NAME` for each of `parts`.
///
/// # Errors
/// As [`claim`].
pub fn resource_claim(inventory: &Inventory, options: &Options, parts: &[PreparedPart<'_>]) -> Result<Derived> {
    let claimer = Claimer::of(options).ok_or_else(|| Error::usage("claim", "needs the hook of tranche"))?;
    let (mut derived, programs) = gpu::without_devices(inventory, options)?;
    derived.kind = CdiKind::claim();
    for PreparedPart {
        name,
        claim,
        asked_as,
        part,
        limits,
    } in parts
    {
        let split = part.split;
        let mut edits = gpu::nodes_of(inventory, options, split.device)?;
        if split.method.is_whole() {
            edits.merge(&programs)?;
        }
        let mut call = claimer.call(split, Subject::Claim(claim.clone(), Some(part.promise)));
        call.asked_as = Some(asked_as.clone());
        claimer.limit(&mut edits, call, split, *limits, part.priority)?;
        edits.hooks.push(claimer.release(ReleaseCall {
            device: Some(split.key.clone()),
            ..ReleaseCall::default()
        }));
        derived.devices.push(DerivedDevice::named(name, edits)?);
    }
    Ok(derived)
}
