//! What a refresh depends on, in the state that it saw. A later one compares, and knows without asking the driver
//! whether anything has changed.
//!
//! `host.json` has sources of its own, for the runtime, which looks at them at every start of a container. These here
//! are more: everything that can change a specification.

use super::options::{RefreshOptions, RefreshPlace, absolute};
use crate::nvidia_config;
use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tranche_core::error::Result;
use tranche_core::ledger::OutOfService;
use tranche_host::Roots;
use tranche_plan::cdi::directory::entries;
use tranche_plan::inventory::Inventory;
use tranche_state::claim_spec::has_name_of_claim;

/// The most bytes of a file of the kernel that are compared.
const MOST_TEXT: u64 = 64 << 10;

/// Something that a refresh depends on, and its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sign {
    kind: SignKind,
    path: PathBuf,
    /// `None` if it does not exist, or cannot be read.
    state: Option<String>,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SignKind {
    /// A file or a directory: its inode, its size and the time of its last change. That of a directory changes when an
    /// entry comes or goes.
    File,
    /// A file of the kernel: its text.
    Text,
    /// A directory of the kernel: the names in it.
    Names,
    /// A directory of device nodes: those of the driver, with their numbers and modes.
    Nodes,
    /// A directory of specifications: those that are neither of a refresh nor of a claim.
    Specifications,
}

impl Sign {
    fn now(kind: SignKind, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let state = kind.state(&path);
        Self { kind, path, state }
    }

    /// What has changed, as a clause; `None` if nothing has.
    pub(super) fn change(&self) -> Option<String> {
        let now = self.kind.state(&self.path);
        if now == self.state {
            return None;
        }
        let path = self.path.display();
        Some(match (self.kind, &self.state, now) {
            (SignKind::Names, ..) => format!("the GPUs have changed ({path})"),
            (SignKind::Nodes, ..) => format!("the driver's nodes in {path} have changed"),
            (SignKind::Specifications, ..) => format!("specifications of other programs in {path} have changed"),
            (_, None, _) => format!("{path} is new"),
            (_, _, None) => format!("{path} is gone"),
            _ => format!("{path} has changed"),
        })
    }
}

impl Sign {
    /// The directories in which the kernel reports a change of it, each with whether the end of a write to a file in it
    /// is one. None for what is in `/proc` and `/sys`. Writes to devices are no changes.
    pub(super) fn directories(&self) -> Vec<(PathBuf, bool)> {
        match self.kind {
            SignKind::Text | SignKind::Names => Vec::new(),
            SignKind::Nodes => vec![(self.path.clone(), false)],
            SignKind::Specifications => vec![(self.path.clone(), true)],
            SignKind::File if self.path.is_dir() => vec![(self.path.clone(), false)],
            SignKind::File => {
                let parent = self.path.parent().map(Path::to_owned);
                let is_node = |dir: &PathBuf| dir.ends_with("dev");
                parent.into_iter().map(|dir| (dir.clone(), !is_node(&dir))).collect()
            }
        }
    }
}

/// What the refresh with `options` depends on, but for the driver's files. It is taken before the host is examined:
/// what changes meanwhile is found by the next comparison.
///
/// # Errors
/// Returns an error if a root of the host is not a directory.
pub(super) fn now(options: &RefreshOptions, place: &RefreshPlace, spec_dirs: &[PathBuf]) -> Result<Vec<Sign>> {
    let config = options.nvidia_config.clone();
    let config = config.unwrap_or_else(|| nvidia_config::DEFAULT_FILE.into());
    let mut files = vec![absolute(&config)?];
    for file in options.at.policy.candidates() {
        files.push(absolute(&file)?);
    }
    files.push(OutOfService::drained_file(&place.state_dir));
    let mut signs = Vec::new();
    match &options.at.host.inventory {
        Some(file) => files.extend(Some(file.into()).filter(|file: &PathBuf| file.exists())),
        None => {
            let roots = Roots::new(&options.at.host.roots)?;
            signs.extend(of_driver(&roots));
            files.extend([roots.mig_nodes(), roots.drm_nodes()]);
        }
    }
    if options.at.host.is_here() || options.engines.are_given() {
        files.extend(options.engines.candidates());
    }
    signs.extend(files.into_iter().map(|file| Sign::now(SignKind::File, file)));
    let mut dirs = spec_dirs.to_vec();
    dirs.push(place.output_dir.clone());
    dirs.dedup();
    signs.extend(dirs.into_iter().map(|dir| Sign::now(SignKind::Specifications, dir)));
    Ok(signs)
}

/// The files of the driver in `inventory`, now, and the directories in which others may appear. A saved inventory has
/// none on this machine.
///
/// # Errors
/// Returns an error if a root of the host is not a directory.
pub(super) fn of_files(options: &RefreshOptions, inventory: &Inventory) -> Result<Vec<Sign>> {
    let Some(driver) = inventory
        .driver
        .as_ref()
        .filter(|_| options.at.host.inventory.is_none())
    else {
        return Ok(Vec::new());
    };
    let roots = Roots::new(&options.at.host.roots)?;
    let files: BTreeSet<PathBuf> = driver.files.iter().map(|file| roots.open(&file.host)).collect();
    let mut directories: BTreeSet<PathBuf> = files
        .iter()
        .filter_map(|file| file.parent())
        .map(Path::to_owned)
        .collect();
    directories.extend(roots.daemon_directories());
    let all = files.into_iter().chain(directories);
    Ok(all.map(|file| Sign::now(SignKind::File, file)).collect())
}

fn of_driver(roots: &Roots) -> [Sign; 4] {
    [
        Sign::now(SignKind::Text, roots.module_version()),
        Sign::now(SignKind::Text, roots.device_numbers()),
        Sign::now(SignKind::Names, roots.gpu_list()),
        Sign::now(SignKind::Nodes, roots.nodes()),
    ]
}

impl SignKind {
    fn state(self, path: &Path) -> Option<String> {
        match self {
            Self::File => path.metadata().ok().map(|data| shown(&data)),
            Self::Text => text(path),
            Self::Names => list(path, |name, _| Some(name.to_owned())),
            Self::Nodes => list(path, |name, path| {
                let data = path.symlink_metadata().ok().filter(|_| name.starts_with("nvidia"))?;
                let is_node = data.file_type().is_char_device();
                is_node.then(|| format!("{name} {}:{} {:o}", major(data.rdev()), minor(data.rdev()), data.mode()))
            }),
            // A directory that does not exist has as many as an empty one.
            Self::Specifications => list(path, |name, path| {
                let is_read = name.ends_with(".yaml") || name.ends_with(".json");
                let is_own = name.starts_with("tranche") || has_name_of_claim(path);
                let data = path.metadata().ok().filter(|_| is_read && !is_own)?;
                Some(format!("{name} {}", shown(&data)))
            })
            .or_else(|| Some(String::new())),
        }
    }
}

/// What differs after every change of a file.
fn shown(data: &Metadata) -> String {
    format!("{} {} {}.{}", data.ino(), data.size(), data.ctime(), data.ctime_nsec())
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MOST_TEXT).read_to_string(&mut text).ok()?;
    Some(text)
}

/// What `of` says of each entry of a directory, in the order of their names.
fn list(dir: &Path, of: impl Fn(&str, &Path) -> Option<String>) -> Option<String> {
    fs::symlink_metadata(dir).ok()?;
    let paths = entries(dir).filter_map(|path| path.ok());
    let lines = paths.filter_map(|path| of(&path.file_name()?.to_string_lossy(), &path));
    Some(lines.collect::<Vec<_>>().join("\n"))
}
