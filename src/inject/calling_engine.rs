//! Which engine calls, and whether an image can write annotations with it.
//!
//! The engine is recognised from the command line of the runtime, which no image can write. Annotations are looked at
//! only to recognise an engine with which images, or authors of pods, can write them: they never make an answer laxer.
//!
//! | engine | command line |
//! |---|---|
//! | docker | bundle `…/io.containerd.runtime.v2.task/moby/ID`, or `--root …/runtime-NAME/NAMESPACE` |
//! | containerd's CRI | bundle `…/io.containerd.runtime.v2.task/k8s.io/ID` |
//! | ctr | bundle `…/io.containerd.runtime.v2.task/default/ID` |
//! | podman, CRI-O | bundle `…/DRIVER-containers/ID/userdata` |
//!
//! Sources: containerd core/runtime/v2 (bundle.go, and the shim of runc, which adds the namespace to `--root`), moby
//! daemon/runtime_unix.go, containers/storage (containers.go), and tests/configs for what the engines wrote.

use std::path::Path;

use tranche_core::types::EngineVersion;
use tranche_plan::engines::Engine;

/// What calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallingEngine {
    /// An engine; containerd by its CRI plugin, for the kubelet and crictl.
    Known(Engine),
    /// ctr, a client of containerd.
    Ctr,
    /// nerdctl, a client of containerd.
    Nerdctl,
    /// Any other program, or a person.
    #[default]
    Unknown,
}

/// The first podman that does not copy annotations of an image into a container's configuration (podman 0f18a0144a).
const PODMAN_WITHOUT_IMAGES: [u32; 3] = [4, 5, 1];

/// Where containerd keeps bundles, below its state directory: `NAMESPACE/ID`.
const CONTAINERD_TASKS: &str = "io.containerd.runtime.v2.task";

/// Which nerdctl writes for each of its containers (`nerdctl/name` and others).
const NERDCTL: &str = "nerdctl/";

/// Which CRI-O writes for each container.
const CRIO: &str = "io.kubernetes.cri-o.ContainerID";

impl CallingEngine {
    /// The engine that creates the container `id` with this `--root` and `--bundle`, as far as these show it: that is
    /// podman for CRI-O, and another client of containerd for nerdctl.
    pub fn of(root: Option<&Path>, bundle: &Path, id: &str) -> Self {
        let name = |path: Option<&Path>| path?.file_name()?.to_str().map(str::to_owned);
        let parent = bundle.parent();
        let above = parent.and_then(Path::parent);
        if name(Some(bundle)).as_deref() == Some("userdata")
            && name(parent).as_deref() == Some(id)
            && name(above).is_some_and(|name| name.ends_with("-containers"))
        {
            return Self::Known(Engine::Podman);
        }
        let is_task = name(Some(bundle)).as_deref() == Some(id) && name(above).as_deref() == Some(CONTAINERD_TASKS);
        let namespace = name(parent).filter(|_| is_task);
        // The shim calls with a directory of the same namespace. A hook does not know that directory.
        let is_agreed = root.is_none_or(|root| name(Some(root)) == namespace);
        let is_of_docker = name(root.and_then(Path::parent)).is_some_and(|name| name.starts_with("runtime-"));
        match namespace.as_deref().filter(|_| is_agreed) {
            None => Self::Unknown,
            Some("moby") => Self::Known(Engine::Docker),
            Some(_) if is_of_docker => Self::Known(Engine::Docker),
            Some("k8s.io") => Self::Known(Engine::Containerd),
            Some("default") => Self::Ctr,
            Some(_) => Self::Unknown,
        }
    }

    /// The engine, if the container's configuration has annotations with these keys.
    pub(super) fn with_annotations<'k>(self, mut keys: impl Iterator<Item = &'k str>) -> Self {
        keys.find_map(|key| match key {
            CRIO => Some(Self::Known(Engine::Crio)),
            key if key.contains(NERDCTL) => Some(Self::Nerdctl),
            _ => None,
        })
        .unwrap_or(self)
    }

    /// Why annotations may be the word of somebody whom the owner of the machine does not trust, as a clause; `None` if
    /// no image can write one. `podman` is the oldest podman that is installed.
    pub fn doubt(self, podman: Option<&EngineVersion>) -> Option<String> {
        let is_fixed = |version: &&EngineVersion| version.numbers() >= PODMAN_WITHOUT_IMAGES.as_slice();
        match (self, podman) {
            (Self::Known(Engine::Docker | Engine::Containerd) | Self::Ctr, _) => None,
            (Self::Known(Engine::Podman), Some(version)) if is_fixed(&version) => None,
            (Self::Known(Engine::Podman), Some(version)) => {
                Some(format!("podman {version} copies annotations from images"))
            }
            (Self::Known(Engine::Podman), None) => Some(
                "the version of podman is not known, and podman before 4.5.1 copies annotations from images".to_owned(),
            ),
            (Self::Nerdctl, _) => Some("nerdctl makes annotations from labels of images".to_owned()),
            (Self::Known(Engine::Crio), _) => Some("CRI-O copies annotations from every pod".to_owned()),
            (Self::Unknown, _) => {
                Some("the engine is not known, and some engines copy annotations from images".to_owned())
            }
        }
    }

    /// A way to ask with this engine that no image has, as a clause.
    pub(super) fn safe_form(self) -> &'static str {
        match self {
            Self::Known(Engine::Docker) => "--gpus or --device nvidia.com/gpu=NAME",
            Self::Known(Engine::Podman) | Self::Nerdctl => "--device nvidia.com/gpu=NAME",
            Self::Known(Engine::Containerd | Engine::Crio) => "a CDI device of a device plugin",
            Self::Ctr | Self::Unknown => "a CDI device that the engine adds",
        }
    }
}

#[cfg(test)]
mod tests;
