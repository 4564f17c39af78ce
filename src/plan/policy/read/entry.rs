//! An entry of `resources`: which devices are shared, into which parts, and under which kind.

use super::sections::{Entry, ShareSection};
use crate::policy::{DeviceSet, MOST_NAMED, Parts, Placed, Resource, ShareAsk, Split, Strategy};
use std::fmt::Display;
use tranche_core::error::{Error, Result};
use tranche_core::types::{CdiKind, Place, ShareName};

/// Names that no share may have: `0.any` is any replica, and `all` and `none` are devices.
const RESERVED: [&str; 3] = [ShareName::ANY, "all", "none"];

/// What an entry inherits from its surroundings.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) file: &'a str,
    pub(super) strategy: Strategy,
    /// `nvidia.com/gpu` means MIG devices too: `flags.migStrategy` is `single`.
    pub(super) mig_too: bool,
    pub(super) rename_by_default: bool,
    pub(super) fail_requests_greater_than_one: bool,
}

impl Around<'_> {
    /// An error about what is at `place`.
    pub(super) fn wrong(&self, place: Place, what: impl Display) -> Error {
        Error::usage(place.of(self.file), what)
    }

    /// `devices`, if no device is in the list twice.
    pub(super) fn each_once(&self, devices: DeviceSet) -> Result<DeviceSet> {
        if let DeviceSet::List(list) = &devices {
            for (at, device) in list.iter().enumerate() {
                if list[..at].iter().any(|other| other.value == device.value) {
                    let what = format!("devices: {} is in the list twice", device.value);
                    return Err(self.wrong(device.place, what).hint("remove one of them"));
                }
            }
        }
        Ok(devices)
    }
}

pub(super) fn read_split(around: Around<'_>, entry: Placed<Entry>, warnings: &mut Vec<String>) -> Result<Split> {
    let Placed { place, value: entry } = entry;
    let whole = |what: &str| around.wrong(place, format!("an entry of resources: {what}"));
    let (name, resource) = read_name(around, place, entry.name)?;
    let parts = match (entry.replicas, entry.shares) {
        // The largest number stands for every larger one.
        (Some(n), None) if (2..u32::MAX).contains(&n.value) => Parts::Equal(n.value),
        (Some(n), None) => {
            let (what, hint) = match n.value {
                u32::MAX => ("too many", "write a number below 4294967295"),
                _ => (
                    "too few",
                    "a device is split into at least 2; for one holder at a time, write it below dedicated",
                ),
            };
            return Err(around.wrong(n.place, format!("replicas: {what}")).hint(hint));
        }
        (None, Some(shares)) => Parts::Named(read_shares(around, shares, warnings)?),
        (Some(_), Some(_)) => {
            let error = whole("it has both replicas and shares");
            return Err(error.hint("keep replicas for equal parts, or shares for unequal ones"));
        }
        (None, None) => {
            let error = whole("replicas or shares is missing");
            return Err(error.hint("write replicas: 4 for four equal parts, or shares for unequal ones"));
        }
    };
    let rename = entry.rename.filter(|rename| !rename.value.is_empty());
    Ok(Split {
        strategy: around.strategy,
        resource,
        kind: kind(around, &name, rename.as_ref())?,
        devices: around.each_once(entry.devices)?,
        parts,
        fail_requests_greater_than_one: around.fail_requests_greater_than_one,
        place,
    })
}

/// The name of an entry, and what it means.
pub(super) fn read_name(
    around: Around<'_>,
    place: Place,
    name: Option<Placed<String>>,
) -> Result<(Placed<String>, Resource)> {
    let Some(name) = name else {
        let error = around.wrong(place, "an entry of resources: name is missing");
        return Err(error.hint("write name: nvidia.com/gpu"));
    };
    match resource(&name.value) {
        Some(Resource::Gpu) if around.mig_too => Ok((name, Resource::Every)),
        Some(resource) => Ok((name, resource)),
        None => Err(around
            .wrong(name.place, format!("name: \"{}\" is unknown", name.value))
            .hint("write nvidia.com/gpu, or nvidia.com/mig-PROFILE for MIG devices of one profile")),
    }
}

