//! One device node, and the check that it is the driver's.

use super::proc::Majors;
use super::scan::Scan;
use super::tree::is_absence;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use tranche_core::types::ContainerPath;
use tranche_plan::inventory::{DeviceNode, WarningKind};

/// Examines the node at `path`, the path in a container. The driver's node has one of `majors`, and `minor`. If
/// `majors` is empty or `minor` is `None`, that number is unknown, and any is accepted.
///
/// A missing node whose numbers are known is in the result: the driver makes some nodes only on request, and an engine
/// can make them. A link, a regular file or a node of another driver is refused with a warning, because a container
/// would get something that is not a GPU.
pub(crate) fn look(scan: &Scan<'_>, path: &str, majors: &[u32], minor: Option<u32>) -> Option<DeviceNode> {
    let host = scan.roots.dev.host(path);
    let container = ContainerPath::new(path).ok()?;
    let data = match scan.roots.dev.lstat(path) {
        Ok(data) => Some(data),
        Err(e) if is_absence(&e) => None,
        Err(e) => {
            scan.findings.warn_of(
                WarningKind::WrongNode,
                host,
                format!("cannot be examined and is left out: {e}"),
            );
            return None;
        }
    };
    let (major, minor) = match &data {
        Some(data) => numbers(data, majors, minor)
            .map_err(|why| scan.findings.warn_of(WarningKind::WrongNode, &host, why))
            .ok()?,
        None => {
            let numbers = majors.first().copied().zip(minor);
            if numbers.is_none() {
                scan.findings.absent(path, [&host]);
            }
            numbers?
        }
    };
    Some(DeviceNode {
        host,
        container,
        major,
        minor,
        mode: data.as_ref().map(|data| data.mode() & 0o7777),
        uid: data.as_ref().map_or(0, MetadataExt::uid),
        gid: data.as_ref().map_or(0, MetadataExt::gid),
        present: data.is_some(),
    })
}

fn numbers(data: &Metadata, majors: &[u32], expected_minor: Option<u32>) -> Result<(u32, u32), String> {
    let kind = data.file_type();
    if !kind.is_char_device() {
        let what = match () {
            () if kind.is_symlink() => "a symbolic link",
            () if kind.is_file() => "a regular file",
            () if kind.is_dir() => "a directory",
            () => "not a character device",
        };
        return Err(format!(
            "is {what}, expected a device node: it is left out; remove it and run nvidia-modprobe"
        ));
    }
    // A Linux device number has 12 bits of major and 20 bits of minor, so both fit.
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let major = number(nix::sys::stat::major(data.rdev()));
    let minor = number(nix::sys::stat::minor(data.rdev()));
    let wrong_major = !majors.is_empty() && !majors.contains(&major);
    if wrong_major || expected_minor.is_some_and(|m| m != minor) {
        let majors: Vec<String> = majors.iter().map(u32::to_string).collect();
        let wants = match (expected_minor, majors.is_empty()) {
            (Some(minor), false) => format!("{}:{minor}", majors.join(" or ")),
            (Some(minor), true) => format!("minor {minor}"),
            (None, _) => format!("major {}", majors.join(" or ")),
        };
        return Err(format!(
            "is {major}:{minor}, expected {wants}: it is left out; remove it and run nvidia-modprobe"
        ));
    }
    Ok((major, minor))
}

/// The names under which the driver registers majors. Older drivers register all but UVM as `nvidia-frontend`.
impl Majors {
    /// `/dev/nvidiaN`
    pub(crate) fn gpu(&self) -> &[u32] {
        self.of(&["nvidia", "nvidia-frontend"])
    }

    /// `/dev/nvidiactl`
    pub(crate) fn ctl(&self) -> &[u32] {
        self.of(&["nvidiactl", "nvidia", "nvidia-frontend"])
    }
}
