//! UUIDs as the driver writes them.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// A GPU's UUID, with its `GPU-` in front.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuUuid(String);

/// A MIG device's UUID: `MIG-<uuid>`, or `MIG-GPU-<uuid>/<gi>/<ci>` from drivers before 470.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MigUuid(String);

/// A UUID comes from a library and goes into file names, device names and arguments: nothing but letters, digits and
/// dashes may pass, in any grouping, since virtual GPUs have been seen with other groupings than 8-4-4-4-12.
fn body_is_sound(body: &str) -> bool {
    (8..=64).contains(&body.len()) && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

impl GpuUuid {
    /// The UUID with its prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl MigUuid {
    /// The UUID with its prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the form of drivers before 470, which holds slashes that a CDI device name cannot carry.
    pub fn is_old_form(&self) -> bool {
        self.0.contains('/')
    }
}

impl FromStr for GpuUuid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.strip_prefix("GPU-") {
            Some(body) if body_is_sound(body) => Ok(Self(text.to_owned())),
            _ => Err(Error::usage(
                format!("\"{text}\""),
                "not a GPU UUID like GPU-8188460b-…",
            )),
        }
    }
}

impl FromStr for MigUuid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let sound = text.strip_prefix("MIG-").is_some_and(|rest| {
            let mut parts = rest.split('/');
            match (parts.next(), parts.next(), parts.next(), parts.next()) {
                (Some(body), None, None, None) => body_is_sound(body),
                (Some(body), Some(gi), Some(ci), None) => {
                    let number = |s: &str| !s.is_empty() && s.len() <= 4 && s.bytes().all(|b| b.is_ascii_digit());
                    body.strip_prefix("GPU-").is_some_and(body_is_sound) && number(gi) && number(ci)
                }
                _ => false,
            }
        });
        if sound {
            Ok(Self(text.to_owned()))
        } else {
            Err(Error::usage(
                format!("\"{text}\""),
                "not a MIG UUID like MIG-6f1d3c2a-…",
            ))
        }
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for MigUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

super::serde_as_text!(GpuUuid);
super::serde_as_text!(MigUuid);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert!("GPU-8188460b-0e3a-4d7e-9d3a-0123456789ab".parse::<GpuUuid>().is_ok());
        assert!("MIG-8188460b-0e3a-4d7e-9d3a-0123456789ab".parse::<MigUuid>().is_ok());
        let old: MigUuid = "MIG-GPU-8188460b-0e3a-4d7e-9d3a-0123456789ab/7/0".parse().unwrap();
        assert!(old.is_old_form());
        for bad in [
            "",
            "GPU-",
            "MIG-GPU-8188460b/../0",
            "MIG-8188460b/1",
            "GPU-8188460b\n",
            "GPU-\u{fe}\u{fe}aaaaaaaa",
        ] {
            assert!(bad.parse::<GpuUuid>().is_err(), "{bad:?}");
            assert!(bad.parse::<MigUuid>().is_err(), "{bad:?}");
        }
    }
}
