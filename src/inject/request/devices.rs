//! Lists of devices, as environments, annotations and mounts name them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::{LONGEST_SHOWN, MOUNTS, WantedDevice};
use tranche_core::error::{Error, Result};
use tranche_core::text::cut;
use tranche_core::types::{CdiKind, DevicePart, Part, QualifiedName, ShareName};
use tranche_plan::policy::{RuntimeMode, RuntimeSettings};

/// The kind that NVIDIA's runtime gives to names without one. It has no specification.
const RUNTIME_KIND: &str = "runtime.nvidia.com/gpu=";

/// The most bytes of a device's name, with its kind. Names are compared with others, and an image can set one of a
/// megabyte.
const LONGEST_NAME: usize = 512;

/// What a list of devices asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WantedDevices {
    /// The devices, each once except for any device.
    pub(super) devices: Vec<WantedDevice>,
    /// The driver's files without a device.
    pub(super) driver_only: bool,
}

impl WantedDevices {
    /// What `names` ask for; `object` is what has them, for messages. An empty list and one with `void` ask for
    /// nothing. The first `all` or `none` takes the place of every name without a vendor.
    pub(super) fn of<'a>(
        object: &str,
        names: impl IntoIterator<Item = &'a str>,
        settings: &RuntimeSettings,
    ) -> Result<Self> {
        let names = names.into_iter();
        let names: Vec<Cow<'_, str>> = names
            .map(|name| in_usual_form(name.strip_prefix(RUNTIME_KIND).unwrap_or(name), settings.mode))
            .collect();
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        let mut wanted = Self::default();
        if names.contains(&"void") {
            return Ok(wanted);
        }
        let word = names.iter().find(|name| matches!(**name, "all" | "none"));
        wanted.driver_only = word == Some(&"none");
        // An environment may have a hundred thousand names, so a list would be searched too often.
        let mut seen = BTreeSet::new();
        for &name in &names {
            let is_replaced = word.is_some_and(|word| !name.contains('=') && name != *word);
            if is_replaced || name == "none" {
                continue;
            }
            let device = device(object, name, settings)?;
            if device.is_any() || seen.insert(device.clone()) {
                wanted.devices.push(device);
            }
        }
        Ok(wanted)
    }

    /// Whether nothing is asked for.
    pub(super) fn is_nothing(&self) -> bool {
        self.devices.is_empty() && !self.driver_only
    }
}

/// `name` as the rest of tranche knows it. libnvidia-container takes `ALL`, UUIDs in any case of letters and PCI
/// addresses without leading zeros (src/cli/common.c, `select_devices`); where a specification has every name, names
/// are exact.
fn in_usual_form(name: &str, mode: RuntimeMode) -> Cow<'_, str> {
    if mode == RuntimeMode::Cdi || name.contains('=') {
        return Cow::Borrowed(name);
    }
    if name.eq_ignore_ascii_case("all") {
        return Cow::Borrowed("all");
    }
    let usual = with_usual_prefix(name).or_else(|| with_leading_zeros(name));
    usual.map_or(Cow::Borrowed(name), Cow::Owned)
}

/// A UUID of the driver behind its prefix in capital letters, with what follows it; `None` for any other name: a
/// specification may have one that begins with `gpu-`. The case of the UUID itself does not count where it is looked
/// up.
fn with_usual_prefix(name: &str) -> Option<String> {
    let prefix = ["MIG-GPU-", "MIG-", "GPU-"].into_iter().find(|prefix| {
        let begin = name.get(..prefix.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
    })?;
    let rest = name.get(prefix.len()..)?;
    let groups = rest.get(..36)?.split('-').map(|group| {
        let is_hex = group.bytes().all(|b| b.is_ascii_hexdigit());
        is_hex.then_some(group.len())
    });
    let is_uuid = groups.eq([8, 4, 4, 4, 12].map(Some));
    is_uuid.then(|| format!("{prefix}{rest}"))
}

/// A PCI address as sysfs writes it, such as `0000:1b:00.0` for `0:1b:0.0`; `None` for any other name.
fn with_leading_zeros(name: &str) -> Option<String> {
    let (domain, rest) = name.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let device = rest.strip_suffix(".0").unwrap_or(rest);
    let number = |text: &str, most: usize| {
        let is_hex = (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        is_hex.then(|| u32::from_str_radix(text, 16).ok())?
    };
    let (domain, bus, device) = (number(domain, 8)?, number(bus, 2)?, number(device, 2)?);
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
}

fn device(object: &str, name: &str, settings: &RuntimeSettings) -> Result<WantedDevice> {
    if name.len() > LONGEST_NAME {
        let what = format!("\"{}\" is longer than {LONGEST_NAME} bytes", cut(name, LONGEST_SHOWN));
        return Err(Error::usage(object, what).hint("no device has such a name"));
    }
    let wrong = |what: &str| {
        Error::usage(object, format!("\"{name}\" {what}")).hint(
            "expected all, any, none, void, or names like 0, 0:1, GPU-…, MIG-…, 0.big, 0.any and nvidia.com/gpu=0",
        )
    };
    if name.contains('=') {
        let parsed = name.parse::<QualifiedName>();
        return parsed
            .map(WantedDevice::Cdi)
            .map_err(|_| wrong("is not a valid CDI device"));
    }
    if name.starts_with(MOUNTS) {
        let what = "means mounts below that directory, which has no such mount or is not accepted as a request";
        return Err(Error::usage(object, format!("\"{name}\" {what}"))
            .hint(
                "set acceptVolumeMounts in the policy, or accept-nvidia-visible-devices-as-volume-mounts in NVIDIA's config.toml",
            ));
    }
    if let Some((device, replica)) = name.split_once("::") {
        let replica =
            tranche_core::types::decimal::<u32>(replica).ok_or_else(|| wrong("has no number after \"::\""))?;
        let device = device.parse().map_err(|_| wrong("has no device before \"::\""))?;
        let part = Part::Share(ShareName::replica(replica));
        return Ok(WantedDevice::Part(DevicePart { device, part }));
    }
    // This mode takes every name from a specification.
    if settings.mode != RuntimeMode::Cdi
        && let Some(device) = WantedDevice::of_name(name)
    {
        return Ok(device);
    }
    // A specification may have names of its own, such as `gpu0`.
    let parsed = name.parse().map(|name| settings.default_kind.device(name));
    parsed
        .map(WantedDevice::Cdi)
        .map_err(|_| wrong("is not a valid name of a device"))
}

impl WantedDevice {
    /// Whether it is any device, which may be named several times: `any` and `nvidia.com/gpu=any`.
    pub(super) fn is_any(&self) -> bool {
        match self {
            Self::Any => true,
            Self::Cdi(name) => name.kind == CdiKind::nvidia_gpu() && name.device.as_str() == ShareName::ANY,
            Self::All | Self::Part(_) => false,
        }
    }

    /// What `name` means as a name of tranche's own: a device, a share, all, or any. A resolver asks this for the names
    /// of kinds whose devices it knows.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "all" => Some(Self::All),
            ShareName::ANY => Some(Self::Any),
            _ => name.parse().map(Self::Part).ok(),
        }
    }
}
