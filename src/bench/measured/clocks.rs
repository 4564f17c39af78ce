//! Clocks, temperature and throttling, as NVML samples them while a cell is measured.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tranche_driver_protocol::{GpuClocks, Slowed};

/// What the sensors of a GPU said over a measurement.
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
    pub throttled: BTreeSet<Slowed>,
}

impl Clocks {
    pub(super) fn of(samples: &[GpuClocks]) -> Self {
        let one = |sample: &GpuClocks| Self {
            least_mhz: sample.sm_mhz,
            most_mhz: sample.sm_mhz,
            most_celsius: sample.celsius,
            throttled: sample.slowed.clone().unwrap_or_default(),
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
        let sample = |sm_mhz, slowed: &[Slowed]| GpuClocks {
            sm_mhz: Some(sm_mhz),
            celsius: Some(sm_mhz / 20),
            slowed: Some(slowed.iter().copied().collect()),
        };
        let clocks = Clocks::of(&[sample(1980, &[]), sample(1200, &[Slowed::Power])]);
        assert_eq!(
            (clocks.least_mhz, clocks.most_mhz, clocks.most_celsius),
            (Some(1200), Some(1980), Some(99))
        );
        assert_eq!(clocks.throttled, [Slowed::Power].into());
        assert_eq!(Clocks::of(&[]), Clocks::default());
        // A sensor that a GPU does not have hides no other one.
        let unknown = GpuClocks::default();
        assert_eq!(Clocks::of(&[unknown, sample(1980, &[])]).least_mhz, Some(1980));
    }
}
