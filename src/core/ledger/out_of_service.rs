//! Devices that are out of service: nothing new is given of them, and who holds something keeps it until the end.
//!
//! Two files say which. The administrator's survives a reboot. The other one has the GPUs whose compute mode a refresh
//! found to be PROHIBITED, and ends with the machine, as the mode does. A missing file costs one system call.

use super::directory::{kept_dir, read_public};
use super::{clock, utc};
use crate::error::{Error, Result, line};
use crate::sealed;
use crate::types::DeviceKey;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// The file of what the administrator has taken out of service, in the directory for what outlives a boot.
pub const DRAINED_FILE: &str = "out-of-service.json";

/// The file of the GPUs whose compute mode is PROHIBITED, in the state directory.
pub const PROHIBITED_FILE: &str = "prohibited.json";

/// The version of the form of the files.
const VERSION: u32 = 1;

/// The largest file that is read: a machine has a few hundred devices, and a reason has a few hundred characters.
const MOST_BYTES: u64 = 1 << 20;

/// A device that is out of service, with everything on it: MIG devices and shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// The device.
    pub device: DeviceKey,
    /// From when on, in seconds since 1970. It may be in the future.
    pub from: u64,
    /// Why, for people.
    #[serde(default)]
    pub reason: Option<String>,
    /// Whether its time had come when it was recorded. A clock that is set back later, or is not set yet after a boot,
    /// does not put the device back into service.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    began: bool,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct File {
    version: u32,
    devices: Vec<Outage>,
}

/// What is out of service, or will be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutOfService {
    /// What the administrator has taken out of service.
    pub drained: Vec<Outage>,
    /// The GPUs whose compute mode is PROHIBITED.
    pub prohibited: Vec<Outage>,
    /// Why a file cannot be read. Then nothing is given of any device, because it is unknown which one was meant.
    pub unreadable: Option<String>,
}

/// Why nothing new is given of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyOut {
    /// It is out of service.
    Since(Outage),
    /// It is unknown whether it is: this is what is wrong with the file.
    Unreadable(String),
    /// It is unknown for whom it is reserved: this is what is wrong with the calendar.
    CalendarUnreadable(String),
}

impl fmt::Display for WhyOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Since(outage) => outage.fmt(f),
            Self::Unreadable(why) => write!(f, "it is unknown whether it is out of service: {why}"),
            Self::CalendarUnreadable(why) => write!(f, "it is unknown what is reserved: {why}"),
        }
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_in_force() { "since" } else { "from" };
        write!(f, "out of service {word} {}", utc(self.from))?;
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

impl Outage {
    /// Of `device`, from `from` on (seconds since 1970).
    pub fn new(device: DeviceKey, from: u64, reason: Option<String>) -> Self {
        Self {
            device,
            from,
            reason,
            began: from <= clock(),
        }
    }

    /// It is recorded in the place of `before`, and stays in force if that was.
    #[must_use]
    pub fn in_the_place_of(mut self, before: Option<&Self>) -> Self {
        self.began |= before.is_some_and(Self::is_in_force);
        self
    }

    /// Whether its time has come since it was recorded.
    pub fn has_come(&self) -> bool {
        !self.began && self.is_in_force()
    }

    /// Whether nothing new is given of `device` because of it, when it is in force.
    pub fn covers(&self, device: &DeviceKey) -> bool {
        self.device == *device || self.device.is_whole() && self.device.gpu() == device.gpu()
    }

    /// Whether its time has come.
    pub fn is_in_force(&self) -> bool {
        self.began || self.from <= clock()
    }
}

impl OutOfService {
    /// What is out of service on the machine whose ledger is in `state_dir`.
    pub fn read(state_dir: &Path) -> Self {
        let mut unreadable = None;
        let mut list = |dir: &Path, name: &str| {
            read(dir, name).unwrap_or_else(|error| {
                unreadable = Some(line(&error));
                Vec::new()
            })
        };
        let drained = list(&kept_dir(state_dir), DRAINED_FILE);
        let prohibited = list(state_dir, PROHIBITED_FILE);
        Self {
            drained,
            prohibited,
            unreadable,
        }
    }

    /// The file that the administrator's devices are in, for the machine whose ledger is in `state_dir`.
    pub fn drained_file(state_dir: &Path) -> PathBuf {
        kept_dir(state_dir).join(DRAINED_FILE)
    }

    /// Whether nothing is out of service, nor will be.
    pub fn is_empty(&self) -> bool {
        self.drained.is_empty() && self.prohibited.is_empty() && self.unreadable.is_none()
    }

    /// All devices that are out of service or will be: first those of the administrator.
    pub fn outages(&self) -> impl Iterator<Item = &Outage> {
        self.drained.iter().chain(&self.prohibited)
    }

    /// Why nothing new is given of `device` now; `None` if it is in service.
    pub fn why(&self, device: &DeviceKey) -> Option<WhyOut> {
        if let Some(why) = &self.unreadable {
            return Some(WhyOut::Unreadable(why.clone()));
        }
        let in_force = |outage: &&Outage| outage.covers(device) && outage.is_in_force();
        self.outages().find(in_force).cloned().map(WhyOut::Since)
    }
}

