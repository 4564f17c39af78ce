//! The attributes of a device, by which a claim chooses it.
//!
//! NVIDIA's names count under any name of the driver, so that the selectors of existing manifests are satisfied:
//! `device.attributes['gpu.nvidia.com'].type == 'gpu'`.

use k8s_openapi::api::resource::v1::DeviceAttribute;
use std::collections::BTreeMap;
use tranche_core::text::shown;
use tranche_protocol::{DraDevice, DraDevices, DraShare};

/// The domain of NVIDIA's attributes.
pub const NVIDIA: &str = "gpu.nvidia.com";

/// The domain of tranche's attributes and taints.
pub const TRANCHE: &str = "gpu.tranche.dev";

/// The domain of the attributes that Kubernetes defines for all drivers (KEP-4381).
const STANDARD: &str = "resource.kubernetes.io";

/// The longest value of a string or a version, in bytes (`DeviceAttributeMaxValueLength` of `resource/v1`).
pub const MOST_TEXT: usize = 64;

/// The attributes of `device`, or of its share `share`, for the driver of this name. A value that the API server would
/// refuse is shortened if it is for people, and else left out with a line in `warnings`.
pub fn attributes(
    node: &DraDevices,
    driver: &str,
    device: &DraDevice,
    share: Option<&DraShare>,
    warnings: &mut Vec<String>,
) -> BTreeMap<String, DeviceAttribute> {
    let gpu = &device.gpu;
    let mut all = Attributes {
        driver,
        device: &device.name,
        values: BTreeMap::new(),
        warnings,
    };
    let mig = device.mig.as_ref();
    all.text(NVIDIA, "type", Some(if mig.is_some() { "mig" } else { "gpu" }));
    // An instance that is made for a claim has a UUID only then, and another one each time.
    all.text(
        NVIDIA,
        "uuid",
        mig.map_or(Some(&gpu.uuid), |mig| mig.uuid.as_ref()).map(String::as_str),
    );
    if let Some(mig) = mig {
        all.text(NVIDIA, "parentUUID", Some(&gpu.uuid));
        all.text(NVIDIA, "profile", mig.profile.as_deref());
    }
    all.label(NVIDIA, "productName", &gpu.product);
    all.text(NVIDIA, "brand", gpu.brand.as_deref());
    all.text(NVIDIA, "architecture", gpu.architecture.as_deref());
    all.version("cudaComputeCapability", gpu.compute_capability.as_deref());
    all.version("driverVersion", node.driver.as_deref());
    all.version("cudaDriverVersion", node.cuda.as_deref());
    all.text(NVIDIA, "addressingMode", gpu.addressing.as_deref());
    all.number(NVIDIA, "index", gpu.index);
    all.number(NVIDIA, "minor", Some(gpu.minor));
    all.text(STANDARD, "pciBusID", Some(&gpu.pci));
    all.text(STANDARD, "pcieRoot", gpu.pcie_root.as_deref());
    all.number(STANDARD, "numaNode", gpu.numa);
    all.text(TRANCHE, "strategy", Some(device.strategy.as_str()));
    all.text(TRANCHE, "guaranteeMemory", Some(&device.memory_guarantee));
    all.text(TRANCHE, "guaranteeCompute", Some(&device.compute_guarantee));
    all.label(TRANCHE, "share", share.map_or("", |share| &share.name));
    all.values
}

struct Attributes<'a> {
    driver: &'a str,
    device: &'a str,
    values: BTreeMap<String, DeviceAttribute>,
    warnings: &'a mut Vec<String>,
}

impl Attributes<'_> {
    fn insert(&mut self, domain: &str, name: &str, value: DeviceAttribute) {
        // A name without a domain is of the driver's own. That of NVIDIA writes them so, and programs that read its
        // slices expect it.
        let name = match domain == NVIDIA && self.driver == NVIDIA {
            true => name.to_owned(),
            false => format!("{domain}/{name}"),
        };
        self.values.insert(name, value);
    }

    /// A text that names something: half of it would name something else.
    fn text(&mut self, domain: &str, name: &str, text: Option<&str>) {
        match text {
            Some(text) if text.len() > MOST_TEXT => self.leave_out(name, text),
            Some(text) if !text.is_empty() => self.label(domain, name, text),
            _ => {}
        }
    }

    /// A text for people.
    fn label(&mut self, domain: &str, name: &str, text: &str) {
        let text = shortened(text, MOST_TEXT).to_owned();
        if !text.is_empty() {
            let value = DeviceAttribute {
                string: Some(text),
                ..DeviceAttribute::default()
            };
            self.insert(domain, name, value);
        }
    }

    fn number(&mut self, domain: &str, name: &str, number: Option<u32>) {
        if let Some(number) = number {
            let value = DeviceAttribute {
                int: Some(number.into()),
                ..DeviceAttribute::default()
            };
            self.insert(domain, name, value);
        }
    }

    fn version(&mut self, name: &str, text: Option<&str>) {
        let Some(text) = text else { return };
        match version(text) {
            Some(version) => {
                let value = DeviceAttribute {
                    version: Some(version),
                    ..DeviceAttribute::default()
                };
                self.insert(NVIDIA, name, value);
            }
            None => self.leave_out(name, text),
        }
    }

    fn leave_out(&mut self, name: &str, text: &str) {
        self.warnings.push(format!(
            "{}: the attribute {name} is not published, because its value \"{}\" is not valid",
            shown(self.device),
            shown(shortened(text, 2 * MOST_TEXT))
        ));
    }
}

/// The version as semver.org 2.0.0 has it, with three numbers and without leading zeros: `570.124.06` is `570.124.6`,
/// and `9.0` is `9.0.0`. `None` if `text` is not made of one to three numbers.
pub fn version(text: &str) -> Option<String> {
    let mut numbers = [0_u64; 3];
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() > numbers.len() {
        return None;
    }
    for (number, part) in numbers.iter_mut().zip(parts) {
        // `parse` would take a sign.
        if !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    let [major, minor, patch] = numbers;
    Some(format!("{major}.{minor}.{patch}"))
}

/// The longest beginning of `text` with at most `most` bytes.
pub(super) fn shortened(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_made_of_three_numbers() {
        for (text, wanted) in [
            ("570.124.06", Some("570.124.6")),
            ("12.8", Some("12.8.0")),
            ("9", Some("9.0.0")),
            ("00.00", Some("0.0.0")),
            ("570.124.06.1", None),
            ("", None),
            ("+1.2", None),
            ("1..2", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(version(text).as_deref(), wanted, "{text}");
        }
    }
}
