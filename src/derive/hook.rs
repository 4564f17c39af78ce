//! The hook of a specification: what the engine runs to make a container's root fit for the driver.
//!
//! Ours is one program that does all of it (`tranche-oci hook prepare`). A path to NVIDIA's hook gives NVIDIA's
//! separate hooks instead, so that a specification also serves a machine that has only that one.

use crate::edits::{Edits, HookEdit, Stage};
use crate::error::Error;
use crate::inventory::{Driver, DriverFile, ElfClass, FileKind, Gpu};
use crate::types::{ContainerPath, HostPath};
use std::collections::BTreeSet;
use std::str::FromStr;

use super::files;

/// An explicit environment: with none, runc gives a hook the image's own, `LD_PRELOAD` included (CVE-2025-23266). A
/// PATH that no image chooses is harmless, and is what an administrator expects to find there.
pub(super) const ENVIRONMENT: &str = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";

/// Seconds after which an engine ends the hook. It works for a few milliseconds; ten seconds is a machine that is
/// swapping, more is a hook that hangs (a dead network file system under the image, say), and a container that never
/// starts tells less than one that fails.
const TIMEOUT: u32 = 10;

/// The program that an engine runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookOptions {
    /// Where it is on the host, as the engine finds it.
    pub path: HostPath,
    /// What it leaves out.
    pub disabled: BTreeSet<HookPart>,
    /// The host's ldconfig. NVIDIA's hook runs it; ours needs none.
    pub ldconfig: Option<HostPath>,
}

impl HookOptions {
    /// The hook at `path`, with all the parts that NVIDIA's generator writes by default: all but `chmod`.
    pub fn at(path: HostPath) -> Self {
        Self {
            path,
            disabled: BTreeSet::from([HookPart::Chmod]),
            ldconfig: None,
        }
    }
}

impl Default for HookOptions {
    /// Where packages put it.
    fn default() -> Self {
        Self::at(HostPath::root().join("usr/bin/tranche-oci"))
    }
}

/// The parts of a hook's work, by the names of NVIDIA's hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HookPart {
    /// Links to libraries, and by-path links of DRI nodes.
    CreateSymlinks,
    /// The loader's cache.
    UpdateLdcache,
    /// The image's own newer libcuda, where it fits the driver.
    EnableCudaCompat,
    /// Keeping the driver's programs from making device nodes.
    DisableDeviceNodeModification,
    /// Telling OpenGL which GPUs are in the container.
    UpdateApplicationProfile,
    /// Permissions of the directories that an engine makes for device nodes. crun before 1.6 made them unreadable in
    /// rootless containers; nothing newer needs it, so it is left out unless somebody asks for it.
    Chmod,
}

impl HookPart {
    /// Every part with its name.
    pub const ALL: [(HookPart, &'static str); 6] = [
        (HookPart::CreateSymlinks, "create-symlinks"),
        (HookPart::UpdateLdcache, "update-ldcache"),
        (HookPart::EnableCudaCompat, "enable-cuda-compat"),
        (
            HookPart::DisableDeviceNodeModification,
            "disable-device-node-modification",
        ),
        (HookPart::UpdateApplicationProfile, "update-application-profile"),
        (HookPart::Chmod, "chmod"),
    ];
}

impl FromStr for HookPart {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(part, _)| *part)
            .ok_or_else(|| {
                let known: Vec<&str> = Self::ALL.iter().map(|(_, name)| *name).collect();
                Error::unknown(format!("hook \"{text}\""), &known)
            })
    }
}

/// What a hook works on.
pub(super) struct Work<'a> {
    pub(super) driver: &'a Driver,
    pub(super) files: &'a [&'a DriverFile],
    /// The GPUs whose DRI nodes a container may hold.
    pub(super) gpus: &'a [&'a Gpu],
    /// Whether the container looks after the host, and so may make device nodes.
    pub(super) management: bool,
}

/// Adds the hooks that do `work`.
pub(super) fn add(edits: &mut Edits, hook: &HookOptions, work: &Work<'_>) {
    match hook.path.file_name() {
        "nvidia-cdi-hook" => nvidia(edits, hook, work, &["nvidia-cdi-hook"]),
        "nvidia-ctk" => nvidia(edits, hook, work, &["nvidia-ctk", "hook"]),
        _ => prepare(edits, hook, work),
    }
}

