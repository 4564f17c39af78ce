//! Which part of a device is meant, as a person names it: `0`, `0.3`, `GPU-….big`, `0:1.any`.

use super::{DeviceSelector, ShareName};
use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// Which part of a device is meant.
///
/// It has no size, because a name has none. [`super::Subject`] adds the size that a specification promises, and
/// [`super::HeldPart`] is what the ledger records: shares with their sizes, and several of them in one claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// All of it.
    Whole,
    /// Any free one of its equal replicas.
    Any,
    /// The share of this name or number.
    Share(ShareName),
}

impl Part {
    /// The share that is written as `name` behind a device: `any`, `3`, `big`.
    ///
    /// # Errors
    /// Returns a usage error for a name that no share can have.
    pub fn of_share(name: &str) -> Result<Self, Error> {
        match name {
            ShareName::ANY => Ok(Self::Any),
            name => name.parse().map(Self::Share),
        }
    }

    /// What is written behind a device, without the dot; `None` for all of it.
    pub fn suffix(&self) -> Option<&str> {
        match self {
            Self::Whole => None,
            Self::Any => Some(ShareName::ANY),
            Self::Share(name) => Some(name.as_str()),
        }
    }

    /// The name of this part of `device`: `0` gives `0`, `0.any` and `0.big`.
    pub fn name_of(&self, device: impl fmt::Display) -> String {
        match self.suffix() {
            None => device.to_string(),
            Some(suffix) => format!("{device}.{suffix}"),
        }
    }
}

impl fmt::Display for Part {
    /// Writes it for messages: `share 3`, `any share`, `the whole device`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.pad("the whole device"),
            Self::Any => f.pad("any share"),
            Self::Share(name) => f.pad(&format!("share {name}")),
        }
    }
}

/// A part of a device, before it is known whether the device and the part exist. `share::Wish::add` finds out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DevicePart {
    /// The device.
    pub device: DeviceSelector,
    /// Which part of it.
    pub part: Part,
}

impl FromStr for DevicePart {
    type Err = Error;

    /// Reads `DEVICE` or `DEVICE.PART`. A kind before it is skipped: `nvidia.com/gpu=0.big` is `0.big`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let name = text.split_once('=').map_or(text, |(_, name)| name);
        // The device first, because a PCI address has a dot, too.
        match (name.parse(), name.rsplit_once('.')) {
            (Err(_), Some((device, share))) => Ok(Self {
                device: device.parse()?,
                part: Part::of_share(share)?,
            }),
            (device, _) => Ok(Self {
                device: device?,
                part: Part::Whole,
            }),
        }
    }
}

impl fmt::Display for DevicePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.part.name_of(&self.device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_written_as_it_is_read() {
        let uuid = "8188460b-0e3a-4d7e-9d3a-0123456789ab";
        for device in [
            "0",
            "0:1",
            &format!("GPU-{uuid}"),
            &format!("MIG-{uuid}"),
            &format!("MIG-GPU-{uuid}/7/0"),
            "0000:41:00.0",
            "/dev/nvidia0",
        ] {
            for (suffix, part) in [
                ("", Part::Whole),
                (".any", Part::Any),
                (".3", Part::Share(ShareName::replica(3))),
                (".big", Part::Share("big".parse().unwrap())),
            ] {
                let text = format!("{device}{suffix}");
                let read: DevicePart = text.parse().unwrap();
                assert_eq!((read.to_string(), &read.part), (text.clone(), &part));
                assert_eq!(format!("nvidia.com/gpu={text}").parse::<DevicePart>().unwrap(), read);
            }
        }
        for bad in [
            "",
            ".any",
            "0.",
            "any",
            "0.a.b",
            "0.big.any",
            "0::1",
            "0.é",
            "x.0",
            "10:00.3:1",
        ] {
            assert!(bad.parse::<DevicePart>().is_err(), "{bad}");
        }
        // As lspci writes an address: share 3 of MIG device 0 of GPU 10.
        let share: DevicePart = "10:00.3".parse().unwrap();
        assert_eq!(share.part, Part::Share(ShareName::replica(3)));
    }
}
