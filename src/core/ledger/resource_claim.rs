//! Resource claims of Kubernetes, and the names of what is reserved for them.
//!
//! A resource claim may be used by several containers, of one pod or of several. So what is reserved for it stays
//! reserved until it is given up, and each container joins it.

use super::pod::is_of;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the name of such a claim begins with. No name that a person gives has a slash.
const PREFIX: &str = "resource-claim/";

/// An object of a Kubernetes cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KubernetesObject {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, which no later object of the same name has.
    pub uid: String,
}

impl KubernetesObject {
    /// The most characters of a namespace, a name and a UID. A UID is a UUID (Kubernetes, "Object Names and IDs").
    const LONGEST: [usize; 3] = [63, 253, 36];

    /// Whether it can be an object of a cluster: its parts are lower-case letters, digits, `-` and, in the name, `.`.
    pub fn is_valid(&self) -> bool {
        let [namespace, name, _] = Self::LONGEST;
        is_of(&self.namespace, namespace, b"-") && is_of(&self.name, name, b"-.") && Self::is_uid(&self.uid)
    }

    /// Whether `uid` can be the UID of an object, and so a part of the name of a file.
    pub fn is_uid(uid: &str) -> bool {
        let [.., longest] = Self::LONGEST;
        is_of(uid, longest, b"-")
    }

    /// The name of what is reserved for this resource claim on `part`, the name of a device or of a part of one.
    pub fn claim_on(&self, part: &str) -> String {
        format!("{PREFIX}{}/{}/{}/{part}", self.namespace, self.name, self.uid)
    }

    /// The resource claim for which something is reserved under this name, and the part; `None` for every other name.
    pub fn of_claim(name: &str) -> Option<(Self, &str)> {
        let mut parts = name.strip_prefix(PREFIX)?.splitn(4, '/');
        let mut next = || parts.next().map(str::to_owned);
        let object = Self {
            namespace: next()?,
            name: next()?,
            uid: next()?,
        };
        Some((object, parts.next()?))
    }
}

impl fmt::Display for KubernetesObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("resource claim {}/{}", self.namespace, self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(namespace: &str, name: &str, uid: &str) -> KubernetesObject {
        KubernetesObject {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
        }
    }

    #[test]
    fn the_name_says_which_claim_it_is_for() {
        let train = claim("lab", "train", "8a1c2d3e-0000-4000-8000-000000000001");
        let name = train.claim_on("gpu-0");
        assert_eq!(KubernetesObject::of_claim(&name), Some((train.clone(), "gpu-0")));
        for other in [
            "train",
            "pod/a/b/c",
            "resource-claim/a/b",
            "resource-claim/a/b/c",
            "resource-claims/a/b/c/d",
        ] {
            assert_eq!(KubernetesObject::of_claim(other), None, "{other}");
        }
        assert_eq!(train.to_string(), "resource claim lab/train");
    }

    #[test]
    fn only_what_kubernetes_allows_is_valid() {
        assert!(claim("lab", "train-0.x", "8a1c2d3e-0000-4000-8000-000000000001").is_valid());
        for bad in [
            claim("", "a", "b"),
            claim("a", "", "b"),
            claim("a", "b", ""),
            claim("a/b", "c", "d"),
            claim("a", "b/c", "d"),
            claim("a", "b", "../c"),
            claim("a.b", "c", "d"),
            claim("a", "b", &"c".repeat(37)),
        ] {
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }
}
