//! The driver's files that are no libraries: programs, configuration, firmware, sockets.

use super::lists;
use crate::host::tree::{Tree, is_absence};
use crate::host::{Options, Roots};
use crate::inventory::{DriverCapability, DriverFile, FileKind, Inventory};
use crate::types::{ContainerPath, DriverVersion, HostPath};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

fn file(tree: &Tree, path: &str, container: &str, kind: FileKind, capability: DriverCapability) -> Option<DriverFile> {
    Some(DriverFile {
        host: tree.host(path),
        // A name that came through the tree is UTF-8 and absolute.
        container: ContainerPath::new(container).ok()?,
        kind,
        capability,
        links: Vec::new(),
    })
}

fn shown(tree: &Tree, dirs: &[&str]) -> Vec<String> {
    dirs.iter().map(|d| tree.host(d).as_str().to_owned()).collect()
}

/// Whether programs and configuration may be taken from a directory that the caller's environment names. What lies there is
/// mounted into containers, where root runs or reads it: nobody but root and the caller may be able to change the directory
/// or one that it is in.
fn is_trusted(tree: &Tree, dir: &str) -> bool {
    let caller = nix::unistd::geteuid().as_raw();
    let is_closed = |dir: &Path| {
        let data = dir.to_str().map(|dir| tree.lstat(dir));
        matches!(data, Some(Ok(data)) if data.is_dir() && [0, caller].contains(&data.uid()) && data.mode() & 0o022 == 0)
    };
    tree.resolve(dir)
        .is_ok_and(|dir| Path::new(&dir).ancestors().all(is_closed))
}

/// A directory that may have programs.
struct ProgramDir {
    /// In the driver's tree, links resolved.
    path: String,
    /// Whether a container gets its programs in `/usr/bin`, because it does not search this directory.
    moved: bool,
}

pub(super) fn binaries(tree: &Tree, options: &Options, inventory: &mut Inventory) -> Vec<DriverFile> {
    let more = options.more_program_dirs.iter().map(HostPath::as_str);
    let more: Vec<&str> = more.filter(|dir| is_trusted(tree, dir)).collect();
    let known = lists::BINARY_DIRS.iter().map(|dir| (*dir, false));
    let moved = lists::BINARY_DIRS_MOVED.iter().map(|dir| (*dir, true));
    let named: Vec<(&str, bool)> = known.chain(moved).chain(more.iter().map(|dir| (*dir, false))).collect();
    let dirs: Vec<ProgramDir> = named
        .iter()
        .filter_map(|(dir, moved)| {
            let (path, moved) = (tree.resolve(dir).ok()?, *moved);
            Some(ProgramDir { path, moved })
        })
        .collect();
    let mut files = Vec::new();
    for (name, capability) in lists::BINARIES {
        let hit = dirs.iter().find_map(|ProgramDir { path: dir, moved }| {
            let path = tree.resolve(&format!("{dir}/{name}")).ok()?;
            let data = tree.lstat(&path).ok()?;
            let is_program = data.is_file() && data.permissions().mode() & 0o111 != 0;
            let container = if *moved {
                format!("/usr/bin/{name}")
            } else {
                format!("{dir}/{name}")
            };
            is_program.then_some((path, container))
        });
        match hit {
            Some((path, container)) => files.extend(file(tree, &path, &container, FileKind::Binary, *capability)),
            None => {
                let dirs: Vec<&str> = named.iter().map(|(dir, _)| *dir).collect();
                inventory.absent(name, shown(tree, &dirs));
            }
        }
    }
    files
}

