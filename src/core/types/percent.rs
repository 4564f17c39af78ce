//! Percentages and factors, in whole numbers, so that sums are exact.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// Whole percent of a device's compute: 1 to 100 for one share, and more only in sums that a policy with overcommit
/// allows ([`Percent::of_sum`]).
///
/// Decimals are not valid, because MPS takes whole numbers (`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Percent(u32);

impl Percent {
    /// All of a device.
    pub const ALL: Self = Self(100);

    /// What several shares have in sum, or may have: any number.
    pub const fn of_sum(percent: u32) -> Self {
        Self(percent)
    }

    /// The sum; `None` for one that does not fit into u32.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// For `#[serde(with)]`: a sum of several shares, which may be any number, or null.
pub mod sum_if_known {
    use super::Percent;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes the number, or null.
    ///
    /// # Errors
    /// Returns the error of the serializer.
    pub fn serialize<S: Serializer>(sum: &Option<Percent>, serializer: S) -> Result<S::Ok, S::Error> {
        sum.map(Percent::get).serialize(serializer)
    }

    /// Reads a number, or null.
    ///
    /// # Errors
    /// Returns an error for anything else.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Percent>, D::Error> {
        Ok(Option::<u32>::deserialize(deserializer)?.map(Percent::of_sum))
    }
}

impl TryFrom<u32> for Percent {
    type Error = Error;

    fn try_from(percent: u32) -> Result<Self, Error> {
        match percent {
            1..=100 => Ok(Self(percent)),
            _ => Err(Error::usage(format!("{percent}%"), "a share is 1% to 100%")),
        }
    }
}

impl From<Percent> for u32 {
    fn from(percent: Percent) -> u32 {
        percent.get()
    }
}

impl FromStr for Percent {
    type Err = Error;

    /// Reads `80%` or `80`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.strip_suffix('%').unwrap_or(text).trim_end();
        let number = super::decimal::<u32>(digits)
            .ok_or_else(|| Error::usage(format!("\"{text}\""), "not a whole percentage like 30%"));
        Self::try_from(number?)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}%", self.0))
    }
}

/// The factor by which more may be promised than there is, from 1.0. It is kept in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Overcommit(u32);

impl Default for Overcommit {
    /// 1.0: no more is promised than there is.
    fn default() -> Self {
        Self(1000)
    }
}

impl Overcommit {
    /// What may be promised of `whole`, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        let promised = u128::from(whole) * u128::from(self.0) / 1000;
        u64::try_from(promised).unwrap_or(u64::MAX)
    }
}

super::parsed_type!(Overcommit, overcommit, "overcommit is a number from 1 to 100, like 1.2");

/// Reads `1`, `1.5` or `1.25`: 1 to 100, with at most three decimals.
fn overcommit(text: &str) -> Option<Overcommit> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || whole.len() > 6 || decimals.len() > 3 {
        return None;
    }
    let thousandths = super::decimal(&format!("{whole}{decimals:0<3}"))?;
    (1000..=100_000)
        .contains(&thousandths)
        .then_some(Overcommit(thousandths))
}

impl fmt::Display for Overcommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1000, self.0 % 1000);
        let short = text.trim_end_matches('0');
        let zero = if short.ends_with('.') { "0" } else { "" };
        f.pad(&format!("{short}{zero}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_whole_and_at_most_all() {
        assert_eq!("80%".parse::<Percent>().unwrap().get(), 80);
        for bad in ["0", "0%", "101%", "-1", "12.5%", "%", "", "4294967297%"] {
            assert!(bad.parse::<Percent>().is_err(), "{bad}");
        }
    }

    #[test]
    fn overcommit_is_exact() {
        let x: Overcommit = "1.2".parse().unwrap();
        assert_eq!(x.of(81_559), 97_870);
        assert_eq!(x.to_string(), "1.2");
        assert_eq!("1".parse::<Overcommit>().unwrap(), Overcommit::default());
        assert_eq!(Overcommit::default().to_string(), "1.0");
        for bad in ["0.9", "0", "", "1.2345", "nan", "1e3", "101", ".5"] {
            assert!(bad.parse::<Overcommit>().is_err(), "{bad}");
        }
    }
}
