//! The DRI nodes, the NUMA node and the root of a PCI device, from sysfs.

use super::node::look;
use super::proc::numbered;
use super::roots::Roots;
use super::scan::Scan;
use tranche_core::types::PciAddress;
use tranche_plan::inventory::{DriKind, DriNode};

/// The NUMA node of a device; `None` if it has none (the kernel writes -1) or if sysfs does not have it.
pub(crate) fn numa_node(roots: &Roots, pci: PciAddress) -> Option<u32> {
    let text = roots.sys.text(&format!("/bus/pci/devices/{pci}/numa_node")).ok()?;
    text.trim().parse().ok()
}

/// The root of the PCI hierarchy that a device is below: `pci0000:40`. Kubernetes' drivers publish it as
/// `resource.kubernetes.io/pcieRoot` (KEP-4381). `None` if sysfs does not have it.
pub(crate) fn root(roots: &Roots, pci: PciAddress) -> Option<String> {
    let device = roots.sys.resolve(&format!("/bus/pci/devices/{pci}")).ok()?;
    let is_root = |part: &&str| part.strip_prefix("pci").is_some_and(|rest| rest.contains(':'));
    device.as_str().split('/').find(is_root).map(str::to_owned)
}

/// The DRI nodes of a device, by path.
pub(crate) fn dri(scan: &Scan<'_>, pci: PciAddress) -> Vec<DriNode> {
    let roots = scan.roots;
    let dir = format!("/bus/pci/devices/{pci}/drm");
    // Without the DRM module there is no such directory.
    let Ok(entries) = roots.sys.list(&dir) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries {
        let Some(kind) = kind(&entry.name) else { continue };
        let numbers = roots.sys.text(&format!("{dir}/{}/dev", entry.name)).ok();
        let (major, minor) = numbers.as_deref().and_then(major_minor).unzip();
        let Some(node) = look(scan, &format!("/dev/dri/{}", entry.name), major.as_slice(), minor) else {
            continue;
        };
        found.push(DriNode {
            kind,
            node,
            by_path: by_path(roots, pci, kind, &entry.name),
        });
    }
    found.sort_by(|a, b| a.node.cmp(&b.node));
    found
}

fn kind(name: &str) -> Option<DriKind> {
    // The whole rest of the name must be a number: `card0-HDMI-A-1` is not a card.
    [
        ("controlD", DriKind::Control),
        ("renderD", DriKind::Render),
        ("card", DriKind::Card),
    ]
    .into_iter()
    .find(|(prefix, _)| numbered(name, prefix).is_some())
    .map(|(_, kind)| kind)
}

/// `226:128`
fn major_minor(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// udev's name for a node, if that link is there and leads to the node.
fn by_path(roots: &Roots, pci: PciAddress, kind: DriKind, node: &str) -> Option<String> {
    let suffix = match kind {
        DriKind::Card => "card",
        DriKind::Render => "render",
        DriKind::Control => return None,
    };
    let name = format!("pci-{pci}-{suffix}");
    let target = roots.dev.read_link(&format!("/dev/dri/by-path/{name}")).ok()?;
    (target.file_name()? == node).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_by_name() {
        assert_eq!(kind("card0"), Some(DriKind::Card));
        assert_eq!(kind("renderD128"), Some(DriKind::Render));
        assert_eq!(kind("controlD64"), Some(DriKind::Control));
        for other in ["card0-HDMI-A-1", "card", "version", "renderD", "renderD+1"] {
            assert_eq!(kind(other), None, "{other}");
        }
    }

    #[test]
    fn numbers_of_a_device() {
        assert_eq!(major_minor("226:128\n"), Some((226, 128)));
        for bad in ["", "226", "226:", ":1", "a:b"] {
            assert_eq!(major_minor(bad), None, "{bad}");
        }
    }
}
