//! A container with an MPS share may have no other GPU.
//!
//! A CUDA process talks to one MPS daemon, and the daemon shows it one device: a second device in the container would be
//! there and not be seen, or take the process out of MPS and its limits.
//!
//! Devices are compared by their numbers, because a node can have any name. What the container gets is
//! read from its config.json: device entries, and bind mounts of nodes and of directories that hold nodes.

use crate::call::{ClaimCall, OwnNode};
use crate::error::{Context, Error, Result};
use crate::oci::{Bind, CONFIG_LIMIT, Nodes, State};
use rustix::fs::{FileType, Mode, OFlags, major, minor, open};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

type Number = (u32, u32);

/// GPUs have the minors from 0; above are nodes of the driver as a whole: `nvidiactl` 255, `nvidia-modeset` 254 (NVIDIA's
/// open kernel modules, `nv-chardev-numbers.h`).
const GPU_MINORS: u32 = 248;

/// More entries of one directory are not looked at: `/dev` has some hundreds.
const MOST_ENTRIES: usize = 10_000;

/// Refuses a container that gets the node of another GPU or MIG device than the share's own.
pub(super) fn check(state: &State, call: &ClaimCall) -> Result<()> {
    let nodes = Nodes::parse(&config(&state.bundle)?)?;
    let own = own(&call.nodes, &nodes)?;
    for device in &nodes.devices {
        refuse(&own, device.number, &device.path, call)?;
    }
    for bind in &nodes.binds {
        for (path, number) in bound(&state.bundle, bind, &call.nodes) {
            refuse(&own, number, &path, call)?;
        }
    }
    Ok(())
}

fn config(bundle: &Path) -> Result<Vec<u8>> {
    let path = bundle.join("config.json");
    let mut bytes = Vec::new();
    let file = open(
        &path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    );
    let file = File::from(file.about(path.display(), "cannot be read")?);
    if !file.metadata().about(path.display(), "cannot be read")?.is_file() {
        return Err(Error::failed(path.display(), "is not a regular file"));
    }
    file.take(CONFIG_LIMIT)
        .read_to_end(&mut bytes)
        .about(path.display(), "cannot be read")?;
    Ok(bytes)
}

/// The numbers of the share's own nodes, and how other devices are told apart from what every container gets.
struct Own {
    numbers: BTreeSet<Number>,
    /// Majors under which GPUs are.
    gpus: BTreeSet<u32>,
    /// Majors under which the capabilities of MIG instances are.
    capabilities: BTreeSet<u32>,
}

/// The numbers that the share's own nodes have on the host or, where the host has no node yet, in the container.
fn own(nodes: &[OwnNode], container: &Nodes) -> Result<Own> {
    let mut own = Own {
        numbers: BTreeSet::new(),
        gpus: BTreeSet::new(),
        capabilities: BTreeSet::new(),
    };
    for node in nodes {
        let on_host = number_of(node.host.as_path());
        let in_container = || {
            container
                .devices
                .iter()
                .find(|device| device.path == node.container.as_path())
        };
        let number = on_host.or_else(|| in_container().map(|device| device.number));
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

/// The device nodes that a bind mount brings: by their paths in the container.
///
/// A directory is looked at itself. Where the directory of the share's own nodes is below it and comes along, so are that
/// and its directory of capabilities: nodes of GPUs are there, and a search of all that is bound would take too long.
fn bound(bundle: &Path, bind: &Bind, own: &[OwnNode]) -> Vec<(PathBuf, Number)> {
    // A relative source is relative to the bundle (config.md, "Mounts").
    let source = bundle.join(&bind.source);
    if let Some(number) = number_of(&source) {
        return vec![(bind.destination.clone(), number)];
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
        if bind.recursive || same_mount() {
            directories.insert(home.join("nvidia-caps"));
            directories.insert(home);
        }
    }
    let nodes = directories.iter().flat_map(|directory| nodes_in(directory));
    let in_container = |path: PathBuf| match path.strip_prefix(&source) {
        Ok(below) => bind.destination.join(below),
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
