//! The configuration file of NVIDIA's mig-parted, accepted as it is, also as it is in a ConfigMap of Kubernetes.
//!
//! Unknown keys are errors at every level, and all named configurations are checked and not only the selected one.

use super::{Configuration, Entry};
use crate::mig::layout::{GpuWish, MigPartedSelector, PciModel, WishedInstance};
use crate::yaml::{Node, TextOrigin, Value, explain, options, place};
use std::collections::BTreeMap;
use tranche_core::error::{Error, Result};
use tranche_core::text::candidates;
use tranche_core::types::{MigProfile, Place};

/// The key of a ConfigMap that mig-parted's manager reads, if it has several.
const CONFIG_MAP_KEY: &str = "config.yaml";

/// Reads the configuration `selected` from `text`; without a name, the only one. `file` is the name in messages.
///
/// A device filter that is not one of a PCI device selects nothing, as in mig-parted.
///
/// # Errors
/// Returns a usage error with line and column for a file that mig-parted refuses, and for a name that the file lacks.
pub fn read(file: &str, text: &str, selected: Option<&str>) -> Result<Configuration> {
    let mut reader = Reader {
        file,
        origin: TextOrigin::File,
    };
    let mut root = reader.parse(text)?;
    let inner = reader.config_map(&root)?.map(|value| match &value.value {
        Value::Text(inner) => {
            let at = place(value.referenced).unwrap_or_default();
            Ok((inner.clone(), TextOrigin::of(text, at, inner)))
        }
        other => Err(reader.wrong(value, format!("is {other}, and not the text of a configuration file"))),
    });
    if let Some((inner, origin)) = inner.transpose()? {
        reader.origin = origin;
        root = reader.parse(&inner)?;
    }
    reader.file(&root, selected)
}

struct Reader<'f> {
    file: &'f str,
    origin: TextOrigin,
}

