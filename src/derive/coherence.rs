//! GPUs that share one address space with the processor, and those that do not, as kinds of their own.
//!
//! What NVIDIA's generator does under its feature flag `enable-coherent-annotations`: beside the specification of all
//! devices one of class `gpu.coherent`, one of class `gpu.noncoherent`, or both, for the devices of which the driver says
//! how they address memory.

use super::select::{self, Device};
use super::{Derived, DerivedDevice, Options};
use crate::edits::Edits;
use crate::error::Result;
use crate::inventory::AddressingMode;
use crate::types::CdiKind;
use std::collections::BTreeMap;

/// Adds the two kinds to `derived`. `found` are devices that no policy splits; `programs` is what each gets besides its
/// own edits.
pub(super) fn split(
    found: &[&(Device<'_>, Edits)],
    programs: &Edits,
    options: &Options,
    derived: &mut Derived,
) -> Result<()> {
    let mut all: BTreeMap<CdiKind, Edits> = BTreeMap::new();
    for strategy in &options.names {
        for (one, edits) in found {
            let (Device::Gpu(gpu) | Device::Mig(gpu, _)) = *one;
            let Some(mode) = gpu.addressing else { continue };
            // What is wrong with a name was said when the device itself was named.
            let Some(name) = select::name(*one, *strategy, &mut Vec::new()) else {
                continue;
            };
            let kind = kind(&derived.kind, mode)?;
            let mut edits = edits.clone();
            edits.merge(programs)?;
            all.entry(kind.clone()).or_default().merge(&edits)?;
            derived
                .renamed
                .entry(kind)
                .or_default()
                .push(DerivedDevice { name, edits });
        }
    }
    for (kind, edits) in all.into_iter().filter(|_| select::wants_all(options)) {
        derived
            .renamed
            .entry(kind)
            .or_default()
            .push(DerivedDevice::named("all", edits)?);
    }
    Ok(())
}

fn kind(all: &CdiKind, mode: AddressingMode) -> Result<CdiKind> {
    let word = match mode {
        AddressingMode::Ats => "coherent",
        _ => "noncoherent",
    };
    CdiKind::new(all.vendor(), &format!("{}.{word}", all.class()))
}
