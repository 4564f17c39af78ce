//! Taking devices out of service and putting them back: `tranche drain` and `tranche undrain`.
//!
//! The file is changed under the lock of the ledger, so that two administrators at once lose nothing of each other, and
//! no claim is granted between the decision and its record.

mod when;

use crate::replace;
use std::path::Path;
use tranche_core::claims::{Claims, LockedClaims};
use tranche_core::error::{Context, Error, Result};
use tranche_core::ledger::events::EventKind;
use tranche_core::ledger::{Ledger, OutOfService, Outage, PROHIBITED_FILE, WhyOut, outages_text};
use tranche_core::sealed;
use tranche_core::types::{DeviceKey, DeviceSelector};
use tranche_plan::inventory::{ComputeMode, Inventory};

/// What is said of a GPU whose compute mode lets no program use it.
const PROHIBITED: &str = "its compute mode is PROHIBITED";

/// The longest reason, in bytes: it is a part of one line.
const MOST_REASON: usize = 200;

/// A device that is taken out of service or put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedDevice {
    /// What people call it: `gpu 0`.
    pub label: String,
    /// The device.
    pub key: DeviceKey,
}

impl NamedDevice {
    /// The device that `selector` names. A GPU that has fallen off the bus is not in the inventory, and its UUID names
    /// it all the same.
    ///
    /// # Errors
    /// Returns a usage error that lists the devices of this host if `selector` names none of them.
    pub fn find(inventory: &Inventory, selector: &DeviceSelector) -> Result<Self> {
        match (inventory.catalogue().get(selector), selector) {
            (Ok(device), _) => Ok(Self {
                label: device.to_string(),
                key: device.key(),
            }),
            (Err(_), DeviceSelector::GpuUuid(uuid)) => Ok(Self {
                label: uuid.to_string(),
                key: DeviceKey::whole(uuid.clone()),
            }),
            (Err(error), _) => Err(error),
        }
    }

    /// Every GPU of `inventory`. Each takes its MIG devices with it.
    pub fn all(inventory: &Inventory) -> Vec<Self> {
        let gpus = inventory.gpus.iter();
        gpus.map(|gpu| Self {
            label: gpu.label(),
            key: DeviceKey::whole(gpu.uuid.clone()),
        })
        .collect()
    }
}

/// Checks a reason that an administrator gives.
///
/// # Errors
/// Returns a usage error if it is not one short line.
pub fn check_reason(reason: &str) -> Result<()> {
    let what = if reason.len() > MOST_REASON {
        format!("has {} bytes, and {MOST_REASON} are the most", reason.len())
    } else if reason.chars().any(char::is_control) {
        "has more than one line, or control characters".to_owned()
    } else if reason.trim().is_empty() {
        "is empty".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::usage("--reason", what).hint("give one short line, or leave it out"))
}

/// From when on a device is out of service, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainTime {
    /// From now on. A device that is out since earlier stays so: the command may be repeated for another reason.
    Now(u64),
    /// From the time that was asked for, whatever was before.
    At(u64),
}

impl DrainTime {
    /// The time that `at` names, as `tranche drain --at` takes it; `None`: now.
    ///
    /// # Errors
    /// Returns a usage error if it is not a time, or has passed.
    pub fn of(at: Option<&str>) -> Result<Self> {
        match at {
            Some(text) => when::when(text).map(Self::At),
            None => Ok(Self::Now(when::now())),
        }
    }
}

/// Takes `devices` out of service. Of one that is out already, or will be, what is asked for is changed, and the rest
/// stays. Returns each of them with what was there before.
///
/// # Errors
/// Returns an error if the file is damaged or cannot be written. Then nothing is changed.
pub fn drain(
    state_dir: &Path,
    devices: &[NamedDevice],
    time: DrainTime,
    reason: Option<&str>,
) -> Result<Vec<(Outage, Option<Outage>)>> {
    let claims = Claims::open(state_dir)?;
    let locked = claims.lock()?;
    let mut drained = readable(state_dir)?.drained;
    let mut done = Vec::new();
    for NamedDevice { key, .. } in devices {
        let before = drained.iter().position(|outage| outage.device == *key);
        let before = before.map(|at| drained.remove(at));
        let reason = reason.map(str::to_owned).or_else(|| before.as_ref()?.reason.clone());
        let outage = match time {
            DrainTime::At(from) => Outage::new(key.clone(), from, reason),
            DrainTime::Now(now) => {
                let from = before.as_ref().map_or(now, |before| before.from.min(now));
                Outage::new(key.clone(), from, reason).in_the_place_of(before.as_ref())
            }
        };
        drained.push(outage.clone());
        done.push((outage, before));
    }
    write(state_dir, drained)?;
    // Of a time in the future there is nothing to say yet.
    for (outage, _) in done.iter().filter(|(outage, _)| outage.is_in_force()) {
        locked
            .ledger()
            .note_device(EventKind::Drained, 0, &outage.device, claims.uid());
    }
    Ok(done)
}

