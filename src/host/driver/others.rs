//! The driver's files that are not libraries: programs, configuration, firmware, sockets.

use super::icd::{self, NamedLibrary};
use super::lists;
use super::locate::{SearchDir, locate};
use super::prefix::Prefix;
use crate::scan::Scan;
use crate::tree::{Tree, TreePath, is_absence};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use tranche_core::types::{ContainerPath, DriverVersion, HostPath, PROGRAM_DIRS};
use tranche_plan::inventory::{DriverCapability, DriverFile, FileKind, PlatformKind};

fn file(path: &TreePath<'_>, container: &str, kind: FileKind, capability: DriverCapability) -> Option<DriverFile> {
    Some(DriverFile {
        host: path.host(),
        // A path of a tree is UTF-8 and absolute.
        container: ContainerPath::new(container).ok()?,
        kind,
        capability,
        links: Vec::new(),
    })
}

fn hosts<'d>(dirs: impl IntoIterator<Item = &'d SearchDir<'d>>) -> impl Iterator<Item = &'d HostPath> {
    dirs.into_iter().map(|dir| &dir.host)
}

/// Whether programs and configuration may be taken from a directory that the caller's environment names. They are
/// mounted into containers, where root runs or reads them, so only root and the caller may be able to change the
/// directory or one of its parents.
fn is_trusted(tree: &Tree, dir: &str) -> bool {
    let caller = nix::unistd::geteuid().as_raw();
    let is_closed = |dir: &Path| {
        let data = dir.to_str().map(|dir| tree.lstat(dir));
        matches!(data, Some(Ok(data)) if data.is_dir() && [0, caller].contains(&data.uid()) && data.mode() & 0o022 == 0)
    };
    tree.resolve(dir)
        .is_ok_and(|dir| Path::new(dir.as_str()).ancestors().all(is_closed))
}

/// The directories `known`, and those of `more` that are trusted.
fn search_dirs<'t>(tree: &'t Tree, known: &[&str], more: &[HostPath]) -> Vec<SearchDir<'t>> {
    let more = more.iter().map(HostPath::as_str).filter(|dir| is_trusted(tree, dir));
    let all = known.iter().copied().chain(more);
    all.map(|dir| SearchDir::new(tree, dir)).collect()
}

/// The directories `known`, those that are `beside` the libraries, and those of `more` that are trusted.
fn search_dirs_beside<'t>(
    tree: &'t Tree,
    known: &[&str],
    beside: impl Iterator<Item = SearchDir<'t>>,
    more: &[HostPath],
) -> Vec<SearchDir<'t>> {
    let mut dirs = search_dirs(tree, known, &[]);
    let mut all: Vec<SearchDir<'t>> = beside.chain(search_dirs(tree, &[], more)).collect();
    all.retain(|dir| !dirs.iter().any(|known| known.host == dir.host));
    dirs.append(&mut all);
    dirs
}

/// The directories that a person named.
fn given<'t>(scan: &Scan<'t>, paths: &[HostPath]) -> Vec<SearchDir<'t>> {
    let dir = |host: &HostPath| SearchDir {
        host: host.clone(),
        path: scan.roots.of_host(host).ok(),
    };
    paths.iter().map(dir).collect()
}

/// Takes the first file of each name in `list` for which `accept` returns its path in a container. `accept` gets the
/// directory, the name, and the file with its links followed.
fn take<'t>(
    scan: &Scan<'_>,
    dirs: &[SearchDir<'t>],
    list: &[(&str, DriverCapability)],
    kind: &FileKind,
    accept: impl Fn(&SearchDir<'t>, &str, &TreePath<'t>) -> Option<String>,
) -> Vec<DriverFile> {
    let mut files = Vec::new();
    for (name, capability) in list {
        let found = locate(dirs, name, |dir, path| {
            let path = path.ok()?;
            accept(dir, name, &path).map(|container| (path, container))
        });
        match found {
            Some((path, container)) => files.extend(file(&path, &container, kind.clone(), *capability)),
            None => scan.findings.absent(name, hosts(dirs)),
        }
    }
    files
}

pub(super) fn binaries(scan: &Scan<'_>, prefixes: &[Prefix<'_>]) -> Vec<DriverFile> {
    let (tree, options) = (&scan.roots.driver, scan.options);
    let dirs = match options.program_search_paths.as_slice() {
        [] => {
            let known = [&PROGRAM_DIRS[..], lists::BINARY_DIRS_MOVED].concat();
            let beside = prefixes.iter().map(|prefix| prefix.below("bin"));
            // The caller's `PATH` comes last, so that the result does not depend on the caller if the programs are
            // where packages install them.
            search_dirs_beside(tree, &known, beside, &options.more_program_dirs)
        }
        paths => given(scan, paths),
    };
    let kept: Vec<HostPath> = options
        .more_program_dirs
        .iter()
        .map(|dir| tree.host(dir.as_str()))
        .collect();
    let files = take(scan, &dirs, lists::BINARIES, &FileKind::Binary, |dir, name, path| {
        let data = path.metadata().ok()?;
        let is_program = data.is_file() && data.permissions().mode() & 0o111 != 0;
        let in_tree = dir.path.as_ref()?.as_str();
        // A container searches only its own directories.
        let in_container = match PROGRAM_DIRS.contains(&in_tree) || kept.contains(&dir.host) {
            true => in_tree,
            false => "/usr/bin",
        };
        is_program.then(|| format!("{in_container}/{name}"))
    });
    if scan.platform.kind == PlatformKind::Linux && !files.iter().any(|f| f.container.file_name() == lists::SMI) {
        let text = "was not found, so containers have none; install it, or name its directory with \
                    --program-search-path";
        scan.findings.warn(lists::SMI, text);
    }
    files
}

