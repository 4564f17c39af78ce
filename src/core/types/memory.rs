//! Sizes of memory.

use crate::error::Error;
use std::fmt;

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct MemorySize(u64);

const MIB: u64 = 1 << 20;

impl MemorySize {
    /// A size, from bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A size, from MiB. One that does not fit into u64 bytes becomes the largest size.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(MIB))
    }

    /// A size, from MiB; `None` for one that does not fit into u64 bytes.
    pub fn checked_mib(mib: u64) -> Option<Self> {
        mib.checked_mul(MIB).map(Self)
    }

    /// The sum; `None` for one that does not fit into u64 bytes.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The size in whole MiB, rounded down, because no more may be promised than there is.
    pub const fn mib(self) -> u64 {
        self.0 / MIB
    }
}

/// For `#[serde(with)]`: whole MiB, in files and outputs whose fields are named so.
pub mod in_mib {
    use super::MemorySize;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes whole MiB.
    ///
    /// # Errors
    /// Returns the error of the serializer.
    pub fn serialize<S: Serializer>(size: &MemorySize, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(size.mib())
    }

    /// Reads whole MiB.
    ///
    /// # Errors
    /// Returns an error for anything but a number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MemorySize, D::Error> {
        u64::deserialize(deserializer).map(MemorySize::from_mib)
    }
}

/// As [`in_mib`], for a size that may be unknown.
pub mod in_mib_if_known {
    use super::MemorySize;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes whole MiB, or null.
    ///
    /// # Errors
    /// Returns the error of the serializer.
    pub fn serialize<S: Serializer>(size: &Option<MemorySize>, serializer: S) -> Result<S::Ok, S::Error> {
        size.map(MemorySize::mib).serialize(serializer)
    }

    /// Reads whole MiB, or null.
    ///
    /// # Errors
    /// Returns an error for anything but a number or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<MemorySize>, D::Error> {
        let mib = Option::<u64>::deserialize(deserializer)?;
        Ok(mib.map(MemorySize::from_mib))
    }
}

impl std::str::FromStr for MemorySize {
    type Err = Error;

    /// Reads `64Gi`, `12GiB`, `512MiB`, `7000M` (millions of bytes) or plain bytes. A number before a unit may have
    /// decimals (`1.5Gi`); the size is rounded down to bytes.
    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).map(Self).ok_or_else(|| {
            Error::usage(format!("\"{text}\""), "not a valid size of memory").hint("write 7Gi, 7000Mi or 7500M")
        })
    }
}

fn parse(text: &str) -> Option<u64> {
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit: u128 = match unit.trim_start().trim_end_matches(['b', 'B']) {
        "" => 1,
        "k" | "K" => 1000,
        "M" => 1000 * 1000,
        "G" => 1000 * 1000 * 1000,
        "T" => 1000 * 1000 * 1000 * 1000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() > 18 || decimals.len() > 6 || number.contains('.') && (decimals.is_empty() || unit == 1) {
        return None;
    }
    let millionths: u128 = super::decimal(&format!("{decimals:0<6}"))?;
    let bytes = super::decimal::<u128>(whole)? * unit + millionths * unit / 1_000_000;
    u64::try_from(bytes).ok()
}

impl fmt::Display for MemorySize {
    /// Writes the size for people: in GiB with one decimal from 1 GiB on, in MiB below.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.mib();
        if mib >= 1024 {
            let tenths = mib * 10 / 1024;
            f.pad(&format!("{}.{} GiB", tenths / 10, tenths % 10))
        } else {
            f.pad(&format!("{mib} MiB"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_as_people_write_it() {
        let mib = |s: &str| s.parse::<MemorySize>().map(MemorySize::mib);
        assert_eq!(mib("64Gi").unwrap(), 65_536);
        assert_eq!(mib("1.5GiB").unwrap(), 1536);
        assert_eq!("7000M".parse::<MemorySize>().unwrap().bytes(), 7_000_000_000);
        assert_eq!(mib("512 MiB").unwrap(), 512);
        for bad in ["", "Gi", "-1Gi", "1.Gi", "1..5Gi", "1.5", "5Xi", "99999999999Ti", "1e3"] {
            assert!(mib(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shown_rounded_down() {
        assert_eq!(MemorySize::from_mib(81_559).to_string(), "79.6 GiB");
        assert_eq!(MemorySize::from_bytes(1_073_741_823).to_string(), "1023 MiB");
        assert_eq!(MemorySize::from_mib(u64::MAX).bytes(), u64::MAX);
    }
}