pub(super) fn configs(roots: &Roots, options: &Options, inventory: &mut Inventory) -> Vec<DriverFile> {
    let given: Vec<(&Tree, String)> = match options.config_search_paths.as_slice() {
        [] => {
            let tree = &roots.driver;
            let more = options.more_config_dirs.iter().map(HostPath::as_str);
            let more = more.filter(|dir| is_trusted(tree, dir));
            let known = lists::CONFIG_DIRS.iter().copied();
            known.chain(more).map(|dir| (tree, dir.to_owned())).collect()
        }
        given => given.iter().filter_map(|dir| roots.of_host(dir).ok()).collect(),
    };
    let mut files = Vec::new();
    for (name, target, capability) in lists::CONFIGS {
        // Only Vulkan's files lie directly below a root.
        let dirs = given
            .iter()
            .filter(|(_, dir)| dir != "/" || name.starts_with("vulkan/"));
        let hit = dirs
            .clone()
            .find_map(|(tree, dir)| Some((*tree, file_in(tree, dir, name, inventory)?)));
        match hit {
            Some((tree, path)) => {
                let container = format!("{target}/{name}");
                files.extend(file(tree, &path, &container, FileKind::Config, *capability));
            }
            None => {
                let searched = dirs.map(|(tree, dir)| tree.host(dir).as_str().to_owned());
                // A directory that does not exist was looked for all the same.
                let named = options.config_search_paths.iter().map(|dir| dir.as_str().to_owned());
                let looked_in: Vec<String> = if options.config_search_paths.is_empty() {
                    searched.collect()
                } else {
                    named.collect()
                };
                inventory.absent(name, looked_in);
            }
        }
    }
    files
}

/// The regular file of that name in `dir`, links resolved.
fn file_in(tree: &Tree, dir: &str, name: &str, inventory: &mut Inventory) -> Option<String> {
    let path = format!("{}/{name}", dir.trim_end_matches('/'));
    let resolved = match tree.resolve(&path) {
        Ok(resolved) => resolved,
        Err(e) if is_absence(&e) => {
            if tree.lstat(&path).is_ok() {
                inventory.warn(tree.host(&path), "is a link that leads nowhere and is left out");
            }
            return None;
        }
        Err(e) => {
            inventory.warn(tree.host(&path), format!("cannot be read and is left out: {e}"));
            return None;
        }
    };
    if tree.lstat(&resolved).is_ok_and(|d| d.is_file()) {
        return Some(resolved);
    }
    inventory.warn(tree.host(&path), "is no regular file and is left out");
    None
}

/// The firmware of the GPU's system processor, from every directory that the kernel searches: a container that loads it
/// must find it wherever the kernel of the host does. This is what NVIDIA's generator does as well.
pub(super) fn firmware(roots: &Roots, version: &DriverVersion, inventory: &mut Inventory) -> Vec<DriverFile> {
    let tree = &roots.driver;
    let kernel = inventory.platform.kernel.clone();
    let own = roots
        .sys
        .text("/module/firmware_class/parameters/path")
        .unwrap_or_default();
    let own = own.trim();
    let mut dirs: Vec<String> = lists::FIRMWARE_DIRS
        .iter()
        // Without the kernel's version a directory would stand for all of them.
        .filter(|d| !d.contains("{kernel}") || !kernel.is_empty())
        .map(|d| d.replace("{kernel}", &kernel))
        .collect();
    if own.starts_with('/') {
        dirs.insert(0, own.to_owned());
    }
    let mut looked_in = Vec::new();
    let mut files = Vec::new();
    for dir in dirs {
        let dir = format!("{dir}/nvidia/{version}");
        looked_in.push(tree.host(&dir).as_str().to_owned());
        let Ok(entries) = tree.list(&dir) else { continue };
        let found = entries
            .iter()
            .filter(|e| e.name.starts_with("gsp") && e.name.ends_with(".bin"))
            .filter_map(|e| {
                let named = format!("{dir}/{}", e.name);
                let path = tree.resolve(&named).ok()?;
                tree.lstat(&path).ok().filter(|d| d.is_file())?;
                file(tree, &path, &named, FileKind::Firmware, DriverCapability::Utility)
            });
        files.extend(found);
    }
    if files.is_empty() {
        inventory.absent("gsp*.bin", looked_in);
    }
    files
}

pub(super) fn sockets(tree: &Tree, inventory: &mut Inventory) -> Vec<DriverFile> {
    let mut files = Vec::new();
    for (name, capability) in lists::SOCKETS {
        let places = ["/run", "/var/run"].map(|dir| format!("{dir}/{name}"));
        let hit = places.iter().find_map(|place| {
            let path = tree.resolve(place).ok()?;
            let is_socket = tree.lstat(&path).is_ok_and(|d| d.file_type().is_socket());
            is_socket.then_some((path, place))
        });
        match hit {
            Some((path, place)) => files.extend(file(tree, &path, place, FileKind::Socket, *capability)),
            None => inventory.absent(name, places.iter().map(|p| tree.host(p).as_str().to_owned())),
        }
    }
    files
}
