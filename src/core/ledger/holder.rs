//! Who holds a claim.

use super::pod::PodName;
use super::resource_claim::KubernetesObject;
use crate::error::{Error, Result};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// Who holds a claim. A claim of a container or of a process ends with its processes; every other one lasts until it is
/// released or its time to live ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Holder {
    /// The user whose id the claim has: nobody uses it yet.
    #[default]
    Person,
    /// A container of an engine that runs as root.
    Container(ContainerName),
    /// A container of a user's own engine. The user chooses both parts of its name, so it is never the container of
    /// another user, or of root, that has the same name.
    Rootless {
        /// The user's id.
        user: u32,
        /// The container, as the user's engine names it.
        name: ContainerName,
    },
    /// A program that runs on the host, without a container.
    Process {
        /// The name of its file, for people.
        program: String,
        /// An id that no other run of a program has.
        id: String,
    },
    /// A pod, for which the kubelet's device manager allocated the device.
    Pod(PodName),
    /// A resource claim of Kubernetes, which several pods may use.
    ResourceClaim(KubernetesObject),
}

impl Holder {
    /// The container, if an engine that runs as root made it; `None` for any other holder. Files of its bundle are
    /// root's.
    pub fn container(&self) -> Option<&ContainerName> {
        match self {
            Holder::Container(container) => Some(container),
            Holder::Person | Holder::Rootless { .. } | Holder::Process { .. } => None,
            Holder::Pod(_) | Holder::ResourceClaim(_) => None,
        }
    }

    /// The container, of an engine of root or of a user. Files of its bundle may be another user's.
    pub fn any_container(&self) -> Option<&ContainerName> {
        match self {
            Holder::Container(name) | Holder::Rootless { name, .. } => Some(name),
            Holder::Person | Holder::Process { .. } | Holder::Pod(_) | Holder::ResourceClaim(_) => None,
        }
    }

    /// Whether both are one container, pod or resource claim. A person uses nothing, and so has nothing twice.
    pub fn is_same_user(&self, other: &Holder) -> bool {
        *self != Holder::Person && self == other
    }

    /// As a book records it: an id, and where that id is unique. A bundle is an absolute path, so the other kinds begin
    /// with a word and a colon.
    pub(super) fn fields(&self) -> Option<(&str, String)> {
        match self {
            Holder::Person => None,
            Holder::Container(container) => Some((&container.id, container.bundle.clone())),
            Holder::Rootless { user, name } => Some((&name.id, format!("{ROOTLESS}{user}:{}", name.bundle))),
            Holder::Process { program, id } => Some((id, format!("{PROCESS}{program}"))),
            Holder::Pod(pod) => Some((&pod.name, format!("{POD}{}", pod.namespace))),
            Holder::ResourceClaim(claim) => Some((
                &claim.uid,
                format!("{RESOURCE_CLAIM}{}/{}", claim.namespace, claim.name),
            )),
        }
    }

    /// The reverse of [`Holder::fields`].
    pub(super) fn of_fields(id: String, place: String) -> Self {
        let object = |kind: &str| {
            let (namespace, name) = place.strip_prefix(kind)?.split_once('/')?;
            Some(KubernetesObject {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: id.clone(),
            })
        };
        if let Some(namespace) = place.strip_prefix(POD) {
            let namespace = namespace.to_owned();
            Holder::Pod(PodName { namespace, name: id })
        } else if let Some(claim) = object(RESOURCE_CLAIM) {
            Holder::ResourceClaim(claim)
        } else if let Some(program) = place.strip_prefix(PROCESS) {
            let program = program.to_owned();
            Holder::Process { program, id }
        } else if let Some((user, bundle)) = rootless(&place) {
            let bundle = bundle.to_owned();
            Holder::Rootless {
                user,
                name: ContainerName { bundle, id },
            }
        } else {
            Holder::Container(ContainerName { bundle: place, id })
        }
    }
}

/// The user and the bundle in the place of a rootless container.
fn rootless(place: &str) -> Option<(u32, &str)> {
    let (user, bundle) = place.strip_prefix(ROOTLESS)?.split_once(':')?;
    Some((crate::types::decimal(user)?, bundle))
}

