//! A container whose bundle this process may not access.
//!
//! With podman as root and a user namespace, the hook runs as a user of that namespace. Bundle and root directory are
//! in the storage root, which has mode 0700 and belongs to the real root. The hook can access the directory in which
//! the runtime starts it, which is the container's root (runc), and the list of mounts.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Config;
use crate::root::{ContainerRoot, HostDirectory, MountOrigin, MountTable, Mounted, RuntimeMount};

/// File systems that a runtime makes for a container, or that show the kernel's state.
const OF_THE_RUNTIME: [&str; 8] = [
    "proc",
    "sysfs",
    "tmpfs",
    "devpts",
    "mqueue",
    "cgroup",
    "cgroup2",
    "securityfs",
];

/// The current directory as a container's root, and the configuration as far as it follows from the list of mounts.
///
/// Only config.json says whether the root is read-only, and some runtimes (runc) let a hook write there anyway. So the
/// root counts as read-only.
///
/// # Errors
/// Returns the reason if the current directory is not certainly the root of a container that is being made.
pub(super) fn open() -> Result<(Config, ContainerRoot), &'static str> {
    let here = HostDirectory::open(Path::new(".")).map_err(|_| "the current directory cannot be opened")?;
    let root = ContainerRoot::open(&here, Path::new(".")).map_err(|_| "the current directory cannot be opened")?;
    if root.is_the_hosts().unwrap_or(true) {
        return Err("the current directory is the host's root");
    }
    let path = std::env::current_dir().map_err(|_| "the current directory has no path")?;
    let table = MountTable::read().map_err(|_| "the list of mounts cannot be read")?;
    let mount = table
        .of(&root)
        .ok_or("the current directory is not in the list of mounts")?;
    if mount.at != path {
        return Err("the current directory is not one on which a runtime mounted a root");
    }
    let is_proc = |other: &Mounted| other.is_on(mount) && other.kind == "proc" && other.at == path.join("proc");
    if !table.below(mount).any(is_proc) {
        return Err("the current directory has no /proc of a container");
    }
    Ok((config(mount, &table), root))
}

fn config(root: &Mounted, table: &MountTable) -> Config {
    let mounts = table.below(root).filter_map(|mount| {
        let below = mount.at.strip_prefix(&root.at).ok()?;
        let by_runtime = OF_THE_RUNTIME.iter().any(|kind| mount.kind == OsStr::new(kind));
        Some(RuntimeMount {
            at: Path::new("/").join(below),
            source: None,
            recursive: false,
            // A tmpfs may also be the host's, so nothing is written there.
            origin: match mount.is_part() || !by_runtime {
                true => MountOrigin::Host,
                false => MountOrigin::Other,
            },
        })
    });
    Config {
        root: PathBuf::from("."),
        read_only: true,
        devices: Vec::new(),
        mounts: mounts.collect(),
        environment: Vec::new(),
        user: 0,
        mount_label: root.label(),
    }
}
