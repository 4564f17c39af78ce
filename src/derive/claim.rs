//! A claim on shares, as a specification of its own.

use super::share::Claimer;
use super::{Derived, DerivedDevice, Options, gpu};
use crate::call::{ReleaseCall, Subject};
use crate::error::{Error, Result};
use crate::inventory::Inventory;
use crate::share::Fit;
use crate::types::{CdiKind, HostPath};

/// The specification of a claim that was made beforehand: `nvidia.com/claim=NAME`, with the limits of its shares in
/// sum. `spec_file` is where it will be, so that it can be removed together with the claim.
///
/// # Errors
/// Returns an error if the device is not in the inventory or has no node, or if CDI does not allow the name.
pub fn claim(inventory: &Inventory, options: &Options, fit: &Fit, name: &str, spec_file: &HostPath) -> Result<Derived> {
    let sharing = options
        .sharing
        .as_ref()
        .ok_or_else(|| Error::failed("claim", "there is no plan"))?;
    let split = sharing
        .plan
        .split(fit.device)
        .ok_or_else(|| Error::failed(fit.device, "is not split"))?;
    let claimer = Claimer::of(options).ok_or_else(|| Error::usage("claim", "needs the hook of tranche"))?;
    let (mut derived, mut edits) = gpu::one(inventory, options, fit.device)?;
    let promise = split.part(&fit.shares).promise();
    let promise = promise.ok_or_else(|| Error::failed(fit.device, "has no such shares"))?;
    // With the promise, so that the limits below are never those of another claim of this name.
    let call = claimer.call(split, Subject::Claim(name.to_owned(), Some(promise)));
    let first = fit.shares.iter().find_map(|name| split.share(name));
    let priority = first.map(|share| share.priority).unwrap_or_default();
    claimer.limit(&mut edits, call, split, promise, priority)?;
    edits.hooks.push(claimer.release(ReleaseCall {
        device: Some(split.key.clone()),
        claim: Some(name.to_owned()),
        spec_file: Some(spec_file.clone()),
        ..ReleaseCall::default()
    }));
    derived.kind = CdiKind::new("nvidia.com", "claim")?;
    derived.devices = vec![DerivedDevice::named(name, edits)?];
    Ok(derived)
}
