//! A container with an MPS share may have no other GPU.
//!
//! A CUDA process uses one MPS daemon, and the daemon shows it one device. A process with a second device would not see it,
//! or would leave MPS and its limits.
//!
//! Devices are compared by their numbers, because a node can have any name. A container gets the devices in its
//! config.json, and the nodes that its bind mounts bring, alone or in a directory.

use crate::call::{ClaimCall, OwnNode};
use crate::error::{Context, Error, Result};
use crate::oci::{CONFIG_LIMIT, Config, State};
use crate::root::{HostDirectory, MountOrigin, RuntimeMount};
use rustix::fs::{FileType, major, minor};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

type Number = (u32, u32);

/// GPUs have the minors below this number. Those above belong to the driver as a whole: `nvidiactl` 255, `nvidia-modeset`
/// 254 (NVIDIA's open kernel modules, `nv-chardev-numbers.h`).
const GPU_MINORS: u32 = 248;

/// The most entries of one directory that are examined: `/dev` has some hundreds.
const MOST_ENTRIES: usize = 10_000;

/// Refuses a container that gets the node of another GPU or MIG device than the share's own.
pub(super) fn check(state: &State, call: &ClaimCall) -> Result<()> {
    let file = OsStr::new("config.json");
    let bytes = HostDirectory::open(&state.bundle).and_then(|bundle| bundle.read(file, CONFIG_LIMIT));
    let config = Config::parse(&bytes.about(state.bundle.join(file).display(), "cannot be read")?)?;
    let own = own(&call.nodes, &config)?;
    for device in &config.devices {
        if let Some(number) = device.character {
            refuse(&own, number, &device.path, call)?;
        }
    }
    for mount in config.mounts.iter().filter(|mount| mount.origin == MountOrigin::Host) {
        for (path, number) in bound(&state.bundle, mount, &call.nodes) {
            refuse(&own, number, &path, call)?;
        }
    }
    Ok(())
}

/// The numbers of the share's own nodes, and the majors by which other devices are recognised.
#[derive(Default)]
struct Own {
    numbers: BTreeSet<Number>,
    /// Majors of GPUs.
    gpus: BTreeSet<u32>,
    /// Majors of the capabilities of MIG instances.
    capabilities: BTreeSet<u32>,
}

/// The numbers that the share's own nodes have on the host, or in the container if the host has no node yet.
fn own(nodes: &[OwnNode], container: &Config) -> Result<Own> {
    let mut own = Own::default();
    for node in nodes {
        let on_host = number_of(node.host.as_path());
        let in_container = || {
            let mut devices = container.devices.iter();
            devices
                .find(|device| device.path == node.container.as_path())?
                .character
        };
        let number = on_host.or_else(in_container);
        let number = number.ok_or_else(|| {
            Error::failed(&node.host, "is not a device node")
                .hint("load the driver, or write the specification anew: tranche cdi generate")
        })?;
        own.numbers.insert(number);
        if node.container.below("/dev/nvidia-caps").is_some() {
            own.capabilities.insert(number.0);
        } else {
            own.gpus.insert(number.0);
        }
    }
    Ok(own)
}

impl Own {
    fn is_of_another(&self, number: Number) -> bool {
        let (major, minor) = number;
        let is_a_devices = (self.gpus.contains(&major) && minor < GPU_MINORS) || self.capabilities.contains(&major);
        is_a_devices && !self.numbers.contains(&number)
    }
}

fn refuse(own: &Own, number: Number, path: &Path, call: &ClaimCall) -> Result<()> {
    if !own.is_of_another(number) {
        return Ok(());
    }
    let (major, minor) = number;
    Err(Error::failed(
        format!("{} {}", call.label, path.display()),
        format!(
            "is another device ({major}:{minor}), and a container with an MPS share can have no other, since a process sees \
             one MPS daemon"
        ),
    )
    .hint("give each device a container of its own"))
}

/// The number of a character device; `None` for anything else.
fn number_of(path: &Path) -> Option<Number> {
    let status = std::fs::metadata(path).ok()?;
    let is_device = FileType::from_raw_mode(status.st_mode()) == FileType::CharacterDevice;
    is_device.then(|| (major(status.st_rdev()), minor(status.st_rdev())))
}

/// The device nodes that a bind mount brings, with their paths in the container.
///
/// Of a directory, its own nodes and those of the directories in which the share's nodes are on the host, if these are
/// below it and mounted with it. A search of everything below it would take too long.
fn bound(bundle: &Path, mount: &RuntimeMount, own: &[OwnNode]) -> Vec<(PathBuf, Number)> {
    let Some(source) = &mount.source else {
        return Vec::new();
    };
    // A relative source is relative to the bundle (config.md, "Mounts").
    let source = bundle.join(source);
    if let Some(number) = number_of(&source) {
        return vec![(mount.at.clone(), number)];
    }
    let Ok(source) = std::fs::canonicalize(&source) else {
        return Vec::new();
    };
    let mut directories: BTreeSet<PathBuf> = [source.clone(), source.join("nvidia-caps")].into();
    let homes = own
        .iter()
        .filter_map(|node| std::fs::canonicalize(node.host.parent().as_path()).ok());
    for home in homes.filter(|home| home.starts_with(&source)) {
        let same_mount = || {
            let device = |path: &Path| std::fs::metadata(path).map(|status| status.st_dev());
            matches!((device(&home), device(&source)), (Ok(a), Ok(b)) if a == b)
        };
        if mount.recursive || same_mount() {
            directories.insert(home.join("nvidia-caps"));
            directories.insert(home);
        }
    }
    let nodes = directories.iter().flat_map(|directory| nodes_in(directory));
    let in_container = |path: PathBuf| match path.strip_prefix(&source) {
        Ok(below) => mount.at.join(below),
        Err(_) => path,
    };
    nodes.map(|(path, number)| (in_container(path), number)).collect()
}

fn nodes_in(directory: &Path) -> Vec<(PathBuf, Number)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let devices = entries.take(MOST_ENTRIES).filter(|entry| {
        use std::os::unix::fs::FileTypeExt;
        entry.file_type().is_ok_and(|kind| kind.is_char_device())
    });
    devices
        .filter_map(|entry| number_of(&entry.path()).map(|number| (entry.path(), number)))
        .collect()
}
