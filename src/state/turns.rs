//! What is recorded of a device that its holders have by turns, for the next broker and for `tranche status`.

use crate::state_file::{self, FileForm};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranche_core::error::{Context, Result};
use tranche_core::process_identity::ProcessIdentity;
use tranche_core::types::{DeviceKey, DriverVersion};
use tranche_plan::turns::change::{Change, Lost, Side};

const FORM: FileForm = FileForm {
    version: 1,
    invalid: "is not valid",
    hint: "end the holders of the device, and remove the file",
};

/// A claim, as [`tranche_plan::hold::key`] names it.
pub type ClaimKey = String;

/// A device whose holders have it by turns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRecord {
    version: u32,
    /// Who can use the device.
    pub resident: Option<ClaimKey>,
    /// The change that is being made.
    pub change: Option<ChangeRecord>,
    /// All who hold it.
    pub holders: BTreeMap<ClaimKey, HolderRecord>,
    /// The process that suspends and resumes for this broker.
    #[serde(default)]
    pub driver: Option<ProcessIdentity>,
    /// Why the last change failed; `None` after one that did not.
    pub trouble: Option<String>,
    /// Whom that names; `None` if it names nobody.
    #[serde(default)]
    pub trouble_of: Option<ClaimKey>,
    /// How many changes there were since somebody has held the device.
    #[serde(default)]
    pub changes: u64,
    /// How long the last one took, in milliseconds.
    #[serde(default)]
    pub last_change_ms: Option<u64>,
}

/// One who holds it. Each time is in seconds since boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderRecord {
    /// Since when it has wanted the device.
    pub wants_since: Option<u64>,
    /// Whether a person has put it aside.
    #[serde(default)]
    pub is_put_aside: bool,
    /// Since when it has been resident or away.
    pub since: u64,
    /// How much memory it had on the device when it was suspended, in bytes.
    #[serde(default)]
    pub bytes: u64,
    /// Whether processes of it were resumed: some drivers hang the machine when they are killed.
    #[serde(default)]
    pub was_resumed: bool,
    /// The driver that suspended it last, which alone can resume it.
    #[serde(default)]
    pub driver_version: Option<DriverVersion>,
}

/// A change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRecord {
    /// Who gives way.
    pub from: Option<ClaimKey>,
    /// Who becomes resident.
    pub to: Option<ClaimKey>,
    /// When it began, in milliseconds since boot.
    #[serde(default)]
    pub begun_ms: u64,
    is_back: bool,
    lost_from: bool,
    lost_to: bool,
}

impl ChangeRecord {
    /// A change that begins at `now`, the time since boot.
    pub fn new(from: Option<ClaimKey>, to: Option<ClaimKey>, now: Duration) -> Self {
        Self {
            from,
            to,
            begun_ms: millis(now),
            ..Self::default()
        }
    }

    /// How far it has come.
    pub fn state(&self) -> Change {
        Change {
            is_back: self.is_back,
            lost: Lost {
                from: self.lost_from,
                to: self.lost_to,
            },
        }
    }

    /// The claim on this side of it.
    pub fn of(&self, side: Side) -> Option<&ClaimKey> {
        match side {
            Side::From => self.from.as_ref(),
            Side::To => self.to.as_ref(),
        }
    }

    /// Whether it is about this claim.
    pub fn is_of(&self, claim: &ClaimKey) -> bool {
        [&self.from, &self.to].contains(&&Some(claim.clone()))
    }

    /// Takes in how far it has come.
    pub fn set_state(&mut self, change: Change) {
        self.is_back = change.is_back;
        (self.lost_from, self.lost_to) = (change.lost.from, change.lost.to);
    }
}

impl TurnRecord {
    /// The devices of which something is recorded.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be listed.
    pub fn devices(state_dir: &Path) -> Result<Vec<DeviceKey>> {
        let directory = state_dir.join("turns");
        let names = match fs::read_dir(&directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.about(directory.display(), "cannot be listed")?,
        };
        let name = |entry: std::io::Result<fs::DirEntry>| {
            let name = entry.ok()?.file_name();
            name.to_str()?.strip_suffix(".json")?.parse().ok()
        };
        let mut devices: Vec<DeviceKey> = names.filter_map(name).collect();
        devices.sort();
        Ok(devices)
    }

    /// What was recorded of a device; nothing if it has no holder.
    ///
    /// # Errors
    /// Returns an error if the file cannot be used.
    pub fn read(state_dir: &Path, device: &DeviceKey) -> Result<Self> {
        let content = FORM.read(&path(state_dir, device), |content: &Self| content.version)?;
        Ok(content.unwrap_or_default())
    }

    /// Those who are away with memory in that of the machine. One that gives way at the moment is not among them.
    pub fn suspended(&self) -> impl Iterator<Item = (&ClaimKey, &HolderRecord)> {
        let is_away = |(key, holder): &(&ClaimKey, &HolderRecord)| holder.bytes > 0 && !self.is_resident(key);
        self.holders.iter().filter(is_away)
    }

    /// Why the last change failed, for the user of `claim`: nothing about the claims of others.
    pub fn trouble_for(&self, claim: &ClaimKey) -> Option<&String> {
        let is_for_it = self.trouble_of.as_ref().is_none_or(|of| of == claim);
        self.trouble.as_ref().filter(|_| is_for_it)
    }

    /// The driver that has suspended a claim, if it is another one than `now`: only that one can resume it.
    pub fn suspended_by_other(&self, claim: &ClaimKey, now: Option<&DriverVersion>) -> Option<&DriverVersion> {
        let (_, holder) = self.suspended().find(|(key, _)| *key == claim)?;
        holder.driver_version.as_ref().filter(|version| Some(*version) != now)
    }

    /// Whether this claim can use the device.
    pub fn is_resident(&self, claim: &ClaimKey) -> bool {
        self.resident.as_ref() == Some(claim)
    }

    /// Takes in that the change that was being made is complete at `now`, the time since boot.
    pub fn count_change(&mut self, now: Duration) {
        if let Some(change) = self.change.take() {
            self.changes += 1;
            self.last_change_ms = Some(millis(now).saturating_sub(change.begun_ms));
        }
    }

    /// Records it; without a holder, the file is removed. Root alone can read it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn write(&self, state_dir: &Path, device: &DeviceKey) -> Result<()> {
        let path = path(state_dir, device);
        if self.holders.is_empty() && self.change.is_none() {
            return state_file::remove(&path);
        }
        let content = Self {
            version: FORM.version,
            ..self.clone()
        };
        state_file::write_private(&path, &content)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// GPUs alone are given by turns, so that the key is a UUID or a PCI address.
fn path(state_dir: &Path, device: &DeviceKey) -> PathBuf {
    state_dir.join("turns").join(format!("{}.json", device.gpu()))
}
