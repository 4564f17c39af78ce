//! Kinds of their own for GPUs that share one address space with the processor, and for those that do not.
//!
//! NVIDIA's generator does this under its feature flag `enable-coherent-annotations`: in addition to the specification
//! of all devices, it writes one of class `gpu.coherent`, one of class `gpu.noncoherent`, or both. A GPU is not
//! coherent if NVML says that it does not support the addressing mode. Without NVML, neither class is written.

use super::select;
use super::{Derived, DerivedDevice, Options};
use crate::edits::Edits;
use crate::inventory::{AddressingMode, HostDevice, Source};
use std::collections::BTreeMap;
use tranche_core::error::Result;
use tranche_core::types::CdiKind;

/// Adds the two kinds to `derived`. `found` are devices that no policy splits; `programs` is what each gets besides its
/// own edits.
///
/// # Errors
/// Returns an error if a class is not valid in CDI, or if two devices cannot be merged into `all`.
pub(super) fn split(
    found: &[(HostDevice<'_>, Edits)],
    source: Source,
    programs: &Edits,
    options: &Options,
    derived: &mut Derived,
) -> Result<()> {
    if source == Source::Proc {
        derived.warn(
            "enable-coherent-annotations",
            "NVML did not answer, so it is unknown which GPUs are coherent; neither class is written",
        );
        return Ok(());
    }
    let mut all: BTreeMap<CdiKind, Edits> = BTreeMap::new();
    for strategy in &options.names {
        for (one, edits) in found {
            // A name that is not valid was reported when the device itself was named.
            let Some(name) = select::name(*one, *strategy, &mut Vec::new()) else {
                continue;
            };
            let kind = kind(&derived.kind, one.gpu.addressing)?;
            let mut edits = edits.clone();
            edits.merge(programs)?;
            all.entry(kind.clone()).or_default().merge(&edits)?;
            derived.add(kind, DerivedDevice { name, edits });
        }
    }
    for (kind, edits) in all.into_iter().filter(|_| select::wants_all(options)) {
        derived.add(kind, DerivedDevice::named("all", edits)?);
    }
    Ok(())
}

fn kind(all: &CdiKind, mode: Option<AddressingMode>) -> Result<CdiKind> {
    let word = match mode {
        Some(AddressingMode::Ats) => "coherent",
        _ => "noncoherent",
    };
    CdiKind::new(all.vendor(), &format!("{}.{word}", all.class()))
}