impl Reader<'_> {
    fn wrong(&self, node: &Node, what: impl std::fmt::Display) -> Error {
        self.wrong_at(place(node.referenced), what)
    }

    fn wrong_at(&self, at: Option<Place>, what: impl std::fmt::Display) -> Error {
        match self.origin.moved(at) {
            Some(at) => Error::usage(at.of(self.file), what),
            None => Error::usage(self.file, what),
        }
    }

    fn parse(&self, text: &str) -> Result<Node> {
        let parsed: std::result::Result<Node, _> = serde_saphyr::from_str_with_options(text, options());
        parsed.map_err(|error| {
            let (at, what) = explain(&error);
            self.wrong_at(at, what)
        })
    }

    /// The value in a ConfigMap that is the file; `None` if `root` is not a ConfigMap.
    fn config_map<'n>(&self, root: &'n Node) -> Result<Option<&'n Node>> {
        let Value::Map(entries) = &root.value else {
            return Ok(None);
        };
        let value = |entries: &'n [(Node, Node)], name: &str| {
            let mut found = entries.iter().filter(|(key, _)| key.value.text() == Some(name));
            found.next().map(|(_, value)| value)
        };
        if value(entries, "kind").and_then(|kind| kind.value.text()) != Some("ConfigMap") {
            return Ok(None);
        }
        let data = value(entries, "data").map(|data| &data.value);
        let Some(Value::Map(files)) = data else {
            return Err(self.wrong(root, "the ConfigMap has no data"));
        };
        match (value(files, CONFIG_MAP_KEY), files.as_slice()) {
            (Some(found), _) | (None, [(_, found)]) => Ok(Some(found)),
            (None, _) => Err(self.wrong(root, format!("the ConfigMap has no key {CONFIG_MAP_KEY}"))),
        }
    }

    fn file(&self, root: &Node, selected: Option<&str>) -> Result<Configuration> {
        let top = self.map(root, "the file", &["version", "mig-configs"])?;
        match top.get("version").and_then(|node| node.value.text()) {
            Some("v1") => {}
            Some(other) => return Err(self.wrong(root, format!("version {other} is unknown; write version: v1"))),
            None => return Err(self.wrong(root, "has no version; write version: v1")),
        }
        let configs = top
            .get("mig-configs")
            .ok_or_else(|| self.wrong(root, "has no mig-configs"))?;
        let Value::Map(entries) = &configs.value else {
            return Err(self.wrong(configs, format!("mig-configs is {}, and not a map", configs.value)));
        };
        let mut named: BTreeMap<&str, Configuration> = BTreeMap::new();
        for (name, config) in entries {
            let name = name.value.text().ok_or_else(|| self.wrong(name, "is not a name"))?;
            named.insert(name, self.config(name, config)?);
        }
        let names: Vec<&str> = named.keys().copied().collect();
        let only = || named.values().next().cloned();
        let chosen = match (selected, names.as_slice()) {
            (_, []) => return Err(self.wrong(configs, "has no configuration")),
            (None, [_]) => only(),
            (None, _) => {
                let error = Error::usage(self.file, "has several configurations");
                return Err(error.hint(format!("select one of {}", candidates("", &names))));
            }
            (Some(name), _) => named.get(name).cloned(),
        };
        chosen.ok_or_else(|| {
            let what = format!("has no configuration {}", selected.unwrap_or_default());
            Error::usage(self.file, what).hint(format!(
                "expected one of {}",
                candidates(selected.unwrap_or_default(), &names)
            ))
        })
    }

    /// The values of a map, each of which has one of these keys.
    fn map<'n>(&self, node: &'n Node, what: &str, known: &[&str]) -> Result<BTreeMap<&'n str, &'n Node>> {
        let Value::Map(entries) = &node.value else {
            return Err(self.wrong(node, format!("{what} is {}, and not a map", node.value)));
        };
        let mut found = BTreeMap::new();
        for (key, value) in entries {
            match key.value.text().filter(|key| known.contains(key)) {
                Some(key) => found.insert(key, value),
                None => {
                    let error = self.wrong(key, format!("unknown key {}", key.value));
                    let asked = key.value.text().unwrap_or_default();
                    return Err(error.hint(format!("expected one of {}", candidates(asked, known))));
                }
            };
        }
        Ok(found)
    }

    fn config(&self, name: &str, node: &Node) -> Result<Configuration> {
        let mut notes = Vec::new();
        let entries = match &node.value {
            Value::List(entries) if !entries.is_empty() => {
                let entries: Result<Vec<Entry>> = entries.iter().map(|entry| self.entry(entry, &mut notes)).collect();
                entries?
            }
            _ => return Err(self.wrong(node, "a configuration is a list of at least one entry")),
        };
        Ok(Configuration {
            name: name.to_owned(),
            entries,
            notes,
        })
    }

    fn entry(&self, node: &Node, notes: &mut Vec<String>) -> Result<Entry> {
        const KEYS: [&str; 4] = ["devices", "device-filter", "mig-enabled", "mig-devices"];
        let keys = self.map(node, "an entry", &KEYS)?;
        let required = |key: &str| {
            keys.get(key)
                .copied()
                .ok_or_else(|| self.wrong(node, format!("has no {key}")))
        };
        let selector = MigPartedSelector {
            indices: self.indices(required("devices")?)?,
            models: match keys.get("device-filter") {
                None => Vec::new(),
                Some(filter) => self.models(filter, notes)?,
            },
        };
        let enabled = required("mig-enabled")?;
        let Value::Bool(is_on) = enabled.value else {
            return Err(self.wrong(
                enabled,
                format!("mig-enabled is {}, and not true or false", enabled.value),
            ));
        };
        let devices = keys.get("mig-devices").copied();
        let wish = match (is_on, devices) {
            (true, Some(devices)) => GpuWish::Instances(self.instances(devices)?),
            (true, None) => return Err(self.wrong(node, "has mig-enabled: true and no mig-devices")),
            (false, Some(devices)) if !matches!(&devices.value, Value::Map(map) if map.is_empty()) => {
                match devices.value {
                    Value::Null => GpuWish::Off,
                    _ => return Err(self.wrong(devices, "has mig-enabled: false and mig-devices")),
                }
            }
            (false, _) => GpuWish::Off,
        };
        Ok(Entry { gpus: selector, wish })
    }

    /// `None`: all.
    fn indices(&self, node: &Node) -> Result<Option<Vec<i64>>> {
        let number = |node: &Node| match &node.value {
            Value::Number(number) => number.parse().ok(),
            _ => None,
        };
        match &node.value {
            Value::Text(text) if text == "all" => Ok(None),
            Value::List(list) => {
                let numbers: Option<Vec<i64>> = list.iter().map(number).collect();
                numbers
                    .map(Some)
                    .ok_or_else(|| self.wrong(node, "devices has an entry that is not an index"))
            }
            other => Err(self.wrong(node, format!("devices is {other}, and not all or a list of indices"))),
        }
    }

    /// A text, or a list of them. One that names no model matches nothing, and is in the notes.
    fn models(&self, node: &Node, notes: &mut Vec<String>) -> Result<Vec<PciModel>> {
        /// A model that no GPU is.
        const NOTHING: PciModel = PciModel {
            device: 0,
            subsystem: None,
        };
        let mut one = |node: &Node| match &node.value {
            Value::Text(text) => Ok(model(text).unwrap_or_else(|| {
                let what = format!("device-filter {text} selects nothing: it is not a PCI id like 0x20B010DE");
                notes.push(self.wrong(node, what).to_string());
                NOTHING
            })),
            other => Err(self.wrong(
                node,
                format!("device-filter has {other}, and not a PCI id like \"0x20B010DE\""),
            )),
        };
        match &node.value {
            Value::List(list) => list.iter().map(one).collect(),
            _ => Ok(vec![one(node)?]),
        }
    }

    fn instances(&self, node: &Node) -> Result<BTreeMap<WishedInstance, u32>> {
        let Value::Map(entries) = &node.value else {
            return Err(self.wrong(node, format!("mig-devices is {}, and not a map", node.value)));
        };
        let mut wished = BTreeMap::new();
        for (name, count) in entries {
            let profile = name.value.text().and_then(profile);
            let profile = profile.ok_or_else(|| self.wrong(name, format!("{} is not a MIG profile", name.value)))?;
            let number = match &count.value {
                Value::Number(number) => number.parse::<u32>().ok(),
                _ => None,
            };
            let what = || format!("{} is not a number of instances", count.value);
            match number.ok_or_else(|| self.wrong(count, what()))? {
                0 => {}
                number => *wished.entry(WishedInstance { profile, start: None }).or_insert(0) += number,
            }
        }
        match wished.is_empty() && !entries.is_empty() {
            true => Err(self.wrong(node, "every number of mig-devices is 0")),
            false => Ok(wished),
        }
    }
}

/// `1g.5gb`, `1c.3g.20gb`, `1g.10gb+me,gfx`: mig-parted writes one sign and a comma between attributes.
fn profile(name: &str) -> Option<MigProfile> {
    let Some(at) = name.find(['+', '-']) else {
        return name.parse().ok();
    };
    let (base, attributes) = name.split_at(at);
    let (sign, attributes) = attributes.split_at(1);
    // Both signs in one name are an error there.
    if attributes.contains(['+', '-']) {
        return None;
    }
    let attributes: String = attributes
        .split(',')
        .map(|attribute| format!("{sign}{attribute}"))
        .collect();
    format!("{base}{attributes}").parse().ok()
}

/// `0x20B010DE`, `0x20B010DE:0x134F10DE`
fn model(filter: &str) -> Option<PciModel> {
    let id = |text: &str| u32::from_str_radix(text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?, 16).ok();
    let (device, subsystem) = match filter.split_once(':') {
        Some((device, subsystem)) => (device, Some(id(subsystem)?)),
        None => (filter, None),
    };
    Some(PciModel {
        device: id(device)?,
        subsystem,
    })
}
