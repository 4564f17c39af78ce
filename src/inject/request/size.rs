//! tranche's own requests: a part of a device by its size, and how long to wait for it.

use std::collections::BTreeSet;

use super::devices::WantedDevices;
use super::environment::Environment;
use super::view::ConfigView;
use super::{OWN_ANNOTATIONS, OWN_VARIABLES, RequestSource, WantedDevice, WantedShare, WantedSize};
use crate::error::{Error, Result};
use crate::policy::{Amount, RuntimeSettings};
use crate::types::{CdiKind, DeviceSelector, MemorySize, Percent, WaitTime};

/// What is asked for by tranche's own annotations and variables.
#[derive(Debug, Default)]
pub(super) struct OwnRequest {
    /// The amounts; no device.
    pub(super) size: WantedSize,
    /// How long to wait.
    pub(super) wait: Option<WaitTime>,
    /// What sets the first amount: `annotation tranche.dev/memory` or `TRANCHE_MEMORY`; `None` without an amount.
    pub(super) asked_by: Option<(RequestSource, String)>,
    /// What sets the time, if there is no amount.
    pub(super) waits_by: Option<String>,
    /// Variables that ask and may not, with their values.
    pub(super) refused: Vec<String>,
    /// Variables that say something else than the annotation: one line each.
    pub(super) notes: Vec<String>,
}

impl OwnRequest {
    /// Reads them. A value that is empty counts as not set.
    pub(super) fn of(view: &ConfigView<'_>, environment: &Environment<'_>, accepted: bool) -> Result<Self> {
        let mut own = Self::default();
        let place = (view, environment, accepted);
        own.size.memory = own.amount(place, "memory", memory)?;
        own.size.compute = own.amount(place, "compute", str::parse::<Percent>)?;
        own.size.shares = own.amount(place, "shares", shares)?;
        let time = own.value(place, "wait", str::parse::<WaitTime>)?;
        own.waits_by = time.as_ref().map(|(_, (_, by))| by.clone());
        own.wait = time.map(|(time, _)| time);
        Ok(own)
    }

    fn amount<T: PartialEq>(
        &mut self,
        place: (&ConfigView<'_>, &Environment<'_>, bool),
        word: &str,
        parse: impl Fn(&str) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some((amount, by)) = self.value(place, word, parse)? else {
            return Ok(None);
        };
        self.asked_by.get_or_insert(by);
        Ok(Some(amount))
    }

    /// The value of an annotation, or else of the variable, and what sets it.
    fn value<T: PartialEq>(
        &mut self,
        (view, environment, accepted): (&ConfigView<'_>, &Environment<'_>, bool),
        word: &str,
        parse: impl Fn(&str) -> Result<T>,
    ) -> Result<Option<(T, (RequestSource, String))>> {
        let key = format!("{OWN_ANNOTATIONS}{word}");
        let variable = format!("{OWN_VARIABLES}{}", word.to_ascii_uppercase());
        let set = environment
            .get(&variable)
            .map(str::trim)
            .filter(|text| !text.is_empty());
        let read =
            |by: &str, text: &str| parse(text).map_err(|wrong| Error::usage(by, "is invalid").from_source(wrong));
        let annotation = view.annotation(&key)?;
        if let Some(text) = annotation
            .as_ref()
            .map(|text| text.as_str().trim())
            .filter(|text| !text.is_empty())
        {
            let by = format!("annotation {key}");
            let value = read(&by, text)?;
            // An image that was made for tranche may set the variable, so this is no error.
            if let Some(other) = set.filter(|other| parse(other).ok().as_ref() != Some(&value)) {
                self.notes
                    .push(format!("{variable}={other} is ignored, because the {by} is {text}"));
            }
            return Ok(Some((value, (RequestSource::Annotation, by))));
        }
        match set {
            Some(text) if accepted => {
                let value = read(&variable, text)?;
                Ok(Some((value, (RequestSource::Environment, variable))))
            }
            Some(text) => {
                self.refused.push(format!("{variable}={text}"));
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

fn memory(text: &str) -> Result<MemorySize> {
    match text.parse()? {
        Amount::Size(size) => Ok(size),
        Amount::Percent(_) => Err(Error::usage(format!("\"{text}\""), "not a size of memory")
            .hint("write a size like 8Gi, because devices have different sizes")),
    }
}

fn shares(text: &str) -> Result<u32> {
    let number = crate::types::decimal(text).filter(|number| *number > 0);
    number.ok_or_else(|| {
        Error::usage(format!("\"{text}\""), "not a number of shares")
            .hint("write a number from 1; a share with a name is asked for as a device, such as 0.big")
    })
}

/// The device that `wanted` names for a part that is asked for by its size; `None` for any. What is left in `wanted` is
/// asked for in addition: devices of other kinds.
///
/// # Errors
/// Returns a usage error if `wanted` has several devices, a share that is a size of its own, or no device at all.
/// `named_by` is what has the devices, and `sized_by` what has the size.
pub(super) fn device(
    wanted: &mut WantedDevices,
    named_by: &str,
    sized_by: &str,
    settings: &RuntimeSettings,
) -> Result<Option<DeviceSelector>> {
    let wrong = |what: &str| {
        let what = format!("names {what}, but {sized_by} asks for a part of one device by its size");
        Error::usage(named_by, what).hint(format!(
            "name one device, such as 0, or all for any; or leave {sized_by} out"
        ))
    };
    if wanted.driver_only {
        return Err(wrong("no device"));
    }
    let usual = CdiKind::nvidia_gpu();
    let mut found: BTreeSet<DeviceSelector> = BTreeSet::new();
    let mut others = Vec::new();
    for device in std::mem::take(&mut wanted.devices) {
        let own = match &device {
            WantedDevice::Cdi(name) if name.kind == usual || name.kind == settings.default_kind => {
                let meant = WantedDevice::of_name(name.device.as_str());
                meant.ok_or_else(|| wrong(&format!("\"{name}\"")))?
            }
            WantedDevice::Cdi(_) => {
                others.push(device);
                continue;
            }
            _ => device,
        };
        match own {
            WantedDevice::All | WantedDevice::Cdi(_) => {}
            WantedDevice::Device(device)
            | WantedDevice::Share {
                device,
                share: WantedShare::Any,
            } => {
                found.insert(device);
            }
            WantedDevice::Share {
                device,
                share: WantedShare::Named(name),
            } => return Err(wrong(&format!("the share {device}.{name}"))),
        }
    }
    wanted.devices = others;
    if found.len() > 1 {
        return Err(wrong(&format!("{} devices", found.len())));
    }
    Ok(found.pop_first())
}
