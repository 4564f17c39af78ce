//! Clocks, temperature and throttling, as NVML samples them while a cell is measured.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

tranche_core::types::words! {
    /// Why a GPU was slower than it can be.
    pub enum Throttle: "reason of throttling" {
        /// It reached its limit of power.
        Power = "power",
        /// It was too hot.
        Heat = "heat",
        /// The hardware slowed it down: power or temperature of the board.
        Hardware = "hardware",
    }
}
tranche_core::types::serde_as_text!(Throttle);

/// What NVML said once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The clock of the multiprocessors in MHz.
    pub clock_mhz: u32,
    /// Temperature in degrees Celsius.
    pub celsius: u32,
    /// Why the GPU is slower than it can be.
    pub throttled: BTreeSet<Throttle>,
}

/// The same over a measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clocks {
    /// The lowest clock in MHz.
    pub least_mhz: Option<u32>,
    /// The highest.
    pub most_mhz: Option<u32>,
    /// The highest temperature in degrees Celsius.
    pub most_celsius: Option<u32>,
    /// Why the GPU was slower than it can be. The figures of such a cell are marked.
    pub throttled: BTreeSet<Throttle>,
}

impl Clocks {
    pub(super) fn of(samples: &[Sample]) -> Self {
        let one = |sample: &Sample| Self {
            least_mhz: Some(sample.clock_mhz),
            most_mhz: Some(sample.clock_mhz),
            most_celsius: Some(sample.celsius),
            throttled: sample.throttled.clone(),
        };
        samples.iter().map(one).fold(Self::default(), |all, one| all.with(&one))
    }

    pub(super) fn with(self, other: &Self) -> Self {
        let least = [self.least_mhz, other.least_mhz];
        Self {
            least_mhz: least.into_iter().flatten().min(),
            most_mhz: self.most_mhz.max(other.most_mhz),
            most_celsius: self.most_celsius.max(other.most_celsius),
            throttled: &self.throttled | &other.throttled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extremes_of_all_samples_and_every_reason_count() {
        let sample = |clock_mhz, throttled: &[Throttle]| Sample {
            clock_mhz,
            celsius: clock_mhz / 20,
            throttled: throttled.iter().copied().collect(),
        };
        let clocks = Clocks::of(&[sample(1980, &[]), sample(1200, &[Throttle::Power])]);
        assert_eq!(
            (clocks.least_mhz, clocks.most_mhz, clocks.most_celsius),
            (Some(1200), Some(1980), Some(99))
        );
        assert_eq!(clocks.throttled, [Throttle::Power].into());
        assert_eq!(Clocks::of(&[]), Clocks::default());
    }
}
