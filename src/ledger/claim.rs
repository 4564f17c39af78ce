//! What the ledger keeps.

use super::ContainerName;
use crate::error::Error;
use crate::types::ShareName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The device that a book is about: its UUID, or its place where it has none. It is a file's name too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceKey(String);

impl DeviceKey {
    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let sound = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if (1..=100).contains(&text.len()) && text.bytes().all(sound) && !text.starts_with('-') {
            Ok(Self(text.to_owned()))
        } else {
            Err(Error::usage(format!("\"{text}\""), "not a device of the ledger"))
        }
    }
}

impl TryFrom<String> for DeviceKey {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<DeviceKey> for String {
    fn from(key: DeviceKey) -> String {
        key.0
    }
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What of a device a claim holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// All of it, against every share.
    Whole,
    /// These shares, sorted.
    Shares(Vec<ShareName>),
}

impl Part {
    /// One share.
    pub fn share(name: ShareName) -> Self {
        Part::Shares(vec![name])
    }

    /// Whether both cannot be held at once.
    pub fn meets(&self, other: &Part) -> bool {
        match (self, other) {
            (Part::Shares(a), Part::Shares(b)) => a.iter().any(|s| b.contains(s)),
            _ => true,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Whole => f.pad("the whole device"),
            Part::Shares(names) => {
                let names: Vec<&str> = names.iter().map(ShareName::as_str).collect();
                let word = if names.len() == 1 { "share" } else { "shares" };
                f.pad(&format!("{word} {}", names.join(", ")))
            }
        }
    }
}

/// How firm a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Set aside: for a container that is being made, or by a person for one to come.
    Reserved,
    /// In use by a process.
    Held,
}

/// A process, so that no later one with its number is taken for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its number in the namespace below.
    pub pid: u32,
    /// When it was started, in the kernel's ticks since boot (`/proc/PID/stat`, field 22).
    pub start: u64,
    /// The inode of the pid namespace in which the number means something.
    pub namespace: u64,
    /// The boot in which it does (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
}

/// Who holds a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// The container; `None` while nobody has used a claim that was made beforehand.
    pub container: Option<ContainerName>,
    /// The process whose end ends the claim; `None` for a claim that waits for its container.
    pub process: Option<Process>,
}

/// A hold on a part of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The name that a person gave it; `None` for one that a container's start made.
    pub name: Option<String>,
    /// What it holds.
    pub part: Part,
    /// How firm it is.
    pub state: State,
    /// Who holds it.
    pub holder: Holder,
    /// Whether a claim that was made beforehand outlives the container that used it.
    pub keep: bool,
    /// Whose it is.
    pub uid: u32,
    /// When it was made, in seconds since 1970: for people.
    pub since: u64,
    /// When it ends if nobody holds it by then, in seconds since boot: no clock that jumps can end it. `None`: never.
    pub until: Option<u64>,
    /// The boot in which `until` means something.
    pub boot: String,
}

impl Claim {
    /// Nobody's for now: it waits for its next container.
    pub(super) fn wait(&mut self) {
        self.holder = Holder {
            container: None,
            process: None,
        };
        self.state = State::Reserved;
    }

    /// Who holds it, for a message.
    pub fn who(&self) -> String {
        match (&self.name, &self.holder.container) {
            (Some(name), Some(container)) => format!("claim {name} ({container})"),
            (Some(name), None) => format!("claim {name}"),
            (None, Some(container)) => container.to_string(),
            (None, None) => format!("uid {}", self.uid),
        }
    }
}
