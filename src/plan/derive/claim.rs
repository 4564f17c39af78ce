//! A claim on shares, as a specification of its own.

use super::container::{ReservedShares, claim_of, split_of};
use super::{Derived, DerivedDevice, Options, gpu};
use crate::inventory::Inventory;
use crate::share::Fit;
use tranche_core::call::ReleaseCall;
use tranche_core::error::Result;
use tranche_core::types::{CdiKind, HostPath};

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
