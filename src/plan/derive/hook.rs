//! The hooks of a specification: what the engine runs so that a container's root fits the driver.
//!
//! tranche's hook is one program that does all of it (`tranche-oci hook prepare`). A path to NVIDIA's program gives
//! NVIDIA's separate hooks instead, for a machine that has only that one.

use super::files;
use crate::edits::{Edits, HookEdit, Stage};
use crate::inventory::{Driver, DriverFile, FileKind, Gpu};
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::call::{ByPath, KnownLibrary, NvidiaCall, NvidiaHook, PrepareCall, Program};
use tranche_core::types::{ContainerPath, HostPath, Link};

/// An explicit environment: without one, runc gives a hook the environment of the image, `LD_PRELOAD` included
/// (CVE-2025-23266). A PATH that no image chooses is harmless, and is what an administrator expects to find there.
const ENVIRONMENT: &str = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";

/// Seconds after which an engine ends the hook. The hook works for a few milliseconds. On a machine that swaps it may
/// take seconds; a hook that takes longer hangs, for example on a dead network file system under the image. Then a
/// container that fails says more than one that never starts.
const TIMEOUT: u32 = 10;

/// The program that an engine runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookOptions {
    /// The program on the host, as the engine finds it.
    pub path: HostPath,
    /// The parts of the work that it leaves out.
    pub disabled: BTreeSet<NvidiaHook>,
    /// The host's ldconfig. NVIDIA's hook runs it; tranche's does not need it.
    pub ldconfig: Option<HostPath>,
}

impl HookOptions {
    /// The hook at `path`, with all the parts that NVIDIA's generator writes by default: all but `chmod`.
    pub fn at(path: HostPath) -> Self {
        Self {
            path,
            disabled: BTreeSet::from([NvidiaHook::Chmod]),
            ldconfig: None,
        }
    }

    fn program(&self) -> Program {
        Program::at(&self.path)
    }

    /// Whether the program is tranche's. NVIDIA's program does not support shares.
    pub(super) fn is_tranche(&self) -> bool {
        self.program() == Program::Tranche
    }

    /// Whether it mounts sockets. Who wants none of its work has them as mounts.
    pub(super) fn mounts_sockets(&self) -> bool {
        let parts = [
            NvidiaHook::CreateSymlinks,
            NvidiaHook::UpdateLdcache,
            NvidiaHook::EnableCudaCompat,
        ];
        self.is_tranche() && parts.iter().any(|part| self.does(*part))
    }

    fn does(&self, part: NvidiaHook) -> bool {
        !self.disabled.contains(&part)
    }

    /// One of NVIDIA's hooks, in NVIDIA's program or in tranche's; `None` if it is left out.
    fn nvidia(&self, call: &NvidiaCall) -> Option<HookEdit> {
        let program = self.program();
        let args = call.write(program);
        self.does(call.hook).then(|| match program {
            Program::Tranche => tranche(&self.path, Stage::CreateContainer, args),
            Program::NvidiaCdiHook | Program::NvidiaCtk => HookEdit {
                stage: Stage::CreateContainer,
                path: self.path.clone(),
                args,
                env: vec!["NVIDIA_CTK_DEBUG=false".into()],
                timeout: None,
            },
        })
    }
}

impl Default for HookOptions {
    /// Where packages install it.
    fn default() -> Self {
        Self::at(HostPath::root().join("usr/bin/tranche-oci"))
    }
}

/// A hook in tranche's program at `path`.
pub(super) fn tranche(path: &HostPath, stage: Stage, args: Vec<String>) -> HookEdit {
    HookEdit {
        stage,
        path: path.clone(),
        args,
        env: vec![ENVIRONMENT.into()],
        timeout: Some(TIMEOUT),
    }
}

/// What a hook works on.
pub(super) struct Work<'a> {
    pub(super) driver: &'a Driver,
    pub(super) files: &'a [&'a DriverFile],
    /// The GPUs whose DRI nodes a container may hold.
    pub(super) gpus: &'a [&'a Gpu],
    /// Whether the container manages the host, and so may make device nodes and sees every GPU.
    pub(super) management: bool,
}

/// Adds the hooks that do `work`.
pub(super) fn add(edits: &mut Edits, hook: &HookOptions, work: &Work<'_>) {
    if hook.is_tranche() {
        edits.hooks.extend(prepare(hook, work));
    } else {
        let calls = nvidia(hook, work);
        edits.hooks.extend(calls.iter().filter_map(|call| hook.nvidia(call)));
    }
}