/// The text of a file with these devices.
///
/// # Errors
/// Returns an error if they cannot be written as JSON.
pub fn outages_text(mut devices: Vec<Outage>) -> serde_json::Result<String> {
    devices
        .iter_mut()
        .for_each(|outage| outage.began |= outage.is_in_force());
    let version = VERSION;
    serde_json::to_string(&File { version, devices }).map(|text| format!("{}\n", sealed::seal(&text)))
}

fn read(dir: &Path, name: &str) -> Result<Vec<Outage>> {
    let path = dir.join(name);
    let Some(bytes) = read_public(dir, name, MOST_BYTES)? else {
        return Ok(Vec::new());
    };
    let damaged =
        |what: &str| Error::failed(path.display(), what).hint("tranche undrain all writes it anew, without any device");
    if bytes.is_empty() {
        return Err(damaged("is empty"));
    }
    let file: File = sealed::parse(&bytes).map_err(|error| damaged("is damaged").from_source(error))?;
    match file.version {
        VERSION => Ok(file.devices),
        _ => Err(damaged("was written by a newer tranche")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage(device: &str, from: u64) -> Outage {
        Outage::new(device.parse().unwrap(), from, Some("a fan".into()))
    }

    #[test]
    fn a_clock_that_is_set_back_puts_nothing_back_into_service() {
        let began = outage("GPU-8188460b", clock());
        // As it would be a year earlier.
        let from = clock() + 365 * 86_400;
        let out = |outage: Outage| OutOfService {
            drained: vec![Outage { from, ..outage }],
            ..OutOfService::default()
        };
        let gpu = "GPU-8188460b".parse().unwrap();
        assert!(out(began.clone()).why(&gpu).is_some());
        assert!(
            out(Outage { began: false, ..began }).why(&gpu).is_none(),
            "one whose time comes"
        );
    }

    #[test]
    fn a_gpu_that_is_out_takes_its_mig_devices_with_it_and_not_the_reverse() {
        let out = OutOfService {
            drained: vec![outage("GPU-8188460b", 10), outage("GPU-99999999/7/0", 10)],
            ..OutOfService::default()
        };
        let why = |device: &str| out.why(&device.parse().unwrap()).is_some();
        assert!(why("GPU-8188460b") && why("GPU-8188460b/1/0") && why("GPU-99999999/7/0"));
        assert!(!why("GPU-99999999/7/1") && !why("GPU-99999999") && !why("GPU-11111111"));
    }

    #[test]
    fn an_outage_begins_at_its_time() {
        let out = |from| OutOfService {
            drained: vec![outage("GPU-8188460b", from)],
            ..OutOfService::default()
        };
        let gpu = "GPU-8188460b".parse().unwrap();
        assert_eq!(out(clock() + 3600).why(&gpu), None);
        let why = out(1_795_227_000).why(&gpu).unwrap().to_string();
        assert_eq!(why, "out of service since 2026-11-21 02:10:00 UTC (a fan)");
        let later = outage("GPU-8188460b", 4_107_542_400).to_string();
        assert_eq!(later, "out of service from 2100-03-01 00:00:00 UTC (a fan)");
    }

    #[test]
    fn both_files_count_and_a_damaged_one_takes_everything_out() {
        let state = tempfile::tempdir().unwrap();
        let read = || OutOfService::read(state.path());
        assert!(read().is_empty());
        let gpu = "GPU-8188460b".parse().unwrap();
        let other = "GPU-11111111".parse().unwrap();
        let file = OutOfService::drained_file(state.path());
        std::fs::create_dir(file.parent().unwrap()).unwrap();
        let prohibited = state.path().join(PROHIBITED_FILE);
        for path in [&file, &prohibited] {
            std::fs::write(path, outages_text(vec![outage("GPU-8188460b", 10)]).unwrap()).unwrap();
            assert!(matches!(read().why(&gpu), Some(WhyOut::Since(_))), "{}", path.display());
            assert_eq!(read().why(&other), None);
            std::fs::remove_file(path).unwrap();
        }
        for (text, why) in [
            ("", "is empty"),
            ("{", "is damaged"),
            (r#"{"version":2,"devices":[]}"#, "was written by a newer tranche"),
        ] {
            std::fs::write(&file, text).unwrap();
            let said = read().why(&other).unwrap().to_string();
            assert!(said.contains(why) && said.contains("out-of-service.json"), "{said}");
        }
        // Whatever bit changes, no device comes back into service by it.
        let text = outages_text(vec![outage("GPU-8188460b", 10)]).unwrap();
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&file, &bytes).unwrap();
            assert!(read().why(&gpu).is_some(), "bit {bit}");
        }
        // A later version may add fields, and an earlier one has no checksum.
        let later = r#"{"version":1,"devices":[{"device":"GPU-8188460b","from":1,"by":"ann"}],"more":1}"#;
        std::fs::write(&file, later).unwrap();
        assert_eq!(read().drained[0].reason, None);
    }
}