fn prepare(edits: &mut Edits, hook: &HookOptions, work: &Work<'_>) {
    let wants = |part| !hook.disabled.contains(&part);
    let mut args = words(&["tranche-oci", "hook", "prepare"]);
    let bare = args.len();
    if wants(HookPart::CreateSymlinks) {
        for (target, path) in links(work.files) {
            args.extend(["--link".into(), format!("{target}::{path}")]);
        }
        // CDI cannot merge the hooks of two devices: the hook gets the links of all DRI nodes once and makes those of
        // the nodes that the container has.
        for (name, node) in by_path(work.gpus) {
            args.extend(["--by-path".into(), format!("{name}::{node}")]);
        }
    }
    if wants(HookPart::UpdateLdcache) {
        for dir in files::library_dirs(work.files) {
            args.extend(["--ldcache-dir".into(), dir.to_string()]);
        }
        // What the loader's cache needs to know of each library, so that the hook need not open them all at each start.
        for library in libraries(work.files) {
            args.extend(["--library".into(), library]);
        }
    }
    if wants(HookPart::EnableCudaCompat) && has_libraries(work) {
        args.extend(["--driver-version".into(), work.driver.version.to_string()]);
    }
    // What looks after a host may make its nodes and sees every GPU, so these two are not for it. They are no work of their
    // own to the hook: what a container lacks decides whether there is any.
    if args.len() > bare {
        for (part, name) in [
            (
                HookPart::DisableDeviceNodeModification,
                "disable-device-node-modification",
            ),
            (HookPart::UpdateApplicationProfile, "update-application-profile"),
        ] {
            if work.management || !wants(part) {
                args.extend(["--skip".into(), name.into()]);
            }
        }
        edits.hooks.push(our_edit(hook, args));
    }
}

/// The hooks of NVIDIA's toolkit, each with the arguments that it takes (nvidia-cdi-hook 1.18 to 1.20).
fn nvidia(edits: &mut Edits, hook: &HookOptions, work: &Work<'_>, program: &[&str]) {
    let mut push = |part: HookPart, name: &str, arguments: Vec<String>| {
        if hook.disabled.contains(&part) {
            return;
        }
        let mut args = words(program);
        args.push(name.to_owned());
        args.extend(arguments);
        edits.hooks.push(nvidia_edit(hook, args));
    };
    let named: Vec<String> = links(work.files)
        .into_iter()
        .flat_map(|(target, path)| ["--link".to_owned(), format!("{target}::{path}")])
        .collect();
    if !named.is_empty() {
        push(HookPart::CreateSymlinks, "create-symlinks", named);
    }
    if has_libraries(work) {
        let version = format!("--host-driver-version={}", work.driver.version);
        push(HookPart::EnableCudaCompat, "enable-cuda-compat", vec![version]);
        let mut folders: Vec<String> = files::library_dirs(work.files)
            .into_iter()
            .flat_map(|dir| ["--folder".to_owned(), dir.to_string()])
            .collect();
        if let Some(ldconfig) = &hook.ldconfig {
            folders.extend(["--ldconfig-path".to_owned(), ldconfig.to_string()]);
        }
        push(HookPart::UpdateLdcache, "update-ldcache", folders);
    }
    if !work.management {
        push(
            HookPart::DisableDeviceNodeModification,
            "disable-device-node-modification",
            Vec::new(),
        );
        push(
            HookPart::UpdateApplicationProfile,
            "update-application-profile",
            Vec::new(),
        );
    }
}

/// NVIDIA's hook that makes the by-path links of one GPU's DRI nodes: a hook of the device, since it makes every link
/// that it is told of and does not look which nodes a container has. Ours is told of all once, see [`prepare`].
pub(super) fn by_path_of_device(hook: &HookOptions, gpu: &Gpu) -> Option<HookEdit> {
    let program: &[&str] = match hook.path.file_name() {
        "nvidia-cdi-hook" => &["nvidia-cdi-hook"],
        "nvidia-ctk" => &["nvidia-ctk", "hook"],
        _ => return None,
    };
    let links: Vec<String> = by_path(&[gpu])
        .into_iter()
        .filter_map(|(name, node)| Some((name, node.strip_prefix("/dev/dri/")?.to_owned())))
        .flat_map(|(name, node)| ["--link".to_owned(), format!("../{node}::/dev/dri/by-path/{name}")])
        .collect();
    if links.is_empty() || hook.disabled.contains(&HookPart::CreateSymlinks) {
        return None;
    }
    let mut args = words(program);
    args.push("create-symlinks".to_owned());
    args.extend(links);
    Some(nvidia_edit(hook, args))
}

