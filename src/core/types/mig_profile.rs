//! Names of MIG profiles.

use super::decimal;
use std::fmt;
use std::str::FromStr;

/// The name of a MIG profile: `1g.10gb`, `1c.3g.20gb`, `1g.10gb+me`, `4g.24gb+gfx`.
///
/// `1c.3g.20gb` is one compute slice of a GPU instance with three slices and 20 GB; without `c` the compute instance
/// has all slices of its GPU instance (NVIDIA's MIG user guide, "Device names").
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MigProfile {
    /// Compute slices of the compute instance; `None` if it has all slices of its GPU instance.
    pub compute_slices: Option<u8>,
    /// Slices of the GPU instance.
    pub gpu_slices: u8,
    /// Memory in GB, as NVIDIA rounds it for the name.
    pub memory_gb: u32,
    /// The attributes after `+` (media extensions, graphics) or `-`, each with its sign, in the order of the name.
    pub attributes: Vec<String>,
}

impl MigProfile {
    /// Whether instances of this profile can draw. These need the DRI nodes as well.
    pub fn has_graphics(&self) -> bool {
        self.attributes.iter().any(|a| a == "+gfx")
    }
}

/// What the name of any instance of a profile begins with.
const ON_DEMAND: &str = "mig-";

impl MigProfile {
    /// The profile of `mig-1g.10gb.any`, the name for a device that is made when it is asked for. `+` is written as a
    /// dot there: CDI allows none in a name (`mig-1g.10gb.me.any`). `None` for any other name.
    pub fn of_on_demand(name: &str) -> Option<Self> {
        let profile = name.strip_prefix(ON_DEMAND)?.strip_suffix(".any")?;
        let (mut text, attributes) = match profile.split_once("gb.") {
            None => (profile.to_owned(), None),
            Some((base, attributes)) => (format!("{base}gb"), Some(attributes)),
        };
        let mut words = attributes.into_iter().flat_map(|words| words.split('.')).peekable();
        while let Some(word) = words.next() {
            text.push('+');
            text.push_str(word);
            // The one attribute that has a dot itself.
            if word == "me" && words.next_if_eq(&"all").is_some() {
                text.push_str(".all");
            }
        }
        text.parse().ok()
    }

    /// The name by which any instance of this profile is asked for.
    pub fn on_demand(&self) -> String {
        format!("{ON_DEMAND}{}.any", self.to_string().replace('+', "."))
    }
}

impl fmt::Display for MigProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = String::new();
        if let Some(c) = self.compute_slices {
            name.push_str(&format!("{c}c."));
        }
        name.push_str(&format!("{}g.{}gb", self.gpu_slices, self.memory_gb));
        self.attributes.iter().for_each(|a| name.push_str(a));
        f.pad(&name)
    }
}

super::parsed_type!(MigProfile, parse, "not a MIG profile like 1g.10gb");

fn parse(text: &str) -> Option<MigProfile> {
    let end = text.find(['+', '-']).unwrap_or(text.len());
    let (base, tail) = text.split_at(end);
    let parts: Vec<&str> = base.split('.').collect();
    let (compute, gpu, memory) = match parts.as_slice() {
        [gpu, memory] => (None, *gpu, *memory),
        [compute, gpu, memory] => (Some(*compute), *gpu, *memory),
        _ => return None,
    };
    Some(MigProfile {
        compute_slices: compute.map(|c| number(c, "c").ok_or(())).transpose().ok()?,
        gpu_slices: number(gpu, "g")?,
        memory_gb: number(memory, "gb")?,
        attributes: attributes(tail)?,
    })
}

fn number<T: FromStr>(text: &str, unit: &str) -> Option<T> {
    decimal(text.strip_suffix(unit)?)
}

/// Splits `+me+gfx` into two attributes. A dot belongs to its attribute: `+me.all` is one.
fn attributes(mut tail: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    while !tail.is_empty() {
        let end = tail[1..].find(['+', '-']).map_or(tail.len(), |i| i + 1);
        let (one, rest) = tail.split_at(end);
        let name = &one[1..];
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.') {
            return None;
        }
        found.push(one.to_owned());
        tail = rest;
    }
    Some(found)
}

super::serde_as_text!(MigProfile);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive() {
        for name in [
            "1g.10gb",
            "1c.3g.20gb",
            "1g.10gb+me",
            "4g.24gb+gfx",
            "1g.12gb+me.all",
            "2g.24gb-me",
            "1g.6gb+me+gfx",
        ] {
            assert_eq!(name.parse::<MigProfile>().unwrap().to_string(), name);
        }
        assert!("1g.6gb+me+gfx".parse::<MigProfile>().unwrap().has_graphics());
    }

    /// Each parser of names of devices reads the name of an instance on demand as such a name, or refuses it.
    #[test]
    fn names_on_demand_mean_nothing_else() {
        use crate::types::{DevicePart, DeviceSelector, MigUuid, PciAddress, QualifiedName};
        for (profile, name) in [
            ("1g.10gb", "mig-1g.10gb.any"),
            ("1c.3g.20gb", "mig-1c.3g.20gb.any"),
            ("1g.10gb+me", "mig-1g.10gb.me.any"),
            ("4g.24gb+gfx", "mig-4g.24gb.gfx.any"),
            ("1g.12gb+me.all", "mig-1g.12gb.me.all.any"),
            ("2g.24gb-me", "mig-2g.24gb-me.any"),
            ("1g.6gb+me+gfx", "mig-1g.6gb.me.gfx.any"),
        ] {
            let profile: MigProfile = profile.parse().unwrap();
            assert_eq!(profile.on_demand(), name);
            assert_eq!(MigProfile::of_on_demand(name), Some(profile));
            assert!(name.parse::<MigProfile>().is_err());
            assert!(name.parse::<DeviceSelector>().is_err());
            assert!(name.parse::<DevicePart>().is_err());
            assert!(name.parse::<MigUuid>().is_err());
            assert!(name.parse::<PciAddress>().is_err());
            let qualified: QualifiedName = format!("nvidia.com/gpu={name}").parse().unwrap();
            assert_eq!(qualified.device.as_str(), name);
        }
        for other in [
            "0.any",
            "mig-1g.10gb",
            "1g.10gb.any",
            "mig-.any",
            "mig-0.any",
            "mig-1g.10gb..any",
            "mig-1g.any",
        ] {
            assert_eq!(MigProfile::of_on_demand(other), None, "{other}");
        }
    }

    #[test]
    fn others_do_not() {
        for bad in [
            "",
            "g.10gb",
            "1g",
            "1g.10",
            "1g.10gb+",
            "1g.10gb+a/b",
            "999g.1gb",
            "1x.1g.5gb",
            "1g.5gb é",
        ] {
            assert!(bad.parse::<MigProfile>().is_err(), "{bad}");
        }
    }
}
