//! The flags of NVIDIA's device plugin and of its feature discovery in a policy: two have an effect here, and a line
//! says which of the others have none.

use super::document::Document;
use super::fill::{Filler, nearest};
use super::sections::FlagsSection;
use crate::policy::Placed;
use crate::yaml::{Node, Value};
use tranche_core::error::{Error, Result};
use tranche_core::text::some;
use tranche_protocol::PodPlacement;

/// The flags that are read.
const READ: [&str; 2] = ["migStrategy", "plugin.sharedDevicesAllocationPolicy"];

/// The flags that have no effect here (k8s-device-plugin 0.20, `api/config/v1/flags.go`).
const WITHOUT_EFFECT: [&str; 20] = [
    "failOnInitError",
    "mpsRoot",
    "nvidiaDriverRoot",
    "nvidiaDevRoot",
    "gdrcopyEnabled",
    "gdsEnabled",
    "mofedEnabled",
    "useNodeFeatureAPI",
    "deviceDiscoveryStrategy",
    "plugin.passDeviceSpecs",
    "plugin.deviceListStrategy",
    "plugin.deviceIDStrategy",
    "plugin.cdiAnnotationPrefix",
    "plugin.nvidiaCTKPath",
    "plugin.containerDriverRoot",
    "gfd.oneshot",
    "gfd.noTimestamp",
    "gfd.sleepInterval",
    "gfd.outputFile",
    "gfd.machineTypeFile",
];

/// The keys of `sharing.timeSlicing` and `sharing.mps` that people write among the flags, where nothing reads them.
const OF_SHARING: [&str; 3] = ["renameByDefault", "failRequestsGreaterThanOne", "resources"];

/// What the flags say that has an effect here.
#[derive(Debug, Default)]
pub(super) struct Flags {
    /// `nvidia.com/gpu` means MIG devices too. The plugin then requires that all GPUs of a machine are alike; here it
    /// means every device on which work can run.
    pub(super) mig_too: bool,
    /// Which device a container of a pod gets.
    pub(super) placement: Option<PodPlacement>,
}

/// Reads the section, and warns of what has no effect.
///
/// # Errors
/// Returns a usage error for a policy of allocation that the plugin refuses, too.
pub(super) fn read(document: &Document<'_>, flags: &Node, warnings: &mut Vec<String>) -> Result<Flags> {
    if !matches!(flags.value, Value::Map(_)) {
        return Ok(Flags::default());
    }
    warn(document, flags, warnings);
    let FlagsSection { mig_strategy, plugin } = Filler::of(document, flags, "flags").fill()?;
    if let Some(Placed { place, value }) = &mig_strategy
        && !matches!(value.as_str(), "none" | "single" | "mixed" | "")
    {
        warnings.push(format!(
            "{}: migStrategy: \"{value}\" is unknown and has no effect; write none, single or mixed",
            place.of(document.file)
        ));
    }
    let policy = plugin.and_then(|plugin| plugin.shared_devices_allocation_policy);
    Ok(Flags {
        mig_too: mig_strategy.is_some_and(|strategy| strategy.value == "single"),
        placement: policy.map(|policy| placement(document, &policy)).transpose()?,
    })
}

fn placement(document: &Document<'_>, policy: &Placed<String>) -> Result<PodPlacement> {
    match policy.value.as_str() {
        "distributed" => Ok(PodPlacement::Distributed),
        "packed" => Ok(PodPlacement::Packed),
        other => {
            let what = format!("sharedDevicesAllocationPolicy: \"{other}\" is unknown");
            let error = Error::usage(policy.place.of(document.file), what);
            Err(error.hint("write distributed or packed"))
        }
    }
}

/// Warns of the keys that have no effect: of those of the plugin in one line, and of each other one in one of its own.
fn warn(document: &Document<'_>, flags: &Node, warnings: &mut Vec<String>) {
    let mut all = Vec::new();
    keys(flags, "", &mut all);
    let is = |known: &[&str], path: &str| known.iter().any(|known| path.eq_ignore_ascii_case(known));
    let mut of_the_plugin = Vec::new();
    for (key, path) in all {
        if is(&READ, &path) {
            continue;
        }
        if is(&WITHOUT_EFFECT, &path) {
            of_the_plugin.push(path);
            continue;
        }
        let name = path.rsplit('.').next().unwrap_or_default();
        let why = match OF_SHARING.iter().find(|known| name.eq_ignore_ascii_case(known)) {
            Some(known) => format!(
                "{known} has no effect below flags: it belongs to sharing.timeSlicing or sharing.mps; write it there, on a \
                 line of its own beside resources"
            ),
            None => {
                let known: Vec<&str> = READ.iter().chain(&WITHOUT_EFFECT).copied().collect();
                let near = nearest(&path, &known).map_or_else(String::new, |near| format!("; did you mean {near}?"));
                format!("flags: \"{path}\" is unknown and has no effect{near}")
            }
        };
        warnings.push(format!("{}: {why}", document.place(key).of(document.file)));
    }
    if !of_the_plugin.is_empty() {
        warnings.push(format!(
            "{}: flags: without an effect here: {}; they are for NVIDIA's device plugin and feature discovery",
            document.place(flags).of(document.file),
            some(&of_the_plugin)
        ));
    }
}

/// The keys of `node` that have a value which is no section, each with its path.
fn keys<'a>(node: &'a Node, path: &str, found: &mut Vec<(&'a Node, String)>) {
    let Value::Map(entries) = &node.value else { return };
    for (key, value) in entries {
        let name = key.value.text().unwrap_or_default();
        let is_section = path.is_empty()
            && ["plugin", "gfd"]
                .iter()
                .any(|section| name.eq_ignore_ascii_case(section));
        match is_section {
            true => keys(value, &format!("{name}."), found),
            false => found.push((key, format!("{path}{name}"))),
        }
    }
}
