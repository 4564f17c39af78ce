//! Changes to a container, as data in one canonical order: equal edits give equal bytes, in whatever order they were
//! collected.

mod derived;

pub use derived::{Derived, DerivedDevice};

use std::collections::{BTreeMap, BTreeSet};
use tranche_core::error::Error;
use tranche_core::types::{ContainerPath, HostPath};

/// Changes to a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits {
    /// Environment, by name.
    pub env: BTreeMap<String, String>,
    /// Device nodes, by their path in the container.
    pub nodes: BTreeMap<ContainerPath, NodeEdit>,
    /// Mounts, by their path in the container.
    pub mounts: BTreeMap<ContainerPath, MountEdit>,
    /// Hooks, in the order in which they run.
    pub hooks: Vec<HookEdit>,
    /// Groups that the container's process needs besides its own.
    pub additional_gids: BTreeSet<u32>,
}

/// A device node for a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEdit {
    /// The node on the host.
    pub host: HostPath,
    /// Major and minor number, only if the host has no such node. An engine uses the numbers of a specification even
    /// after the driver was loaded again with others; without numbers it reads the node at every start.
    pub numbers: Option<(u32, u32)>,
    /// Permission bits, only if the host has no such node.
    pub mode: Option<u32>,
    /// Group of the node in the container, unless it is root's.
    pub gid: Option<u32>,
}

/// A bind mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEdit {
    /// The file or directory on the host.
    pub host: HostPath,
    /// Mount options.
    pub options: Vec<String>,
}

/// When a hook runs (OCI runtime specification, config.md, "POSIX-platform Hooks").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// In the engine's namespaces, before the root is entered.
    CreateRuntime,
    /// In the container's namespaces, before the root is entered.
    CreateContainer,
    /// In the engine's namespaces, after the container is gone.
    Poststop,
}

impl Stage {
    /// The stage's name in OCI and CDI.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::CreateRuntime => "createRuntime",
            Stage::CreateContainer => "createContainer",
            Stage::Poststop => "poststop",
        }
    }
}

/// A program that the engine runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookEdit {
    /// When it runs.
    pub stage: Stage,
    /// The program, on the host.
    pub path: HostPath,
    /// Its arguments, its own name first.
    pub args: Vec<String>,
    /// Its whole environment. Never empty: without one, runc gives a hook the environment of the image
    /// (CVE-2025-23266).
    pub env: Vec<String>,
    /// Seconds after which the engine kills it.
    pub timeout: Option<u32>,
}

impl Edits {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the edits of `other`; what both have is kept once.
    ///
    /// # Errors
    /// Returns an error if both set the same environment variable, node or mount to different values.
    pub fn merge(&mut self, other: &Edits) -> Result<(), Error> {
        add(&mut self.env, &other.env, "environment variable")?;
        add(&mut self.nodes, &other.nodes, "device node")?;
        add(&mut self.mounts, &other.mounts, "mount")?;
        for hook in &other.hooks {
            if !self.hooks.contains(hook) {
                self.hooks.push(hook.clone());
            }
        }
        self.additional_gids.extend(&other.additional_gids);
        Ok(())
    }

    /// Removes what `common` has too: an engine applies the common edits once for the whole specification.
    pub fn remove(&mut self, common: &Edits) {
        self.env.retain(|k, v| common.env.get(k) != Some(v));
        self.nodes.retain(|k, v| common.nodes.get(k) != Some(v));
        self.mounts.retain(|k, v| common.mounts.get(k) != Some(v));
        self.hooks.retain(|h| !common.hooks.contains(h));
        self.additional_gids.retain(|g| !common.additional_gids.contains(g));
    }
}

fn add<K: Ord + Clone + std::fmt::Display, V: PartialEq + Clone + std::fmt::Debug>(
    to: &mut BTreeMap<K, V>,
    from: &BTreeMap<K, V>,
    what: &str,
) -> Result<(), Error> {
    for (key, value) in from {
        match to.get(key) {
            None => {
                to.insert(key.clone(), value.clone());
            }
            Some(there) if there == value => {}
            Some(_) => {
                return Err(Error::failed(format!("{what} {key}"), "has two different values"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str) -> NodeEdit {
        NodeEdit {
            host: HostPath::new(host).unwrap(),
            numbers: None,
            mode: None,
            gid: None,
        }
    }

    #[test]
    fn merging_keeps_one_of_the_same_and_refuses_two_of_a_kind() {
        let path = ContainerPath::new("/dev/nvidia0").unwrap();
        let mut a = Edits::default();
        a.nodes.insert(path.clone(), node("/dev/nvidia0"));
        let mut same = a.clone();
        same.env.insert("A".into(), "1".into());
        a.merge(&same).unwrap();
        assert_eq!((a.nodes.len(), a.env.len()), (1, 1));
        let mut other = Edits::default();
        other.nodes.insert(path, node("/dev/nvidia1"));
        let e = a.merge(&other).unwrap_err().to_string();
        assert!(e.contains("/dev/nvidia0"), "{e}");
    }

    #[test]
    fn what_is_common_is_taken_out() {
        let mut a = Edits::default();
        a.env.insert("A".into(), "1".into());
        a.env.insert("B".into(), "1".into());
        let mut common = Edits::default();
        common.env.insert("A".into(), "1".into());
        a.remove(&common);
        assert_eq!(a.env.into_keys().collect::<Vec<_>>(), ["B"]);
    }
}
