//! Names of shares.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// The name of a share of a device: `big` of `0.big`, or a replica's number.
///
/// It becomes part of a CDI device name and of compose files: no dot and no colon, which separate it from the device
/// (compose cuts a device entry at every colon).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShareName(String);

impl ShareName {
    /// What stands in place of a share's name where any free one of equal replicas is meant: `0.any`.
    pub const ANY: &str = "any";

    /// The name of replica `number`, counted from 0.
    pub fn replica(number: u32) -> Self {
        Self(number.to_string())
    }

    /// The name of the one part of a device that stays whole. It is for messages and plans: no device name has it.
    pub fn whole() -> Self {
        Self("whole".to_owned())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number of a replica; `None` for a share that a person named.
    pub fn number(&self) -> Option<u32> {
        self.0.parse().ok()
    }
}

impl FromStr for ShareName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let b = text.as_bytes();
        let ends = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
        let sound = ends(b.first())
            && ends(b.last())
            && b.len() <= 40
            && b.iter().all(|c| c.is_ascii_alphanumeric() || b"_-".contains(c));
        if sound {
            Ok(Self(text.to_owned()))
        } else {
            Err(Error::usage(format!("\"{text}\""), "not a name for a share")
                .hint("letters, digits, '-' and '_', at most 40, letters or digits at the ends"))
        }
    }
}

impl fmt::Display for ShareName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Replicas order by number, so that 10 comes after 9; words order as text, after the numbers.
impl Ord for ShareName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (self.number(), other.number()) {
            (Some(a), Some(b)) => a.cmp(&b).then_with(|| self.0.cmp(&other.0)),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => self.0.cmp(&other.0),
        }
    }
}

impl PartialOrd for ShareName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

super::serde_as_text!(ShareName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_order() {
        let mut names: Vec<ShareName> = ["big", "10", "9", "a-b"].iter().map(|n| n.parse().unwrap()).collect();
        names.sort();
        assert_eq!(
            names.iter().map(ShareName::as_str).collect::<Vec<_>>(),
            ["9", "10", "a-b", "big"]
        );
        for bad in ["", "a.b", "a:b", "-a", "a-", "é", "a b"] {
            assert!(bad.parse::<ShareName>().is_err(), "{bad}");
        }
    }
}
