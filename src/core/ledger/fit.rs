//! Whether a part of a device fits in addition to what is held.

use crate::types::{Bounds, DeviceKey, HeldPart, MemorySize, Percent, Promise, Strategy};

/// Why a part does not fit in addition to what is held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The device is used under another strategy.
    #[error("the device is in use under {held}, and this share is of {asked}")]
    Strategy {
        /// The one in use.
        held: Strategy,
        /// The one asked for.
        asked: Strategy,
    },
    /// More memory than there is.
    #[error("it needs {asked} of memory, and {held} of {bound} are held")]
    Memory {
        /// What is held.
        held: MemorySize,
        /// What is asked for.
        asked: MemorySize,
        /// What may be promised.
        bound: MemorySize,
    },
    /// More compute than there is.
    #[error("it needs {asked} of compute, and {held} of {bound} are held")]
    Compute {
        /// What is held.
        held: Percent,
        /// What is asked for.
        asked: Percent,
        /// What may be promised.
        bound: Percent,
    },
    /// More slices of time than there are.
    #[error("it and the slices of time that are held are more than the whole device")]
    Slices,
    /// More holders than the device may have.
    #[error("{holders} others have the device by turns, and it is for at most {most}")]
    Holders {
        /// How many it has.
        holders: usize,
        /// How many it may have.
        most: u32,
    },
    /// One has a limit and the other has no limit, so that it can take what the first was promised.
    #[error(
        "one of it and what is held has a limit of {dimension} and the other has none, so the limit would not hold"
    )]
    Unlimited {
        /// `memory` or `compute`.
        dimension: &'static str,
    },
}

/// Whether `part` of `device` fits in addition to the parts that are `held` by other claims. Sums are exact.
///
/// Claims on other devices count where they use the same memory: compute instances of one GPU instance.
///
/// # Errors
/// Returns the first promise that would not hold.
pub fn fits<'a>(
    device: &DeviceKey,
    part: &HeldPart,
    bounds: Bounds,
    held: impl Iterator<Item = (&'a DeviceKey, &'a HeldPart)> + Clone,
) -> Result<(), Misfit> {
    let asked: Vec<Promise> = part.promises().collect();
    let mut beside: Vec<Promise> = Vec::new();
    for (_, other) in held.clone().filter(|(other, _)| *other == device) {
        let (held, asked) = (other.strategy(), part.strategy());
        if held != asked {
            return Err(Misfit::Strategy { held, asked });
        }
        beside.extend(other.promises());
    }
    if !of_slices(asked.iter().chain(&beside)) {
        return Err(Misfit::Slices);
    }
    let most = asked.iter().chain(&beside).filter_map(|promise| match promise {
        Promise::Turns { holders } => Some(*holders),
        _ => None,
    });
    if let Some(most) = most.min()
        && beside.len() + asked.len() > usize::try_from(most).unwrap_or(usize::MAX)
    {
        let holders = beside.len();
        return Err(Misfit::Holders { holders, most });
    }
    let compute = |promise: &Promise| promise.compute().map(|percent| u64::from(percent.get()));
    if let Some((held, asked)) = sums(&asked, &beside, compute, "compute")?
        && held.saturating_add(asked) > u64::from(bounds.compute.get())
    {
        let percent = |sum| Percent::of_sum(u32::try_from(sum).unwrap_or(u32::MAX));
        return Err(Misfit::Compute {
            held: percent(held),
            asked: percent(asked),
            bound: bounds.compute,
        });
    }
    let memory = |promise: &Promise| promise.memory().map(MemorySize::bytes);
    let beside = held.filter(|(other, _)| other.shares_memory_with(device));
    let beside: Vec<Promise> = beside.flat_map(|(_, part)| part.promises()).collect();
    if let Some((held, asked)) = sums(&asked, &beside, memory, "memory")?
        && let Some(bound) = bounds.memory
        && held.saturating_add(asked) > bound.bytes()
    {
        let [held, asked] = [held, asked].map(MemorySize::from_bytes);
        return Err(Misfit::Memory { held, asked, bound });
    }
    Ok(())
}

/// What is held and what is asked for in one dimension; `None` where neither has a limit of it.
fn sums(
    asked: &[Promise],
    held: &[Promise],
    limit: impl Fn(&Promise) -> Option<u64>,
    dimension: &'static str,
) -> Result<Option<(u64, u64)>, Misfit> {
    let all = || asked.iter().chain(held);
    if all().all(|promise| limit(promise).is_none()) {
        return Ok(None);
    }
    if all().any(|promise| limit(promise).is_none()) {
        return Err(Misfit::Unlimited { dimension });
    }
    let sum = |promises: &[Promise]| promises.iter().filter_map(&limit).fold(0, u64::saturating_add);
    Ok(Some((sum(held), sum(asked))))
}

/// Whether slices, each a fraction of the device, are at most the whole. A sum that 128 bits cannot hold is taken for
/// more: denominators of one device are few.
fn of_slices<'a>(promises: impl Iterator<Item = &'a Promise>) -> bool {
    // Slices of one size are counted first: a thousand equal ones are one fraction.
    let mut sizes: Vec<(u32, u64)> = Vec::new();
    for promise in promises {
        let Promise::Slices { slices, of } = promise else {
            continue;
        };
        match sizes.iter_mut().find(|(size, _)| size == of) {
            Some((_, count)) => *count = count.saturating_add(u64::from(*slices)),
            None => sizes.push((*of, u64::from(*slices))),
        }
    }
    let mut fractions = sizes.into_iter().map(|(of, count)| (u128::from(count), u128::from(of)));
    let sum = fractions.try_fold((0, 1), add);
    sum.is_some_and(|(above, below)| above <= below)
}

/// The sum of two fractions in lowest terms.
fn add(a: (u128, u128), b: (u128, u128)) -> Option<(u128, u128)> {
    let common = divisor(a.1, b.1);
    let below = (a.1 / common).checked_mul(b.1)?;
    let above = a.0.checked_mul(b.1 / common)?;
    let above = above.checked_add(b.0.checked_mul(a.1 / common)?)?;
    let common = divisor(above, below);
    Some((above / common, below / common))
}

/// The greatest common divisor; 1 for two zeros, so that it can divide.
fn divisor(a: u128, b: u128) -> u128 {
    match (a, b) {
        (0, 0) => 1,
        (a, 0) => a,
        (a, b) => divisor(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(list: &[&str]) -> bool {
        let promises: Vec<Promise> = list.iter().map(|text| text.parse().unwrap()).collect();
        of_slices(promises.iter())
    }

    #[test]
    fn slices_add_up_exactly() {
        assert!(slices(&["1/3"; 3]));
        assert!(!slices(&["1/3", "1/3", "1/3", "1/4294967295"]));
        assert!(slices(&["1/2", "1/4", "1/8", "1/8"]));
        assert!(slices(&["1/2", "3/10", "1/5"]));
        assert!(!slices(&["1/2", "3/10", "1/5", "1/1000000"]));
        assert!(slices(&["1/1000"; 1000]) && !slices(&["1/1000"; 1001]));
        // The product of these needs more than 128 bits, and their sum does not.
        let powers = [
            "1/2147483648",
            "1/1073741824",
            "1/536870912",
            "1/268435456",
            "1/134217728",
        ];
        assert!(slices(&powers));
        // Large primes: the sum needs more than 128 bits, and is refused rather than rounded.
        let primes = [
            "1/4294967291",
            "1/4294967279",
            "1/4294967231",
            "1/4294967197",
            "1/4294967189",
        ];
        assert!(!slices(&primes));
    }
}
