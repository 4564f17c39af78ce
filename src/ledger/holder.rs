//! Who holds a claim.

use crate::error::{Error, Result};
use std::fmt;
use std::path::Path;

/// Who holds a claim. A claim of a container ends with its processes; every other one lasts until it is released or its
/// time to live ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Holder {
    /// The user whose id the claim has: nobody uses it yet.
    #[default]
    Person,
    /// A container.
    Container(ContainerName),
    /// A pod, for which the kubelet's device manager allocated the device.
    Pod(KubernetesObject),
    /// A resource claim of Kubernetes, which several pods may use.
    ResourceClaim(KubernetesObject),
}

/// An object of a Kubernetes cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesObject {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, which no later object of the same name has.
    pub uid: String,
}

impl Holder {
    /// The container; `None` for any other holder.
    pub fn container(&self) -> Option<&ContainerName> {
        match self {
            Holder::Container(container) => Some(container),
            Holder::Person | Holder::Pod(_) | Holder::ResourceClaim(_) => None,
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
            Holder::Pod(pod) => Some((&pod.uid, format!("{POD}{}/{}", pod.namespace, pod.name))),
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
        if let Some(pod) = object(POD) {
            Holder::Pod(pod)
        } else if let Some(claim) = object(RESOURCE_CLAIM) {
            Holder::ResourceClaim(claim)
        } else {
            Holder::Container(ContainerName { bundle: place, id })
        }
    }
}

const POD: &str = "pod:";
const RESOURCE_CLAIM: &str = "resource-claim:";

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Person => f.write_str("a user"),
            Holder::Container(container) => write!(f, "{container}"),
            Holder::Pod(pod) => write!(f, "pod {}/{}", pod.namespace, pod.name),
            Holder::ResourceClaim(claim) => write!(f, "resource claim {}/{}", claim.namespace, claim.name),
        }
    }
}

/// A container as every engine on the machine can tell it apart.
///
/// Ids are an engine's own: two engines, or two namespaces of containerd, may use one id. Their bundles differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerName {
    /// The directory of its bundle.
    pub bundle: String,
    /// Its id.
    pub id: String,
}

impl ContainerName {
    /// The container `id` of the bundle in `bundle`. Two spellings of one directory mean one container.
    ///
    /// # Errors
    /// Returns an error if there is no id, or if the bundle's path is not UTF-8.
    pub fn at(bundle: &Path, id: &str) -> Result<Self> {
        if id.is_empty() {
            return Err(Error::failed("container", "has no id"));
        }
        // The directory may not exist any more.
        let bundle = std::fs::canonicalize(bundle).unwrap_or_else(|_| bundle.to_owned());
        match bundle.into_os_string().into_string() {
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
    fn only_a_container_is_a_container() {
        let name = ContainerName {
            bundle: "/b".into(),
            id: "one".into(),
        };
        assert_eq!(Holder::Container(name.clone()).container(), Some(&name));
        assert_eq!(Holder::Person.container(), None);
    }
}
