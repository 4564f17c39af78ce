//! Versions of the driver, of CUDA and of the CDI specification. They are ordered as numbers, not as text.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// Splits `1.2.3` into numbers; `None` for anything that is not digits and dots.
fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split('.').map(super::decimal).collect()
}

/// A driver's version: `550.54.15`, `450.80.02`, `580.95`.
///
/// The text is kept, because it is part of file names, in which `02` is not `2`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion {
    // The order of versions is that of the numbers, and then that of the text.
    numbers: Vec<u32>,
    text: String,
}

impl DriverVersion {
    /// The version as the driver writes it, which is how its files are named.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The branch: 550 of `550.54.15`.
    pub fn major(&self) -> u32 {
        self.numbers.first().copied().unwrap_or(0)
    }
}

fn driver_version(text: &str) -> Option<DriverVersion> {
    let numbers = numbers(text).filter(|numbers| (2..=4).contains(&numbers.len()))?;
    let text = text.to_owned();
    Some(DriverVersion { numbers, text })
}

super::parsed_type!(DriverVersion, driver_version, "not a driver version like 550.54.15");

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

super::serde_as_text!(DriverVersion);

/// The version of an engine: `4.3.1`. Versions are ordered number by number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineVersion(Vec<u32>);

impl EngineVersion {
    /// The numbers, of which the first is the major version. There is at least one.
    pub fn numbers(&self) -> &[u32] {
        &self.0
    }
}

super::parsed_type!(
    EngineVersion,
    |text| numbers(text).map(EngineVersion),
    "not a version like 4.3.1"
);

impl fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.pad(&numbers.join("."))
    }
}

super::serde_as_text!(EngineVersion);

macro_rules! major_minor {
    ($(#[$doc:meta])* $name:ident, $error:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// The number before the dot.
            pub major: u32,
            /// The number after the dot.
            pub minor: u32,
        }

        super::parsed_type!(
            $name,
            |text| match numbers(text)?[..] {
                [major, minor] => Some(Self { major, minor }),
                _ => None,
            },
            $error
        );

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!("{}.{}", self.major, self.minor))
            }
        }

        super::serde_as_text!($name);
    };
}

major_minor!(
    /// The newest version of CUDA that a driver supports.
    CudaVersion,
    "not a version like 12.4"
);
major_minor!(
    /// A GPU's compute capability: 9.0 is Hopper.
    ComputeCapability,
    "not a version like 9.0"
);

super::words! {
    /// A released version of the CDI specification, ordered by age (SPEC.md, "Released versions").
    ///
    /// 0.1.0 and 0.2.0 are only read: no field of a specification has one of them as its minimum version.
    pub enum CdiVersion {
        /// 0.1.0
        V0_1 = "0.1.0",
        /// 0.2.0
        V0_2 = "0.2.0",
        /// The first with the current fields.
        V0_3 = "0.3.0",
        /// Mounts have a `type`.
        V0_4 = "0.4.0",
        /// Device nodes have a `hostPath`; a device's name may begin with a digit.
        V0_5 = "0.5.0",
        /// Annotations; a class may contain dots.
        V0_6 = "0.6.0",
        /// `intelRdt`, `additionalGids`.
        V0_7 = "0.7.0",
        /// Nothing new in a specification.
        V0_8 = "0.8.0",
        /// Nothing new in a specification.
        V1_0 = "1.0.0",
        /// `netDevices`, more of `intelRdt`.
        V1_1 = "1.1.0",
    }
}

impl CdiVersion {
    /// The newest version.
    pub const NEWEST: Self = Self::V1_1;
}

impl FromStr for CdiVersion {
    type Err = Error;

    /// Reads `0.5.0`, or `0.5` as people write it.
    fn from_str(text: &str) -> Result<Self, Error> {
        let is_it = |known: &str| known == text || known.strip_suffix(".0") == Some(text);
        let found = Self::ALL.iter().copied().find(|version| is_it(version.as_str()));
        found.ok_or_else(|| {
            Error::usage(format!("\"{text}\""), "not a version of CDI").hint("expected 0.1.0 to 0.8.0, 1.0.0 or 1.1.0")
        })
    }
}

super::serde_as_text!(CdiVersion);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_order_by_number() {
        let v = |s: &str| s.parse::<DriverVersion>().unwrap();
        assert!(v("550.54.15") > v("550.54.9"));
        assert!(v("1000.1") > v("580.95.05"));
        assert_eq!(v("450.80.02").to_string(), "450.80.02");
        for bad in ["", "550", "550.", "550.54.x", "1.2.3.4.5", "550.54.15/../.."] {
            assert!(bad.parse::<DriverVersion>().is_err(), "{bad}");
        }
    }

    #[test]
    fn engines_order_by_number() {
        let v = |s: &str| s.parse::<EngineVersion>().unwrap();
        assert!(v("4.10.0") > v("4.9.3") && v("4.5.1") > v("4.5") && v("4.6") > v("4.5.1"));
        assert_eq!(v("4.3.1").to_string(), "4.3.1");
        for bad in ["", "4.", "4.x", "v4", "-1"] {
            assert!(bad.parse::<EngineVersion>().is_err(), "{bad}");
        }
    }

    #[test]
    fn cdi_versions_are_those_that_exist() {
        assert_eq!("0.5".parse::<CdiVersion>().unwrap(), CdiVersion::V0_5);
        assert_eq!("1.0.0".parse::<CdiVersion>().unwrap().to_string(), "1.0.0");
        assert!("0.9.0".parse::<CdiVersion>().is_err());
        assert!(CdiVersion::V0_8 < CdiVersion::V1_0);
    }
}
