//! One device node, and the check that it is the driver's.

use super::proc::Majors;
use super::scan::Scan;
use super::tree::is_absence;
use crate::inventory::DeviceNode;
use crate::types::ContainerPath;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// The numbers that a node must have according to the driver. Without majors, any major is accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    /// Majors that the driver registered for it.
    pub majors: &'a [u32],
    /// Its minor, if it is known beforehand.
    pub minor: Option<u32>,
}

impl Expected<'_> {
    /// Any numbers.
    pub(crate) const ANYTHING: Self = Expected {
        majors: &[],
        minor: None,
    };
}

/// Looks at the node `path`, as a container names it.
///
/// A missing node whose numbers are known is in the result: the driver makes some nodes only on request, and an engine
/// can make them. A link, a regular file or a node of another driver is refused with a warning, because a container would
/// get something that is not a GPU.
pub(crate) fn look(scan: &Scan<'_>, path: &str, expected: Expected<'_>) -> Option<DeviceNode> {
    let host = scan.roots.dev.host(path);
    let container = ContainerPath::new(path).ok()?;
    let data = match scan.roots.dev.lstat(path) {
        Ok(data) => Some(data),
        Err(e) if is_absence(&e) => None,
        Err(e) => {
            scan.findings
                .warn(host, format!("cannot be examined and is left out: {e}"));
            return None;
        }
    };
    let (major, minor) = match &data {
        Some(data) => numbers(data, expected)
            .map_err(|why| scan.findings.warn(&host, why))
            .ok()?,
        None => {
            let numbers = expected.majors.first().copied().zip(expected.minor);
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

fn numbers(data: &Metadata, expected: Expected<'_>) -> Result<(u32, u32), String> {
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
    let wrong_major = !expected.majors.is_empty() && !expected.majors.contains(&major);
    if wrong_major || expected.minor.is_some_and(|m| m != minor) {
        let majors: Vec<String> = expected.majors.iter().map(u32::to_string).collect();
        let wants = match (expected.minor, majors.is_empty()) {
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
