//! The table of engines.

use CdiVersion::{V0_3, V0_4, V0_5, V0_6, V0_7, V0_8, V1_0, V1_1};
use tranche_core::types::CdiVersion;

/// What tranche knows of an engine.
#[derive(Debug)]
pub struct EngineFacts {
    /// How sentences call it.
    pub title: &'static str,
    /// The program that prints the version and checks a configuration.
    pub program: &'static str,
    /// The commands that know its containers. All agree on `container inspect`, `cp` and `exec`.
    pub clients: &'static [&'static str],
    /// Whether a user can run one without root's rights.
    pub is_rootless: bool,
    /// The configuration file that it reads first.
    pub file: &'static str,
    /// What it reads before that file. It belongs to a package.
    pub shipped: Option<&'static str>,
    /// What it reads after that file.
    pub drop_ins: DropIns,
    /// The drop-in that NVIDIA's tool writes.
    pub nvidia_drop_in: Option<&'static str>,
    /// The unit that is restarted to apply a new configuration; `None` if each container applies it.
    pub unit: Option<&'static str>,
    /// The first version in which CDI is on unless the configuration turns it off; empty if it is always on.
    pub cdi_is_on_since: &'static [u32],
    /// The newest CDI version that it reads, since which version of the engine. The newest comes first; an engine that
    /// is older than the last row reads no CDI, or a form of it from before 0.3.0.
    ///
    /// An engine reads what the CDI library in its source reads (pkg/cdi of tags.cncf.io/container-device-interface,
    /// before 0.6 github.com/container-orchestrated-devices/container-device-interface): the library refuses a
    /// specification whose cdiVersion it does not know. The source of each row is go.mod of the engine at the tag of
    /// that version, and the comment is the version of the library.
    pub cdi: &'static [(&'static [u32], CdiVersion)],
}

/// The files that an engine reads in addition to its main file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropIns {
    /// None.
    Unsupported,
    /// Those that the main file imports.
    Imported,
    /// Those in `FILE.d` whose names have this ending, ordered by name.
    Directory(&'static str),
}

/// <https://github.com/containers/podman>
pub(super) const PODMAN: EngineFacts = EngineFacts {
    title: "podman",
    program: "podman",
    clients: &["podman"],
    is_rootless: true,
    file: "/etc/containers/containers.conf",
    shipped: Some("/usr/share/containers/containers.conf"),
    drop_ins: DropIns::Directory(".conf"),
    nvidia_drop_in: None,
    unit: None,
    cdi_is_on_since: &[],
    cdi: &[
        (&[6, 0], V1_1), // 1.1.0
        (&[5, 6], V1_0), // 1.0.1
        (&[5, 2], V0_8), // 0.8.0
        (&[4, 7], V0_6), // 0.6.1
        (&[4, 3], V0_5), // 0.5.2
        (&[4, 1], V0_4), // 0.4.0
    ],
};

/// <https://github.com/moby/moby> (vendor.mod)
pub(super) const DOCKER: EngineFacts = EngineFacts {
    title: "docker",
    program: "dockerd",
    clients: &["docker"],
    is_rootless: true,
    file: "/etc/docker/daemon.json",
    shipped: None,
    drop_ins: DropIns::Unsupported,
    nvidia_drop_in: None,
    unit: Some("docker"),
    cdi_is_on_since: &[28, 2],
    cdi: &[
        (&[28, 2], V1_0), // 1.0.1
        (&[28, 0], V0_8), // 0.8.0
        (&[25, 0], V0_6), // 0.6.2
    ],
};

/// <https://github.com/containerd/containerd>
pub(super) const CONTAINERD: EngineFacts = EngineFacts {
    title: "containerd",
    program: "containerd",
    clients: &["nerdctl"],
    is_rootless: false,
    file: "/etc/containerd/config.toml",
    shipped: None,
    drop_ins: DropIns::Imported,
    nvidia_drop_in: Some("/etc/containerd/conf.d/99-nvidia.toml"),
    unit: Some("containerd"),
    cdi_is_on_since: &[2, 0],
    cdi: &[
        (&[2, 3], V1_1),     // 1.1.0
        (&[2, 1], V1_0),     // 1.0.1
        (&[1, 7, 27], V0_8), // 0.8.1
        (&[1, 7, 13], V0_6), // 0.6.2
        (&[1, 7], V0_5),     // 0.5.4
    ],
};

/// <https://github.com/cri-o/cri-o>
pub(super) const CRIO: EngineFacts = EngineFacts {
    title: "CRI-O",
    program: "crio",
    clients: &[],
    is_rootless: false,
    file: "/etc/crio/crio.conf",
    shipped: None,
    drop_ins: DropIns::Directory(""),
    nvidia_drop_in: Some("/etc/crio/crio.conf.d/99-nvidia.toml"),
    unit: Some("crio"),
    cdi_is_on_since: &[],
    cdi: &[
        (&[1, 35], V1_1), // 1.1.0
        (&[1, 34], V1_0), // 1.0.1
        (&[1, 32], V0_8), // 0.8.0
        (&[1, 30], V0_7), // 0.7.2
        (&[1, 28], V0_6), // 0.6.0
        (&[1, 26], V0_5), // 0.5.3
        (&[1, 24], V0_3), // 0.3.2
    ],
};

#[cfg(test)]
mod tests {
    use crate::engines::Engine;

    #[test]
    fn the_newest_version_is_first() {
        for engine in Engine::ALL {
            for pair in engine.facts().cdi.windows(2) {
                assert!(pair[0].0 > pair[1].0 && pair[0].1 > pair[1].1, "{engine} {pair:?}");
            }
        }
    }
}
