//! Device nodes: what a node must be to be believed.

use super::proc::Majors;
use super::roots::Roots;
use super::tree::is_absence;
use crate::inventory::{DeviceNode, Inventory};
use crate::types::ContainerPath;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// What the driver says that a node must be. An empty list of majors says nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    /// Majors that the driver registered for it.
    pub majors: &'a [u32],
    /// Its minor, where that is known beforehand.
    pub minor: Option<u32>,
}

impl Expected<'_> {
    /// Nothing is known.
    pub(crate) const ANYTHING: Self = Expected {
        majors: &[],
        minor: None,
    };
}

/// Looks at the node `path` (as a container names it).
///
/// A missing node whose numbers are known is there all the same: the driver makes some only when asked, and an engine
/// can make it. A link, a regular file or a node of another driver is refused with a warning: handing that to a
/// container would give it something else than a GPU.
pub(crate) fn look(roots: &Roots, path: &str, expected: Expected<'_>, inventory: &mut Inventory) -> Option<DeviceNode> {
    let host = roots.dev.host(path);
    let data = match roots.dev.lstat(path) {
        Ok(data) => data,
        Err(e) if is_absence(&e) => {
            let numbers = expected.majors.first().copied().zip(expected.minor);
            let Some((major, minor)) = numbers else {
                inventory.absent(path, [host.as_str().to_owned()]);
                return None;
            };
            return Some(DeviceNode {
                host,
                container: ContainerPath::new(path).ok()?,
                major,
                minor,
                mode: None,
                uid: 0,
                gid: 0,
                present: false,
            });
        }
        Err(e) => {
            inventory.warn(host, format!("cannot be looked at and is left out: {e}"));
            return None;
        }
    };
    match numbers(&data, expected) {
        Ok((major, minor)) => Some(DeviceNode {
            host,
            container: ContainerPath::new(path).ok()?,
            major,
            minor,
            mode: Some(data.mode() & 0o7777),
            uid: data.uid(),
            gid: data.gid(),
            present: true,
        }),
        Err(why) => {
            inventory.warn(host, why);
            None
        }
    }
}

fn numbers(data: &Metadata, expected: Expected<'_>) -> Result<(u32, u32), String> {
    let kind = data.file_type();
    if !kind.is_char_device() {
        let what = match () {
            () if kind.is_symlink() => "a symbolic link",
            () if kind.is_file() => "a regular file",
            () if kind.is_dir() => "a directory",
            () => "something else",
        };
        return Err(format!(
            "is {what} where the driver has a device node, and is left out; remove it and run nvidia-modprobe"
        ));
    }
    // A Linux device number has 12 bits of major and 20 of minor: both fit.
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
            "is {major}:{minor} where the driver has {wants}, and is left out; remove it and run nvidia-modprobe"
        ));
    }
    Ok((major, minor))
}

/// Majors by what the driver calls them. Older drivers register everything but UVM as `nvidia-frontend`.
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
