//! Claims that are reserved for a pod of Kubernetes, and their names.
//!
//! The kubelet decides which pod gets which device, and never takes back what it said. So a claim is reserved for the
//! pod as long as the pod exists. Each container of the pod enters it by the name of the pod, and it is reserved again
//! when that container has ended: the next one of the pod (after an init container, or at a restart) finds it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What the name of such a claim begins with. No name that a person gives has a slash.
const PREFIX: &str = "pod/";

/// A pod of a Kubernetes cluster. The kubelet names pods without their UIDs where it says what it has allocated
/// (PodResources v1), so a later pod of the same name is the same holder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl PodName {
    /// The most characters of a namespace and of a name (Kubernetes, "Object Names and IDs": labels and subdomains of
    /// DNS).
    const LONGEST: (usize, usize) = (63, 253);

    /// Whether it can be the name of a pod: both parts are lower-case letters, digits, `-` and, in the name, `.`.
    pub fn is_valid(&self) -> bool {
        is_of(&self.namespace, Self::LONGEST.0, b"-") && is_of(&self.name, Self::LONGEST.1, b"-.")
    }

    /// The name of the claim that is reserved for it on the device that the kubelet knows by `id`.
    pub fn claim_on(&self, id: &str) -> String {
        format!("{PREFIX}{}/{}/{id}", self.namespace, self.name)
    }

    /// The pod that a claim of this name is reserved for, and the id of the device; `None` for every other name.
    pub fn of_claim(name: &str) -> Option<(Self, &str)> {
        let (namespace, rest) = name.strip_prefix(PREFIX)?.split_once('/')?;
        let (name, id) = rest.split_once('/')?;
        let pod = Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Some((pod, id))
    }
}

/// Whether `text` has lower-case letters, digits and the bytes of `more`: one at least, and `longest` at most.
pub(super) fn is_of(text: &str, longest: usize, more: &[u8]) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || more.contains(&byte);
    (1..=longest).contains(&text.len()) && text.bytes().all(is_valid)
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("pod {}/{}", self.namespace, self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, name: &str) -> PodName {
        PodName {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[test]
    fn the_name_of_a_claim_says_which_pod_it_is_for() {
        let web = pod("shop", "web-0");
        // The old form of a MIG device's UUID has slashes.
        for id in ["GPU-8188460b.3", "MIG-GPU-8188460b/7/0"] {
            assert_eq!(PodName::of_claim(&web.claim_on(id)), Some((web.clone(), id)));
        }
        for other in [
            "train",
            "start-0123456789abcdef",
            "1000.train",
            "pod/a",
            "pod/a/b",
            "pods/a/b/c",
        ] {
            assert_eq!(PodName::of_claim(other), None, "{other}");
        }
        assert_eq!(web.to_string(), "pod shop/web-0");
    }

    #[test]
    fn only_names_that_kubernetes_allows_are_valid() {
        assert!(pod("kube-system", "web-0.x").is_valid());
        for bad in [
            pod("", "a"),
            pod("a", ""),
            pod("a/b", "c"),
            pod("a", "b/c"),
            pod("a.b", "c"),
            pod("A", "b"),
            pod("a", "b\n"),
            pod(&"a".repeat(64), "b"),
            pod("a", &"b".repeat(254)),
        ] {
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }
}