/// The kind under which the shares of an entry are offered.
pub(super) fn kind(around: Around<'_>, name: &Placed<String>, rename: Option<&Placed<String>>) -> Result<CdiKind> {
    let text = match rename {
        Some(rename) if rename.value.contains('/') => rename.value.clone(),
        Some(rename) => format!("nvidia.com/{}", rename.value),
        None if around.rename_by_default => {
            let class = name.value.strip_prefix("nvidia.com/").unwrap_or(&name.value);
            format!("nvidia.com/{}.shared", class.replace('+', "."))
        }
        // MIG devices keep the names that they have: nvidia.com/gpu=0:1.
        None => "nvidia.com/gpu".to_owned(),
    };
    let wrong = |what: String| around.wrong(rename.unwrap_or(name).place, format!("rename: {what}"));
    let kind: CdiKind = text.parse().map_err(|e: Error| wrong(e.to_string()))?;
    if kind == CdiKind::claim() {
        let error = wrong("nvidia.com/claim is the kind of claims that were made beforehand".to_owned());
        return Err(error.hint("choose another name, like nvidia.com/gpu.shared"));
    }
    Ok(kind)
}

/// What the name of an entry means. `nvidia.com/` may be left out, as in NVIDIA's files.
fn resource(name: &str) -> Option<Resource> {
    let class = name.strip_prefix("nvidia.com/").unwrap_or(name);
    if class == "gpu" {
        return Some(Resource::Gpu);
    }
    // Kubernetes allows no `+` in a name: mig-1g.10gb.me is 1g.10gb+me.
    let profile = class.strip_prefix("mig-")?;
    let plain = profile.parse().ok();
    let profile = plain.or_else(|| {
        let at = profile.find("gb.")?;
        format!("{}+{}", &profile[..at + 2], &profile[at + 3..]).parse().ok()
    });
    profile.map(Resource::Mig)
}

fn read_shares(
    around: Around<'_>,
    shares: Placed<Vec<Placed<ShareSection>>>,
    warnings: &mut Vec<String>,
) -> Result<Vec<ShareAsk>> {
    let Placed { place, value: shares } = shares;
    if shares.is_empty() {
        return Err(around
            .wrong(place, "shares is empty")
            .hint("write at least one, like {name: big, compute: 80%}"));
    }
    if shares.len() > MOST_NAMED {
        return Err(around
            .wrong(place, format!("shares: {} are too many", shares.len()))
            .hint(format!("a device is split into at most {MOST_NAMED}")));
    }
    let mut read: Vec<ShareAsk> = Vec::with_capacity(shares.len());
    for Placed { place, value: share } in shares {
        let Some(name) = share.name else {
            return Err(around.wrong(place, "a share: name is missing").hint("write name: big"));
        };
        let is_reserved = |word: &&str| name.value.as_str().eq_ignore_ascii_case(word);
        let problem = if name.value.number().is_some() {
            // 0.3 is replica 3 of a device in equal parts: a name must not look like one.
            Some(("is a number", "put a letter into the name of a share"))
        } else if RESERVED.iter().any(is_reserved) {
            Some(("has a meaning of its own in device names", "choose another name"))
        } else if read.iter().any(|other| other.name == name.value) {
            Some(("is the name of two shares", "choose another name for one of them"))
        } else {
            None
        };
        if let Some((what, hint)) = problem {
            return Err(around
                .wrong(name.place, format!("name: \"{}\" {what}", name.value))
                .hint(hint));
        }
        let has_priority = match around.strategy {
            Strategy::Mps => true,
            Strategy::TimeSlicing | Strategy::Turns | Strategy::Dedicated => false,
        };
        if !has_priority && share.priority.is_some() {
            let (place, name) = (place.of(around.file), &name.value);
            let what = "priority has a meaning under MPS only, and is ignored";
            warnings.push(format!("{place}: share {name}: {what}"));
        }
        read.push(ShareAsk {
            place,
            name: name.value,
            compute: share.compute,
            memory: share.memory,
            priority: share.priority.unwrap_or_default(),
        });
    }
    Ok(read)
}
