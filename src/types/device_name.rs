//! Names of CDI devices: `vendor/class=device`.
//!
//! The rules are those of the CDI reference parser: vendor and class begin with a letter, a device's name with a letter
//! or a digit, all end with one of these, and hold letters, digits, `_`, `-`, `.` (and `:` in a device's name).

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// Vendor and class: `nvidia.com/gpu`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CdiKind {
    vendor: String,
    class: String,
}

/// The name of a device within its kind: `0`, `0:1`, `GPU-…`, `all`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceName(String);

/// The whole name that a user gives to an engine: `nvidia.com/gpu=0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName {
    /// Vendor and class.
    pub kind: CdiKind,
    /// The device.
    pub device: DeviceName,
}

fn framed(text: &str, first: impl Fn(u8) -> bool, middle: impl Fn(u8) -> bool) -> bool {
    let b = text.as_bytes();
    match (b.first(), b.last()) {
        (Some(f), Some(l)) => first(*f) && l.is_ascii_alphanumeric() && b.iter().all(|c| middle(*c)),
        _ => false,
    }
}

fn is_vendor_or_class(text: &str) -> bool {
    framed(
        text,
        |b| b.is_ascii_alphabetic(),
        |b| b.is_ascii_alphanumeric() || b"_-.".contains(&b),
    )
}

impl CdiKind {
    /// A kind from its two halves.
    ///
    /// # Errors
    /// A half that CDI does not allow.
    pub fn new(vendor: &str, class: &str) -> Result<Self, Error> {
        for (half, what) in [(vendor, "vendor"), (class, "class")] {
            if !is_vendor_or_class(half) {
                return Err(Error::usage(format!("\"{half}\""), format!("not a CDI {what}"))
                    .hint("letters first, then letters, digits, '_', '-' and '.'"));
            }
        }
        Ok(Self {
            vendor: vendor.to_owned(),
            class: class.to_owned(),
        })
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
    /// Their parser looks at what lies between the first and the last letter of each half, and panics where these are one
    /// letter (container-device-interface, `validateVendorOrClassName`). dockerd then ends at its start.
    pub fn crashes_engines(&self) -> bool {
        self.vendor.len() == 1 || self.class.len() == 1
    }

    /// This kind's device of that name.
    pub fn device(&self, device: DeviceName) -> QualifiedName {
        QualifiedName {
            kind: self.clone(),
            device,
        }
    }
}

impl DeviceName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a spec with this name needs CDI 0.5.0: before that a name could not begin with a digit.
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

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if framed(
            text,
            |b| b.is_ascii_alphanumeric(),
            |b| b.is_ascii_alphanumeric() || b"_-.:".contains(&b),
        ) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Error::usage(
                format!("\"{text}\""),
                "not a name that CDI allows for a device",
            ))
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

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}={}", self.kind, self.device))
    }
}

super::serde_as_text!(CdiKind);
super::serde_as_text!(DeviceName);
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