/// Puts `devices` back into service, GPUs with all that is on them. Returns what ended for each of them.
///
/// # Errors
/// Returns an error if the GPU that a MIG device is on is out of service, or if the file is damaged or cannot be
/// written. Then nothing is changed.
pub fn undrain(state_dir: &Path, devices: &[NamedDevice]) -> Result<Vec<Vec<Outage>>> {
    let claims = Claims::open(state_dir)?;
    let locked = claims.lock()?;
    let OutOfService {
        mut drained,
        prohibited,
        ..
    } = readable(state_dir)?;
    let mut ended = Vec::new();
    for NamedDevice { label, key } in devices {
        // A MIG device may not exist any more, and then its GPU is what names it.
        let is_on = |outage: &Outage| outage.device == *key || key.is_whole() && outage.device.gpu() == key.gpu();
        ended.push(drained.extract_if(.., |outage| is_on(outage)).collect::<Vec<_>>());
        if let Some(outage) = drained.iter().find(|outage| outage.covers(key)) {
            let gpu = &outage.device;
            let error = Error::failed(label, format!("the GPU that it is on is {outage}"));
            return Err(error.hint(format!("tranche undrain {gpu}")));
        }
        if ended.last().is_some_and(Vec::is_empty) && prohibited.iter().any(|outage| outage.covers(key)) {
            let error = Error::failed(label, format!("is not drained; {PROHIBITED}"));
            return Err(error.hint(format!(
                "nvidia-smi -i {} -c DEFAULT, and then tranche cdi refresh",
                key.gpu()
            )));
        }
    }
    write(state_dir, drained)?;
    note_ended(&claims, &locked, ended.iter().flatten());
    Ok(ended)
}

/// Puts every device back into service that an administrator took out, and repairs a damaged file by that. Returns what
/// ended, as far as it can be read.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn undrain_all(state_dir: &Path) -> Result<Vec<Outage>> {
    let claims = Claims::open(state_dir)?;
    let locked = claims.lock()?;
    let ended = OutOfService::read(state_dir).drained;
    write(state_dir, Vec::new())?;
    note_ended(&claims, &locked, ended.iter());
    Ok(ended)
}

fn note_ended<'o>(claims: &Claims, locked: &LockedClaims<'_>, ended: impl Iterator<Item = &'o Outage>) {
    for outage in ended.filter(|outage| outage.is_in_force()) {
        locked
            .ledger()
            .note_device(EventKind::Undrained, 0, &outage.device, claims.uid());
    }
}

/// What is out of service on the GPUs of `inventory`, which may be the inventory of another machine. Its compute modes
/// count, and not those of the last refresh.
pub fn of_host(inventory: &Inventory, state_dir: &Path) -> OutOfService {
    let mut out = OutOfService::read(state_dir);
    let is_here = |outage: &Outage| inventory.gpus.iter().any(|gpu| gpu.uuid == *outage.device.gpu());
    out.drained.retain(is_here);
    out.prohibited = prohibited(inventory, &out.prohibited);
    out
}

/// Records which GPUs of `inventory` have the compute mode PROHIBITED: hooks do not ask the driver.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn record_prohibited(inventory: &Inventory, state_dir: &Path) -> Result<()> {
    let before = OutOfService::read(state_dir).prohibited;
    let now = prohibited(inventory, &before);
    let path = state_dir.join(PROHIBITED_FILE);
    match now.is_empty() {
        true => replace::remove(&path),
        false if now == before => Ok(()),
        false => replace::write(&path, &text(now, &path)?),
    }
}

/// Gives the file of an earlier version a checksum, and records the outages whose time has come. The broker does it
/// when it starts.
///
/// # Errors
/// Returns an error if the file is damaged or cannot be written.
pub fn add_checksum(state_dir: &Path) -> Result<()> {
    let path = OutOfService::drained_file(state_dir);
    let is_without = |text: String| !sealed::is_sealed(&text);
    let has_come = || readable(state_dir).is_ok_and(|out| out.drained.iter().any(Outage::has_come));
    if !std::fs::read_to_string(&path).is_ok_and(is_without) && !has_come() {
        return Ok(());
    }
    let ledger = Ledger::open(state_dir)?;
    let _locked = ledger.lock()?;
    write(state_dir, readable(state_dir)?.drained)
}

/// The GPUs whose compute mode is PROHIBITED, or was when it was known last.
fn prohibited(inventory: &Inventory, before: &[Outage]) -> Vec<Outage> {
    let outage = |gpu: &tranche_plan::inventory::Gpu| {
        let device = DeviceKey::whole(gpu.uuid.clone());
        let known = before.iter().find(|outage| outage.device == device).cloned();
        match gpu.compute_mode {
            None => known,
            Some(ComputeMode::Prohibited) => {
                Some(known.unwrap_or_else(|| Outage::new(device, when::now(), Some(PROHIBITED.to_owned()))))
            }
            Some(_) => None,
        }
    };
    inventory.gpus.iter().filter_map(outage).collect()
}

/// What is out of service.
///
/// # Errors
/// Returns an error if a file cannot be read.
fn readable(state_dir: &Path) -> Result<OutOfService> {
    let out = OutOfService::read(state_dir);
    match out.unreadable {
        Some(why) => Err(Error::failed("out of service", WhyOut::Unreadable(why))),
        None => Ok(out),
    }
}

fn write(state_dir: &Path, drained: Vec<Outage>) -> Result<()> {
    let path = OutOfService::drained_file(state_dir);
    match drained.is_empty() {
        true => replace::remove(&path),
        false => replace::write(&path, &text(drained, &path)?),
    }
}

fn text(outages: Vec<Outage>, path: &Path) -> Result<String> {
    outages_text(outages).about(path.display(), "cannot be written as JSON")
}

#[cfg(test)]
mod tests;