fn prepare(hook: &HookOptions, work: &Work<'_>) -> Option<HookEdit> {
    let mut call = PrepareCall::default();
    if hook.does(NvidiaHook::CreateSymlinks) {
        call.links = links(work.files);
        // CDI cannot merge the hooks of two devices: the hook gets the links of all DRI nodes once and makes those of
        // the nodes that the container has.
        let all = by_path(work.gpus);
        call.by_path = all.filter_map(|(name, node)| ByPath::new(name, node.clone())).collect();
        call.by_path.sort();
        call.by_path.dedup();
    }
    if hook.mounts_sockets() {
        call.sockets = files::sockets(work.files);
    }
    if hook.does(NvidiaHook::UpdateLdcache) {
        call.ldcache_dirs = files::library_dirs(work.files).into_iter().collect();
        call.libraries = libraries(work.files);
    }
    if hook.does(NvidiaHook::EnableCudaCompat) && has_libraries(work) {
        call.driver_version = Some(work.driver.version.to_string());
    }
    if call == PrepareCall::default() {
        return None;
    }
    // The hook does these two wherever the container needs them: no option asks for them.
    let skipped = PrepareCall::CAN_SKIP.into_iter();
    call.skip = skipped.filter(|part| work.management || !hook.does(*part)).collect();
    Some(tranche(&hook.path, Stage::CreateContainer, call.write()))
}

/// The hooks of NVIDIA's toolkit.
fn nvidia(hook: &HookOptions, work: &Work<'_>) -> Vec<NvidiaCall> {
    let mut calls = Vec::new();
    let links = links(work.files);
    if !links.is_empty() {
        calls.push(NvidiaCall {
            links,
            ..NvidiaCall::of(NvidiaHook::CreateSymlinks)
        });
    }
    if has_libraries(work) {
        calls.push(NvidiaCall {
            driver_version: Some(work.driver.version.to_string()),
            ..NvidiaCall::of(NvidiaHook::EnableCudaCompat)
        });
        calls.push(NvidiaCall {
            folders: files::library_dirs(work.files).into_iter().collect(),
            ldconfig: hook.ldconfig.clone(),
            ..NvidiaCall::of(NvidiaHook::UpdateLdcache)
        });
    }
    if !work.management {
        calls.extend(PrepareCall::CAN_SKIP.map(NvidiaCall::of));
    }
    calls
}

/// NVIDIA's hook that makes the by-path links of one GPU's DRI nodes. It is a hook of the device, because it makes all
/// links that it is given, whichever nodes the container has. tranche's hook gets those of all devices once, see
/// [`prepare`].
pub(super) fn by_path_of_device(hook: &HookOptions, gpu: &Gpu) -> Option<HookEdit> {
    let links: BTreeSet<Link> = by_path(&[gpu])
        .filter_map(|(name, node)| {
            Some(Link {
                target: format!("../{}", node.as_str().strip_prefix("/dev/dri/")?),
                path: ContainerPath::root().join("dev/dri/by-path").join(name),
            })
        })
        .collect();
    if links.is_empty() || hook.is_tranche() {
        return None;
    }
    hook.nvidia(&NvidiaCall {
        links: links.into_iter().collect(),
        ..NvidiaCall::of(NvidiaHook::CreateSymlinks)
    })
}

/// The hook that opens the directories of `nodes` below `/dev` to every user of the container; `None` if it is left
/// out, or if there is no such directory.
pub(super) fn chmod<'a>(hook: &HookOptions, nodes: impl Iterator<Item = &'a ContainerPath>) -> Option<HookEdit> {
    const DIRECTORIES: [&str; 2] = ["/dev/dri", "/dev/nvidia-caps"];
    let parents: BTreeSet<ContainerPath> = nodes.map(ContainerPath::parent).collect();
    let is_one = |directory: &ContainerPath| DIRECTORIES.contains(&directory.as_str());
    let call = NvidiaCall {
        mode: Some(0o755),
        paths: parents.into_iter().filter(is_one).collect(),
        ..NvidiaCall::of(NvidiaHook::Chmod)
    };
    hook.nvidia(&call).filter(|_| !call.paths.is_empty())
}

fn has_libraries(work: &Work<'_>) -> bool {
    !files::library_dirs(work.files).is_empty()
}

/// The links that belong to `files`, in the order of their paths. Of two with one path the target that sorts first is
/// taken.
fn links(files: &[&DriverFile]) -> Vec<Link> {
    let mut found: BTreeMap<&ContainerPath, &Link> = BTreeMap::new();
    for link in files.iter().flat_map(|file| &file.links) {
        let first = found.entry(&link.path).or_insert(link);
        *first = (*first).min(link);
    }
    found.into_values().cloned().collect()
}

/// What the loader's cache needs to know of each library, so that the hook need not open them all at each start. A
/// library that an argument cannot carry is left out, and the hook then looks into the file.
fn libraries(files: &[&DriverFile]) -> Vec<KnownLibrary> {
    let known = |file: &&DriverFile| {
        let FileKind::Library { soname, class, .. } = &file.kind else {
            return None;
        };
        KnownLibrary::new(*class, file.container.clone(), soname.as_deref())
    };
    let for_loader = files.iter().filter(|file| files::is_for_loader(file));
    let found: BTreeSet<KnownLibrary> = for_loader.filter_map(known).collect();
    found.into_iter().collect()
}

/// The names below `/dev/dri/by-path` of the DRI nodes of `gpus`, with the nodes.
fn by_path<'a>(gpus: &[&'a Gpu]) -> impl Iterator<Item = (&'a str, &'a ContainerPath)> {
    let nodes = gpus.iter().flat_map(|gpu| &gpu.dri);
    nodes.filter_map(|dri| Some((dri.by_path.as_deref()?, &dri.node.container)))
}
