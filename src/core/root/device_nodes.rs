//! The device nodes that a bind mount brings into a container. Devices are compared by their numbers, because a node
//! can have any name.

use rustix::fs::{FileType, major, minor};
use std::collections::BTreeSet;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Major and minor number of a character device.
pub type DeviceNumber = (u32, u32);

/// The most entries of one directory that are examined: `/dev` has some hundreds.
const MOST_ENTRIES: usize = 10_000;

/// The number of the character device at `path`, through links; `None` for anything else.
pub fn number_of(path: &Path) -> Option<DeviceNumber> {
    let status = std::fs::metadata(path).ok()?;
    let is_device = FileType::from_raw_mode(status.st_mode()) == FileType::CharacterDevice;
    is_device.then(|| (major(status.st_rdev()), minor(status.st_rdev())))
}

/// The device nodes that a bind mount of `source`, a path of the host, brings, each with its path at or below `source`.
///
/// Of a directory, its own nodes and those of `homes`, the directories in which the nodes of interest are on the host,
/// if these are below it and mounted with it. A search of everything below it would take too long.
pub fn nodes_brought<'a>(
    source: &Path,
    is_recursive: bool,
    homes: impl IntoIterator<Item = &'a Path>,
) -> Vec<(PathBuf, DeviceNumber)> {
    if let Some(number) = number_of(source) {
        return vec![(source.to_owned(), number)];
    }
    let Ok(real) = std::fs::canonicalize(source) else {
        return Vec::new();
    };
    if !real.is_dir() {
        return Vec::new();
    }
    let mut directories: BTreeSet<PathBuf> = [real.clone(), real.join("nvidia-caps")].into();
    let homes: BTreeSet<&Path> = homes.into_iter().collect();
    let homes = homes.into_iter().filter_map(|home| std::fs::canonicalize(home).ok());
    for home in homes.filter(|home| home.starts_with(&real)) {
        let same_mount = || {
            let device = |path: &Path| std::fs::metadata(path).map(|status| status.st_dev());
            matches!((device(&home), device(&real)), (Ok(a), Ok(b)) if a == b)
        };
        if is_recursive || same_mount() {
            directories.insert(home.join("nvidia-caps"));
            directories.insert(home);
        }
    }
    let found = directories.iter().flat_map(|directory| nodes_in(directory));
    // All of them are below the real directory.
    let below = |path: PathBuf| path.strip_prefix(&real).map(|below| source.join(below));
    found
        .filter_map(|(path, number)| Some((below(path).ok()?, number)))
        .collect()
}

fn nodes_in(directory: &Path) -> Vec<(PathBuf, DeviceNumber)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let devices = entries
        .take(MOST_ENTRIES)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_char_device()));
    devices
        .filter_map(|entry| number_of(&entry.path()).map(|number| (entry.path(), number)))
        .collect()
}
