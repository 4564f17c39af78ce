//! A GPU's instances as a row of boxes, each as wide as the memory that it has.

use std::fmt::Write;
use tranche_plan::mig::{MigGpu, Placement};

/// A box is at least so wide for each unit of memory.
const NARROWEST: usize = 4;

/// The instances of `gpu` in the order of their places, with the free units between them:
///
/// ```text
/// 0       1       2       3       4       5       6       7
/// |3g.20gb                        |2g.10gb        |1g.5gb |       |
/// ```
///
/// `None` if the GPU has no units: MIG mode is off, or the driver offers no profile.
pub(super) fn picture(gpu: &MigGpu) -> Option<String> {
    let units = units(gpu)?;
    let label = |placement: &Placement| {
        let of = gpu.instances.iter().find(|one| one.placement == *placement);
        of.and_then(|one| gpu.profile(one.profile))
            .map_or_else(|| "?".to_owned(), |profile| profile.name.to_string())
    };
    let labels: Vec<(Placement, String)> = gpu
        .instances
        .iter()
        .map(|one| (one.placement, label(&one.placement)))
        .collect();
    let needed = |(placement, label): &(Placement, String)| {
        // The border is one of the columns.
        (label.chars().count() + 1).div_ceil(placement.size.max(1) as usize)
    };
    let width = labels.iter().map(needed).max().unwrap_or(0).max(NARROWEST);
    let mut numbers = String::new();
    let mut boxes = String::new();
    let mut unit = 0;
    while unit < units {
        let here = labels.iter().find(|(placement, _)| placement.start == unit);
        let (size, text) = match here {
            Some((placement, label)) => (placement.size.max(1), label.as_str()),
            None => (1, ""),
        };
        let columns = width * size as usize - 1;
        // Writing to a string cannot fail.
        let _ = write!(boxes, "|{text:columns$}");
        unit += size;
    }
    for number in 0..units {
        let _ = write!(numbers, "{number:<width$}");
    }
    Some(format!("{}\n{boxes}|\n", numbers.trim_end()))
}

/// How many units of memory the GPU is divided into: where the last place of any profile ends.
fn units(gpu: &MigGpu) -> Option<u32> {
    let offered = gpu.profiles.iter().flat_map(|profile| &profile.placements);
    let taken = gpu.instances.iter().map(|one| &one.placement);
    let ends = offered
        .chain(taken)
        .map(|placement| placement.start.saturating_add(placement.size));
    // More than any GPU has: a library that reports more must not fill the screen.
    const MOST: u32 = 64;
    ends.max().filter(|units| (1..=MOST).contains(units))
}
