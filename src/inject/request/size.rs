//! tranche's own requests: a part of a device by its size, and how long to wait for it.

use std::collections::BTreeSet;

use super::devices::WantedDevices;
use super::environment::Environment;
use super::view::ConfigView;
use super::{LONGEST_SHOWN, OWN_ANNOTATIONS, OWN_VARIABLES, RequestSource, WantedDevice, WantedSize, WantedWait};
use tranche_core::error::{Error, Result};
use tranche_core::text::cut;
use tranche_core::types::{CdiKind, DeviceSelector, MemorySize, Part, Percent, Selection, WaitTime};
use tranche_plan::policy::{Amount, RuntimeSettings};

/// What is asked for by tranche's own annotations and variables.
#[derive(Debug, Default)]
pub(super) struct OwnRequest {
    /// The amounts; no device.
    pub(super) size: WantedSize,
    /// Conditions on devices that are not named, and what sets them.
    pub(super) select: Option<(Selection, String)>,
    /// How long to wait.
    pub(super) wait: Option<WantedWait>,
    /// What sets the first amount: `annotation tranche.dev/memory` or `TRANCHE_MEMORY`; `None` without an amount.
    pub(super) asked_by: Option<(RequestSource, String)>,
    /// What sets the time, if there is no amount.
    pub(super) waits_by: Option<String>,
    /// Variables that ask and may not, with their values.
    pub(super) refused: Vec<String>,
    /// Variables that say something else than the annotation: one line each.
    pub(super) notes: Vec<String>,
}

/// Where a value may come from.
#[derive(Clone, Copy)]
struct Places<'a> {
    view: &'a ConfigView<'a>,
    environment: &'a Environment<'a>,
    /// Whether variables may ask.
    accepted: bool,
}

/// The annotations of the amounts, without their prefix.
const AMOUNTS: [&str; 3] = ["memory", "compute", "shares"];

impl OwnRequest {
    /// Reads them. A value that is empty counts as not set. If annotations ask for an amount, or a person has named
    /// devices by `person`, no variable adds an amount: an image can set it.
    ///
    /// # Errors
    /// Returns a usage error for a value that is invalid.
    pub(super) fn of(
        view: &ConfigView<'_>,
        environment: &Environment<'_>,
        accepted: bool,
        person: Option<&str>,
    ) -> Result<Self> {
        let mut own = Self::default();
        let places = Places {
            view,
            environment,
            accepted,
        };
        let mut person = person.map(str::to_owned);
        for word in AMOUNTS.into_iter().chain(["select"]) {
            if person.is_none() && places.annotation(word)?.is_some() {
                person = Some(annotation(word));
            }
        }
        let person = person.as_deref();
        own.size.memory = own.amount(places, "memory", person, memory)?;
        own.size.compute = own.amount(places, "compute", person, str::parse::<Percent>)?;
        own.size.shares = own.amount(places, "shares", person, shares)?;
        let select = own.value(places, "select", person, str::parse::<Selection>)?;
        own.select = select.map(|(select, (_, by))| (select, by));
        let time = own.value(places, "wait", None, str::parse::<WaitTime>)?;
        own.waits_by = time.as_ref().map(|(_, (_, by))| by.clone());
        own.wait = time.map(|(time, (source, _))| WantedWait { time, source });
        Ok(own)
    }

    fn amount<T: PartialEq>(
        &mut self,
        places: Places<'_>,
        word: &str,
        person: Option<&str>,
        parse: impl Fn(&str) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some((amount, by)) = self.value(places, word, person, parse)? else {
            return Ok(None);
        };
        self.asked_by.get_or_insert(by);
        Ok(Some(amount))
    }

    /// The value of an annotation, or else of the variable, and what sets it. The variable has no effect if `person`
    /// has asked already.
    fn value<T: PartialEq>(
        &mut self,
        places: Places<'_>,
        word: &str,
        person: Option<&str>,
        parse: impl Fn(&str) -> Result<T>,
    ) -> Result<Option<(T, (RequestSource, String))>> {
        let variable = format!("{OWN_VARIABLES}{}", word.to_ascii_uppercase());
        let set = places.environment.get(&variable).map(str::trim);
        let set = set.filter(|text| !text.is_empty());
        let read =
            |by: &str, text: &str| parse(text).map_err(|wrong| Error::usage(by, "is invalid").from_source(wrong));
        let ignored = |text: &str, why: String| {
            let what = cut(&format!("{variable}={text}"), LONGEST_SHOWN);
            format!("{what} is ignored, because {why}")
        };
        if let Some(text) = places.annotation(word)? {
            let by = annotation(word);
            let value = read(&by, &text)?;
            // An image that was made for tranche may set the variable, so this is no error.
            if let Some(other) = set.filter(|other| parse(other).ok().as_ref() != Some(&value)) {
                self.notes.push(ignored(other, format!("the {by} is {text}")));
            }
            return Ok(Some((value, (RequestSource::Annotation, by))));
        }
        let Some(text) = set else { return Ok(None) };
        if !places.accepted {
            self.refused.push(format!("{variable}={text}"));
            return Ok(None);
        }
        if let Some(person) = person {
            let why = format!(
                "{person} asks for a device already, and an image can set the variable; use the {}",
                annotation(word)
            );
            self.notes.push(ignored(text, why));
            return Ok(None);
        }
        let value = read(&variable, text)?;
        Ok(Some((value, (RequestSource::Environment, variable))))
    }
}

impl Places<'_> {
    /// The value of an annotation; `None` if it is not set.
    fn annotation(&self, word: &str) -> Result<Option<String>> {
        let text = self.view.annotation(&format!("{OWN_ANNOTATIONS}{word}"))?;
        let text = text.as_ref().map(|text| text.as_str().trim());
        Ok(text.filter(|text| !text.is_empty()).map(str::to_owned))
    }
}

/// An annotation, for messages.
fn annotation(word: &str) -> String {
    format!("annotation {OWN_ANNOTATIONS}{word}")
}

fn memory(text: &str) -> Result<MemorySize> {
    match text.parse()? {
        Amount::Size(size) => Ok(size),
        Amount::Percent(_) => Err(Error::usage(format!("\"{text}\""), "not a size of memory")
            .hint("write a size like 8Gi, because devices have different sizes")),
    }
}

fn shares(text: &str) -> Result<u32> {
    let number = tranche_core::types::decimal(text).filter(|number| *number > 0);
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
            WantedDevice::All | WantedDevice::Any | WantedDevice::Cdi(_) => {}
            WantedDevice::Part(wanted) => match wanted.part {
                Part::Whole | Part::Any => drop(found.insert(wanted.device)),
                Part::Share(_) => return Err(wrong(&format!("the share {wanted}"))),
            },
        }
    }
    wanted.devices = others;
    if found.len() > 1 {
        return Err(wrong(&format!("{} devices", found.len())));
    }
    Ok(found.pop_first())
}
