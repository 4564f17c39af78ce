//! The driver's files, as mounts.

use super::Options;
use crate::edits::{Edits, MountEdit};
use crate::inventory::{Driver, DriverFile, ElfClass, FileKind};
use std::collections::BTreeSet;
use tranche_core::call::BoundPath;
use tranche_core::types::{ContainerPath, HostPath};

/// Options for files that a container only reads.
const READ_ONLY: [&str; 5] = ["ro", "nosuid", "nodev", "rbind", "rprivate"];
/// Options for sockets: without `ro`, because connecting needs write access, and with `noexec`.
const SOCKET: [&str; 5] = ["nosuid", "nodev", "rbind", "rprivate", "noexec"];

/// The files of `driver` that a container gets, by path.
pub(super) fn wanted<'a>(driver: &'a Driver, options: &Options) -> Vec<&'a DriverFile> {
    let mut files: Vec<&DriverFile> = driver
        .files
        .iter()
        .filter(|f| options.capabilities.contains(&f.capability) || (options.draws() && serves_drawing(f)))
        .filter(|f| options.sockets || f.kind != FileKind::Socket)
        .collect();
    files.sort_by(|a, b| (&a.container, &a.host).cmp(&(&b.container, &b.host)));
    files.dedup_by(|a, b| a.container == b.container);
    files
}

/// Whether both CUDA and OpenGL load this library. A file has one capability, and that of such a library is compute.
fn serves_drawing(file: &DriverFile) -> bool {
    let name = file.container.file_name();
    ["libnvidia-allocator.so.", "libnvidia-gpucomp.so."]
        .iter()
        .any(|library| name.starts_with(library))
}

/// Adds a mount for each of `files` but the sockets that tranche's hook mounts (`sockets_by_hook`).
pub(super) fn mount(edits: &mut Edits, files: &[&DriverFile], sockets_by_hook: bool) {
    for file in files {
        if sockets_by_hook && file.kind == FileKind::Socket {
            continue;
        }
        let options = if file.kind == FileKind::Socket {
            &SOCKET
        } else {
            &READ_ONLY
        };
        edits
            .mounts
            .insert(file.container.clone(), with_options(&file.host, options));
    }
}

/// The sockets among `files`.
pub(super) fn sockets(files: &[&DriverFile]) -> Vec<BoundPath> {
    let sockets = files.iter().filter(|file| file.kind == FileKind::Socket);
    let paths = sockets.map(|file| BoundPath {
        container: file.container.clone(),
        host: file.host.clone(),
    });
    paths.collect()
}

/// Adds a mount of each file at the place of each link to it, for a specification without a hook that creates links.
pub(super) fn mount_links(edits: &mut Edits, files: &[&DriverFile]) {
    for file in files {
        for link in &file.links {
            // A file of that name, or a link of an earlier file, is mounted there already.
            let mount = edits.mounts.entry(link.path.clone());
            mount.or_insert_with(|| read_only(&file.host));
        }
    }
}

/// A mount that is only read.
pub(super) fn read_only(host: &HostPath) -> MountEdit {
    with_options(host, &READ_ONLY)
}

fn with_options(host: &HostPath, options: &[&str]) -> MountEdit {
    MountEdit {
        host: host.clone(),
        options: options.iter().map(|option| (*option).to_owned()).collect(),
    }
}

/// The directories with libraries among `files`. The loader in the container has to search them.
pub(super) fn library_dirs(files: &[&DriverFile]) -> BTreeSet<ContainerPath> {
    let for_loader = files.iter().filter(|file| is_for_loader(file));
    for_loader.map(|file| file.container.parent()).collect()
}

/// Whether a loader has to find this file: a library, but not a module of an X server, which opens those by their path.
pub(super) fn is_for_loader(file: &DriverFile) -> bool {
    let name = file.container.file_name();
    matches!(file.kind, FileKind::Library { .. })
        && name.starts_with("lib")
        && name.contains(".so")
        && !file.container.as_str().split('/').any(|part| part == "xorg")
}

/// `NVIDIA_CTK_LIBCUDA_DIR`: the directories of a container that have 64-bit libraries of exactly this driver, or
/// libcuda by whichever name, for programs that load them by path, in the order in which the driver's libraries were
/// searched. The directory of VDPAU's back end is not one of them, even where the loader's cache names it: NVIDIA's
/// generator does not write it either.
pub(super) fn libcuda_dir(driver: &Driver, files: &[&DriverFile]) -> Option<String> {
    let end = format!(".so.{}", driver.version);
    let is_native = |file: &DriverFile| {
        let name = file.container.file_name();
        matches!(&file.kind, FileKind::Library { class, .. } if *class == ElfClass::Elf64)
            && (name.ends_with(&end) || name.starts_with("libcuda.so."))
            && !name.starts_with("libvdpau_")
    };
    let native = files.iter().filter(|file| is_native(file));
    let dirs: BTreeSet<ContainerPath> = native.map(|file| file.container.parent()).collect();
    // Directories of X.Org modules have files of this version too, and the search does not name them.
    let searched: Vec<&str> = driver
        .library_dirs
        .iter()
        .filter(|d| dirs.contains(&d.container))
        .map(|d| d.container.as_str())
        .collect();
    (!searched.is_empty()).then(|| searched.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::DriverCapability;

    #[test]
    fn who_draws_gets_what_drawing_loads() {
        let inventory = crate::sim::open("rtx4090").unwrap();
        let driver = inventory.driver.as_ref().unwrap();
        let graphics = Options {
            capabilities: [DriverCapability::Graphics].into(),
            ..Options::default()
        };
        let has = |options: &Options, library: &str| {
            wanted(driver, options)
                .iter()
                .any(|f| f.container.file_name().starts_with(library))
        };
        assert!(has(&graphics, "libnvidia-allocator.so.") && has(&graphics, "libnvidia-gpucomp.so."));
        assert!(!has(&graphics, "libcuda.so."));
        let utility = Options {
            capabilities: [DriverCapability::Utility].into(),
            ..Options::default()
        };
        assert!(!has(&utility, "libnvidia-allocator.so."));
    }
}
