//! GPUs that share one address space with the processor, and those that do not, as kinds of their own.
//!
//! This is what NVIDIA's generator does under its feature flag `enable-coherent-annotations`: beside the specification of
//! all devices, it writes one of class `gpu.coherent`, one of class `gpu.noncoherent`, or both. A GPU of which NVML says
//! that the addressing mode is not supported is not coherent. Without NVML nobody knows, and neither class is written.

use super::select;
use super::{Derived, DerivedDevice, Options};
use crate::edits::Edits;
use crate::error::Result;
use crate::inventory::{AddressingMode, HostDevice, Source, Warning};
use crate::types::CdiKind;
use std::collections::BTreeMap;

/// Adds the two kinds to `derived`. `found` are devices that no policy splits; `programs` is what each gets besides its
/// own edits.
///
/// # Errors
/// A class that CDI does not allow, two devices that cannot be merged into `all`.
pub(super) fn split(
    found: &[&(HostDevice<'_>, Edits)],
    source: Source,
    programs: &Edits,
    options: &Options,
    derived: &mut Derived,
) -> Result<()> {
    if source == Source::Proc {
        derived.warnings.push(Warning {
            object: "enable-coherent-annotations".into(),
            text: "NVML did not answer, so it is unknown which GPUs are coherent; neither class is written".into(),
        });
        return Ok(());
    }
    let mut all: BTreeMap<CdiKind, Edits> = BTreeMap::new();
    for strategy in &options.names {
        for (one, edits) in found {
            // What is wrong with a name was said when the device itself was named.
            let Some(name) = select::name(*one, *strategy, &mut Vec::new()) else {
                continue;
            };
            let kind = kind(&derived.kind, one.gpu.addressing)?;
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

fn kind(all: &CdiKind, mode: Option<AddressingMode>) -> Result<CdiKind> {
    let word = match mode {
        Some(AddressingMode::Ats) => "coherent",
        _ => "noncoherent",
    };
    CdiKind::new(all.vendor(), &format!("{}.{word}", all.class()))
}