/// The configuration files, and the libraries that they name.
pub(super) fn configs(scan: &Scan<'_>, prefixes: &[Prefix<'_>]) -> (Vec<DriverFile>, Vec<NamedLibrary>) {
    let (tree, options) = (&scan.roots.driver, scan.options);
    let roots: Vec<HostPath> = prefixes.iter().map(|prefix| prefix.host.clone()).collect();
    let all = match options.config_search_paths.as_slice() {
        [] => {
            let places = ["share", "etc", ""];
            let beside = prefixes
                .iter()
                .flat_map(|prefix| places.map(|place| prefix.below(place)));
            let mut known = lists::CONFIG_DIRS.to_vec();
            if options.compat32 {
                known.extend(lists::CONFIG_DIRS_32);
            }
            search_dirs_beside(tree, &known, beside, &options.more_config_dirs)
        }
        paths => given(scan, paths),
    };
    let is_root =
        |dir: &&SearchDir<'_>| roots.contains(&dir.host) || dir.path.as_ref().is_some_and(|path| path.as_str() == "/");
    let (mut files, mut named) = (Vec::new(), Vec::new());
    let is_wanted = |capability| options.compat32 || capability != DriverCapability::Compat32;
    for (name, target, capability) in lists::CONFIGS
        .iter()
        .filter(|(_, _, capability)| is_wanted(*capability))
    {
        // Only Vulkan's files may be directly below a root.
        let dirs = all.iter().filter(|dir| name.starts_with("vulkan/") || !is_root(dir));
        match locate(dirs.clone(), name, |dir, path| config(scan, dir, name, path)) {
            Some(path) => {
                let container = format!("{target}/{name}");
                named.extend(icd::libraries(name, &path));
                files.extend(file(&path, &container, FileKind::Config, *capability));
            }
            None => scan.findings.absent(name, hosts(dirs)),
        }
    }
    (files, named)
}

/// Takes a regular file. Warns about anything else, and about a link that leads nowhere.
fn config<'t>(
    scan: &Scan<'_>,
    dir: &SearchDir<'t>,
    name: &str,
    path: io::Result<TreePath<'t>>,
) -> Option<TreePath<'t>> {
    let why = match path {
        Ok(path) if path.is_file() => return Some(path),
        Ok(_) => "is not a regular file and is left out".to_owned(),
        Err(e) if !is_absence(&e) => format!("cannot be read and is left out: {e}"),
        Err(_) if dir.path.as_ref().is_some_and(|dir| dir.has(name)) => {
            "is a link that leads nowhere and is left out".to_owned()
        }
        Err(_) => return None,
    };
    scan.findings.warn(dir.host.join(name), why);
    None
}

/// The firmware of the GPU's system processor, from every directory that the kernel searches. A container that loads it
/// must find it where the host's kernel does. NVIDIA's generator does the same.
pub(super) fn firmware(scan: &Scan<'_>, version: &DriverVersion) -> Vec<DriverFile> {
    let tree = &scan.roots.driver;
    let kernel = &scan.platform.kernel;
    let own = scan.roots.sys.text("/module/firmware_class/parameters/path");
    let own = own.unwrap_or_default();
    let own = Some(own.trim()).filter(|dir| dir.starts_with('/'));
    let known = lists::FIRMWARE_DIRS
        .iter()
        // Without the kernel's version, the path would name the parent of all versions.
        .filter(|d| !d.contains("{kernel}") || !kernel.is_empty())
        .map(|d| d.replace("{kernel}", kernel));
    let dirs = own.map(str::to_owned).into_iter().chain(known);
    let dirs: Vec<String> = dirs.map(|dir| format!("{dir}/nvidia/{version}")).collect();
    let mut files = Vec::new();
    for dir in &dirs {
        for entry in tree.list(dir).unwrap_or_default() {
            if !(entry.name.starts_with("gsp") && entry.name.ends_with(".bin")) {
                continue;
            }
            let named = format!("{dir}/{}", entry.name);
            let path = tree.resolve(&named).ok().filter(TreePath::is_file);
            files.extend(path.and_then(|p| file(&p, &named, FileKind::Firmware, DriverCapability::Utility)));
        }
    }
    if files.is_empty() {
        scan.findings.absent("gsp*.bin", dirs.iter().map(|dir| tree.host(dir)));
    }
    files
}

pub(super) fn sockets(scan: &Scan<'_>) -> Vec<DriverFile> {
    let tree = &scan.roots.driver;
    let dirs = search_dirs(tree, lists::SOCKET_DIRS, &[]);
    take(scan, &dirs, lists::SOCKETS, &FileKind::Socket, |dir, name, path| {
        let is_socket = path.metadata().is_ok_and(|d| d.file_type().is_socket());
        // Programs connect to the socket by this path, whichever links are in it.
        let named = dir.host.join(name);
        let container = named.below(tree.host("/").as_str()).unwrap_or(path.as_str());
        is_socket.then(|| container.to_owned())
    })
}
