//! A claim on shares, as a specification of its own.

use super::{Derived, DerivedDevice, Options, gpu, hook, share};
use crate::call::{ReleaseCall, Subject};
use crate::edits::Stage;
use crate::error::{Error, Result};
use crate::inventory::Inventory;
use crate::share::{Fit, Held};
use crate::types::{CdiKind, HostPath};

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
    let hook = share::hook_of(options).ok_or_else(|| Error::usage("claim", "needs the hook of tranche"))?;
    let (mut derived, mut edits) = gpu::one(inventory, options, fit.device)?;
    // With the promise, so that the limits below are never those of another claim of this name.
    let subject = Subject::Claim(name.to_owned(), split.promise_of(&fit.shares));
    let mut call = share::claim_on(split, sharing, subject);
    let first = fit.shares.iter().find_map(|name| split.share(name));
    let held = Held {
        memory: fit.memory,
        compute: fit.compute,
        priority: first.map(|share| share.priority).unwrap_or_default(),
    };
    share::limit(&mut edits, &mut call, split, sharing, &held)?;
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
