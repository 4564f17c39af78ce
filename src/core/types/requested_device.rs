//! Which device somebody asks for: one by its name, or any free one.

use super::{DeviceSelector, ShareName};
use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// Which device somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedDevice {
    /// Any free one: `any`.
    Any,
    /// This one.
    One(DeviceSelector),
}

impl RequestedDevice {
    /// The device that is named; `None` for any.
    pub fn named(&self) -> Option<&DeviceSelector> {
        match self {
            Self::Any => None,
            Self::One(device) => Some(device),
        }
    }
}

impl FromStr for RequestedDevice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            ShareName::ANY => Ok(Self::Any),
            name => name.parse().map(Self::One),
        }
    }
}

impl fmt::Display for RequestedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.pad(ShareName::ANY),
            Self::One(device) => device.fmt(f),
        }
    }
}

super::serde_as_text!(RequestedDevice);
