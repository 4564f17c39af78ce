//! The driver's files that are no libraries: programs, configuration, firmware, sockets.

use super::lists;
use crate::host::tree::{Tree, is_absence};
use crate::host::{Options, Roots};
use crate::inventory::{DriverCapability, DriverFile, FileKind, Inventory};
use crate::types::{ContainerPath, DriverVersion};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

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

pub(super) fn binaries(tree: &Tree, inventory: &mut Inventory) -> Vec<DriverFile> {
    let dirs: Vec<(String, bool)> = lists::BINARY_DIRS
        .iter()
        .map(|d| (d, false))
        .chain(lists::BINARY_DIRS_MOVED.iter().map(|d| (d, true)))
        .filter_map(|(dir, moved)| Some((tree.resolve(dir).ok()?, moved)))
        .collect();
    let mut files = Vec::new();
    for (name, capability) in lists::BINARIES {
        let hit = dirs.iter().find_map(|(dir, moved)| {
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
                let dirs: Vec<&str> = lists::BINARY_DIRS
                    .iter()
                    .chain(lists::BINARY_DIRS_MOVED)
                    .copied()
                    .collect();
                inventory.absent(name, shown(tree, &dirs));
            }
        }
    }
    files
}

pub(super) fn configs(tree: &Tree, options: &Options, inventory: &mut Inventory) -> Vec<DriverFile> {
    let given: Vec<&str> = options.config_search_paths.iter().map(|p| p.as_str()).collect();
    let dirs = if given.is_empty() { lists::CONFIG_DIRS } else { &given };
    let mut files = Vec::new();
    for (name, target, capability) in lists::CONFIGS {
        let dirs: Vec<&str> = dirs
            .iter()
            .copied()
            // Only Vulkan's lie directly below a root.
            .filter(|dir| *dir != "/" || name.starts_with("vulkan/"))
            .collect();
        match first_file(tree, &dirs, name, inventory) {
            Some(path) => {
                let container = format!("{target}/{name}");
                files.extend(file(tree, &path, &container, FileKind::Config, *capability));
            }
            None => inventory.absent(name, shown(tree, &dirs)),
        }
    }
    files
}

/// The first regular file of that name, links resolved.
fn first_file(tree: &Tree, dirs: &[&str], name: &str, inventory: &mut Inventory) -> Option<String> {
    for dir in dirs {
        let path = format!("{}/{name}", dir.trim_end_matches('/'));
        let resolved = match tree.resolve(&path) {
            Ok(resolved) => resolved,
            Err(e) if is_absence(&e) => {
                if tree.lstat(&path).is_ok() {
                    inventory.warn(tree.host(&path), "is a link that leads nowhere and is left out");
                }
                continue;
            }
            Err(e) => {
                inventory.warn(tree.host(&path), format!("cannot be read and is left out: {e}"));
                continue;
            }
        };
        if tree.lstat(&resolved).is_ok_and(|d| d.is_file()) {
            return Some(resolved);
        }
        inventory.warn(tree.host(&path), "is no regular file and is left out");
    }
    None
}

/// The firmware of the GPU's system processor, from the directory that the kernel would take.
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
    for dir in dirs {
        let dir = format!("{dir}/nvidia/{version}");
        looked_in.push(tree.host(&dir).as_str().to_owned());
        let Ok(entries) = tree.list(&dir) else { continue };
        let files: Vec<DriverFile> = entries
            .iter()
            .filter(|e| e.name.starts_with("gsp") && e.name.ends_with(".bin"))
            .filter_map(|e| {
                let named = format!("{dir}/{}", e.name);
                let path = tree.resolve(&named).ok()?;
                tree.lstat(&path).ok().filter(|d| d.is_file())?;
                file(tree, &path, &named, FileKind::Firmware, DriverCapability::Utility)
            })
            .collect();
        if !files.is_empty() {
            return files;
        }
    }
    inventory.absent("gsp*.bin", looked_in);
    Vec::new()
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
