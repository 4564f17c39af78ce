//! Figures of latency and fairness, each from its definition.

use serde::{Deserialize, Serialize};

/// The smallest value that is not below `percent` of all (nearest rank). `sorted` rises. `None` if it is empty.
pub fn percentile(sorted: &[u64], percent: u32) -> Option<u64> {
    let count = u64::try_from(sorted.len()).unwrap_or(u64::MAX);
    let rank = count.saturating_mul(u64::from(percent.min(100))).div_ceil(100);
    sorted.get(usize::try_from(rank).ok()?.saturating_sub(1)).copied()
}

/// A figure that was measured several times: the median, the least and the most. Of one measurement all are the same.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of these values. What is not a finite number does not count; `None` if nothing does.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = |at: usize| values.get(at).copied().unwrap_or(least);
        let median = f64::midpoint(middle((values.len() - 1) / 2), middle(values.len() / 2));
        Some(Self {
            median: rounded(median),
            least: rounded(least),
            most: rounded(most),
        })
    }

    /// This figure divided by another one: the least is the least that both allow. `None` if the other may be zero.
    pub fn over(self, other: Self) -> Option<Self> {
        let quotients = [
            self.least / other.most,
            self.median / other.median,
            self.most / other.least,
        ];
        let is_positive = other.least > 0.0 && quotients.iter().all(|one| one.is_finite());
        is_positive.then(|| Self::of(quotients)).flatten()
    }

    /// Whether the two have a value in common, so that they may be the same.
    pub fn overlaps(self, other: Self) -> bool {
        self.least <= other.most && other.least <= self.most
    }

    /// Whether it was seen to differ from one measurement to the next.
    pub fn is_wide(self) -> bool {
        self.least < self.most
    }
}

/// To a ten-thousandth: what is behind it is noise, and makes files long.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Jain's index of fairness ("A quantitative measure of fairness and discrimination", 1984): 1 if all get the same part
/// of what they have alone, and 1/n if one of n gets everything. `None` if nobody gets anything.
pub fn jain(parts: &[f64]) -> Option<f64> {
    let (sum, squares) = (parts.iter().sum::<f64>(), parts.iter().map(|x| x * x).sum::<f64>());
    let index = sum * sum / (parts.len() as f64 * squares);
    index.is_finite().then(|| rounded(index))
}

/// The weighted speed-up (Snavely and Tullsen, "Symbiotic jobscheduling", 2000): the sum of what each has in the
/// company of the others, as a part of what it has alone. Above 1, sharing does more work than turns.
pub fn weighted_speed_up(parts: &[f64]) -> Option<f64> {
    let sum = parts.iter().sum::<f64>();
    (!parts.is_empty() && sum.is_finite()).then(|| rounded(sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(
            [50, 95, 99, 100].map(|p| percentile(&hundred, p).unwrap()),
            [50, 95, 99, 100]
        );
        assert_eq!([0, 50, 51, 99].map(|p| percentile(&[1, 2], p).unwrap()), [1, 1, 2, 2]);
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn a_spread_has_the_median_of_three() {
        let spread = Spread::of([3.0, 1.0, f64::NAN, 2.0]).unwrap();
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.0, 3.0));
        assert_eq!(Spread::of([1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of([f64::INFINITY]), None);
        let double = spread.over(Spread::of([1.0]).unwrap()).unwrap();
        assert_eq!((double.least, double.most), (1.0, 3.0));
        assert_eq!(spread.over(Spread::of([0.0, 1.0]).unwrap()), None);
        for (other, overlaps) in [
            ([2.5, 9.0], true),
            ([0.0, 1.0], true),
            ([3.1, 4.0], false),
            ([0.1, 0.9], false),
        ] {
            assert_eq!(spread.overlaps(Spread::of(other).unwrap()), overlaps, "{other:?}");
        }
    }

    #[test]
    fn fairness_has_its_known_values() {
        assert_eq!(jain(&[0.5, 0.5]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0]), Some(0.5));
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[]), None);
        assert_eq!(weighted_speed_up(&[0.7, 0.6]), Some(1.3));
        assert_eq!(weighted_speed_up(&[]), None);
    }

    proptest! {
        #[test]
        fn percentiles_are_values_and_rise(mut values in prop::collection::vec(any::<u64>(), 1..200)) {
            values.sort();
            let all: Vec<u64> = (0..=100).map(|p| percentile(&values, p).unwrap()).collect();
            prop_assert!(all.is_sorted() && all.iter().all(|one| values.contains(one)));
            prop_assert_eq!(all[100], *values.last().unwrap());
            // At least so many percent are not above it.
            for (p, value) in all.iter().enumerate() {
                let below = values.iter().filter(|one| *one <= value).count();
                prop_assert!(below * 100 >= p * values.len());
            }
        }

        #[test]
        fn jain_is_between_one_part_and_one(parts in prop::collection::vec(0.001_f64..10.0, 1..9), factor in 0.1_f64..9.0) {
            let index = jain(&parts).unwrap();
            prop_assert!(index <= 1.0001 && index >= 1.0 / parts.len() as f64 - 0.0001);
            let scaled: Vec<f64> = parts.iter().map(|x| x * factor).collect();
            prop_assert!((jain(&scaled).unwrap() - index).abs() < 0.001, "it does not depend on the unit");
        }

        #[test]
        fn quotients_keep_their_order(a in prop::collection::vec(0.1_f64..1e6, 1..4), b in prop::collection::vec(0.1_f64..1e6, 1..4)) {
            let (a, b) = (Spread::of(a).unwrap(), Spread::of(b).unwrap());
            let one = a.over(b).unwrap();
            prop_assert!(one.least <= one.median && one.median <= one.most);
            prop_assert!(a.over(a).unwrap().overlaps(Spread::of([1.0]).unwrap()));
        }
    }
}
