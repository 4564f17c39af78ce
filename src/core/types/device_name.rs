//! Names of CDI devices: `vendor/class=device`.
//!
//! The rules are those of the CDI reference parser: letters, digits, `_`, `-` and `.` are valid, and `:` in a device's
//! name. All begin and end with a letter or a digit; vendor and class begin with a letter.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// Vendor and class: `nvidia.com/gpu`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CdiKind {
    vendor: String,
    class: String,
}

super::text_type!(
    /// The name of a device within its kind: `0`, `0:1`, `GPU-…`, `all`.
    #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
    DeviceName,
    is_device,
    "not a valid CDI device name"
);

/// The whole name that a user gives to an engine: `nvidia.com/gpu=0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName {
    /// Vendor and class.
    pub kind: CdiKind,
    /// The device.
    pub device: DeviceName,
}

/// Whether `text` begins with a letter or digit, ends with one, and otherwise has only these and `others`.
pub(super) fn is_name(text: &str, others: &[u8]) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.into_iter()
        .all(|end| end.is_some_and(|b| b.is_ascii_alphanumeric()))
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || others.contains(&b))
}

fn is_device(text: &str) -> bool {
    is_name(text, b"_-.:")
}

fn is_vendor_or_class(text: &str) -> bool {
    is_name(text, b"_-.") && text.starts_with(|c: char| c.is_ascii_alphabetic())
}

impl CdiKind {
    /// A kind from its two halves.
    ///
    /// # Errors
    /// Returns a usage error if a half is not valid in CDI.
    pub fn new(vendor: &str, class: &str) -> Result<Self, Error> {
        for (half, what) in [(vendor, "vendor"), (class, "class")] {
            if !is_vendor_or_class(half) {
                return Err(Error::usage(format!("\"{half}\""), format!("not a valid CDI {what}"))
                    .hint("use letters, digits, '_', '-' and '.', with a letter first and a letter or digit last"));
            }
        }
        Ok(Self {
            vendor: vendor.to_owned(),
            class: class.to_owned(),
        })
    }

    /// `nvidia.com/gpu`, the kind of GPUs and MIG devices.
    pub fn nvidia_gpu() -> Self {
        Self {
            vendor: "nvidia.com".to_owned(),
            class: "gpu".to_owned(),
        }
    }

    /// `nvidia.com/claim`, the kind of claims that are made beforehand.
    pub fn claim() -> Self {
        Self {
            vendor: "nvidia.com".to_owned(),
            class: "claim".to_owned(),
        }
    }

    /// `management.nvidia.com/gpu`, the kind of the device by which a container manages every GPU of a host.
    pub fn nvidia_management() -> Self {
        Self {
            vendor: "management.nvidia.com".to_owned(),
            class: "gpu".to_owned(),
        }
    }

    /// The part before the slash.
    pub fn vendor(&self) -> &str {
        &self.vendor
    }

    /// The part after the slash.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// Whether engines crash when they read a specification of this kind, although CDI allows it.
    ///
    /// Their parser checks the characters between the first and the last one of each half, and panics if a half has
    /// only one (container-device-interface, `validateVendorOrClassName`). dockerd then does not start.
    pub fn crashes_engines(&self) -> bool {
        self.vendor.len() == 1 || self.class.len() == 1
    }

    /// The name of the claim `name`, as containers request it: `nvidia.com/claim=train`.
    pub fn of_claim(name: &str) -> String {
        format!("{}={name}", Self::claim())
    }

    /// The name of a claim that a person typed with its kind or without it.
    pub fn without_claim(typed: &str) -> &str {
        let rest = typed.strip_prefix("nvidia.com/claim");
        rest.and_then(|rest| rest.strip_prefix('=')).unwrap_or(typed)
    }

    /// The device of this kind with that name.
    pub fn device(&self, device: DeviceName) -> QualifiedName {
        QualifiedName {
            kind: self.clone(),
            device,
        }
    }
}

impl DeviceName {
    /// Whether a spec with this name needs CDI 0.5.0. In older versions, a name cannot begin with a digit.
    pub fn begins_with_digit(&self) -> bool {
        self.0.starts_with(|c: char| c.is_ascii_digit())
    }
}

impl FromStr for CdiKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once('/') {
            Some((vendor, class)) => Self::new(vendor, class),
            None => Err(Error::usage(
                format!("\"{text}\""),
                "not a CDI kind like nvidia.com/gpu",
            )),
        }
    }
}

impl FromStr for QualifiedName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (kind, device) = text
            .split_once('=')
            .ok_or_else(|| Error::usage(format!("\"{text}\""), "not a CDI device like nvidia.com/gpu=0"))?;
        Ok(Self {
            kind: kind.parse()?,
            device: device.parse()?,
        })
    }
}

impl fmt::Display for CdiKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.vendor, self.class))
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}={}", self.kind, self.device))
    }
}

super::serde_as_text!(CdiKind);
super::serde_as_text!(QualifiedName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in [
            "nvidia.com/gpu=0",
            "nvidia.com/gpu=0:1",
            "nvidia.com/gpu.shared=0.3",
            "a/b=GPU-1.big",
        ] {
            assert_eq!(good.parse::<QualifiedName>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "gpu=0",
            "nvidia.com/gpu",
            "nvidia.com/gpu=",
            "nvidia.com/gpu=.3",
            "/dev/x=0",
            "0.com/gpu=1",
            "a/b=x/y",
            "a/b=c-",
        ] {
            assert!(bad.parse::<QualifiedName>().is_err(), "{bad}");
        }
    }
}