/// The hook that opens the directories of `nodes` below `/dev` to every user of the container; `None` where it was not
/// asked for, or where there is no such directory. It is the verb of NVIDIA's hook, which ours has as well.
pub(super) fn chmod<'a>(hook: &HookOptions, nodes: impl Iterator<Item = &'a ContainerPath>) -> Option<HookEdit> {
    const DIRECTORIES: [&str; 2] = ["/dev/dri", "/dev/nvidia-caps"];
    if hook.disabled.contains(&HookPart::Chmod) {
        return None;
    }
    let parents: BTreeSet<String> = nodes.map(|node| node.parent().to_string()).collect();
    let parents: Vec<&String> = parents
        .iter()
        .filter(|dir| DIRECTORIES.contains(&dir.as_str()))
        .collect();
    if parents.is_empty() {
        return None;
    }
    let named = parents.into_iter().flat_map(|dir| ["--path".to_owned(), dir.clone()]);
    let arguments: Vec<String> = words(&["chmod", "--mode", "755"]).into_iter().chain(named).collect();
    let with = |program: &[&str]| [words(program), arguments.clone()].concat();
    Some(match hook.path.file_name() {
        "nvidia-cdi-hook" => nvidia_edit(hook, with(&["nvidia-cdi-hook"])),
        "nvidia-ctk" => nvidia_edit(hook, with(&["nvidia-ctk", "hook"])),
        _ => our_edit(hook, with(&["tranche-oci", "hook"])),
    })
}

fn our_edit(hook: &HookOptions, args: Vec<String>) -> HookEdit {
    HookEdit {
        stage: Stage::CreateContainer,
        path: hook.path.clone(),
        args,
        env: vec![ENVIRONMENT.into()],
        timeout: Some(TIMEOUT),
    }
}

fn nvidia_edit(hook: &HookOptions, args: Vec<String>) -> HookEdit {
    HookEdit {
        stage: Stage::CreateContainer,
        path: hook.path.clone(),
        args,
        env: vec!["NVIDIA_CTK_DEBUG=false".into()],
        timeout: None,
    }
}

fn has_libraries(work: &Work<'_>) -> bool {
    !files::library_dirs(work.files).is_empty()
}

/// Target and place of each link, in order of place. The mark between the two in an argument is `::`; no library has
/// it in its name, and one that had could be read two ways.
fn links(files: &[&DriverFile]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = files
        .iter()
        .flat_map(|f| &f.links)
        .map(|l| (l.target.clone(), l.path.to_string()))
        .filter(|(target, path)| !target.contains("::") && !path.contains("::"))
        .collect();
    found.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
    found.dedup_by(|a, b| a.1 == b.1);
    found
}

/// `64::/usr/lib64/libcuda.so.580.95.05::libcuda.so.1` for each library that belongs into the loader's cache: its word
/// size, its path in the container, and its SONAME if it has one. One with the mark `::` in it is left out, and the hook
/// then looks into the file.
fn libraries(files: &[&DriverFile]) -> BTreeSet<String> {
    let argument = |file: &DriverFile| {
        let FileKind::Library { soname, class } = &file.kind else {
            return None;
        };
        let bits = match class {
            ElfClass::Elf32 => "32",
            ElfClass::Elf64 => "64",
        };
        let parts: Vec<&str> = [bits, file.container.as_str()]
            .into_iter()
            .chain(soname.as_deref())
            .collect();
        let plain = parts.iter().all(|part| !part.contains("::") && !part.is_empty());
        plain.then(|| parts.join("::"))
    };
    files
        .iter()
        .filter(|file| files::is_for_loader(file))
        .filter_map(|file| argument(file))
        .collect()
}

fn by_path(gpus: &[&Gpu]) -> BTreeSet<(String, String)> {
    gpus.iter()
        .flat_map(|gpu| &gpu.dri)
        .filter_map(|dri| Some((dri.by_path.clone()?, dri.node.container.to_string())))
        .collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}