const ROOTLESS: &str = "user:";
const PROCESS: &str = "process:";
const POD: &str = "pod:";
const RESOURCE_CLAIM: &str = "resource-claim:";

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Person => f.write_str("a user"),
            Holder::Container(container) => write!(f, "{container}"),
            Holder::Rootless { user, name } => write!(f, "{name} of user {user}"),
            Holder::Process { program, .. } => write!(f, "program {program}"),
            Holder::Pod(pod) => write!(f, "{pod}"),
            Holder::ResourceClaim(claim) => write!(f, "{claim}"),
        }
    }
}

/// `path` as an absolute path without links. What does not exist any more, at the end of the path, stays as it is: an
/// engine may remove the bundle before the last hook of its container runs.
fn without_links(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = path
        .ancestors()
        .find_map(|above| Some((above, std::fs::canonicalize(above).ok()?)));
    match existing {
        Some((above, real)) => match path.strip_prefix(above) {
            // To join nothing would add a slash.
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => path,
    }
}

/// A container as every engine on the machine can tell it apart.
///
/// Ids are an engine's own: two engines, or two namespaces of containerd, may use one id. Their bundles differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContainerName {
    /// The directory of its bundle: an absolute path without links.
    pub bundle: String,
    /// Its id.
    pub id: String,
}

impl ContainerName {
    /// The container `id` of the bundle in `bundle`. Two spellings of one directory mean one container:
    /// `/var/run/docker/x`, as dockerd names it to the runtime, and `/run/docker/x`, as runc names it to hooks.
    ///
    /// Every program that looks for a container in the ledger, or enters one there, makes its name here.
    ///
    /// # Errors
    /// Returns an error if there is no id, or if the bundle's path is not UTF-8.
    pub fn at(bundle: &Path, id: &str) -> Result<Self> {
        if id.is_empty() {
            return Err(Error::failed("container", "has no id"));
        }
        match without_links(bundle).into_os_string().into_string() {
            Ok(bundle) => Ok(Self {
                bundle,
                id: id.to_owned(),
            }),
            Err(bundle) => Err(Error::failed(bundle.display(), "the bundle's path is not valid UTF-8")),
        }
    }
}

impl fmt::Display for ContainerName {
    /// The id, shortened as engines show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short: String = self.id.chars().take(12).collect();
        f.pad(&format!("container {short}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rootless_container_is_its_users_own_under_any_name() {
        let name = ContainerName {
            bundle: "/b".into(),
            id: "one".into(),
        };
        let of = |user| Holder::Rootless {
            user,
            name: name.clone(),
        };
        assert!(of(7).is_same_user(&of(7)));
        for other in [of(8), Holder::Container(name.clone()), Holder::Person] {
            assert!(!of(7).is_same_user(&other), "{other}");
        }
        assert_eq!(of(7).container(), None, "its files are the user's");
        assert_eq!(of(7).any_container(), Some(&name));
        assert_eq!(of(7).to_string(), "container one of user 7");
    }

    #[test]
    fn a_container_has_one_name_however_its_bundle_is_spelled_and_after_the_bundle_is_gone() {
        let top = tempfile::tempdir().unwrap();
        let real = top.path().canonicalize().unwrap().join("run/docker/one");
        std::fs::create_dir_all(&real).unwrap();
        let var_run = top.path().join("var-run");
        std::os::unix::fs::symlink("run", &var_run).unwrap();
        let name = ContainerName::at(&real, "one").unwrap();
        assert_eq!(Path::new(&name.bundle), real);
        let spellings = [
            var_run.join("docker/one"),
            var_run.join("docker/one/"),
            top.path().join("run/../var-run/./docker/one"),
        ];
        for spelling in &spellings {
            assert_eq!(
                ContainerName::at(spelling, "one").unwrap(),
                name,
                "{}",
                spelling.display()
            );
        }
        for gone in [&real, &top.path().join("run/docker")] {
            std::fs::remove_dir(gone).unwrap();
            for spelling in &spellings[..2] {
                assert_eq!(
                    ContainerName::at(spelling, "one").unwrap(),
                    name,
                    "{}",
                    spelling.display()
                );
            }
        }
        assert!(ContainerName::at(&real, "").is_err());
    }

    #[test]
    fn only_a_container_is_a_container() {
        let name = ContainerName {
            bundle: "/b".into(),
            id: "one".into(),
        };
        assert_eq!(Holder::Container(name.clone()).container(), Some(&name));
        assert_eq!(Holder::Person.container(), None);
    }
}
