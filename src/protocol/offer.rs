//! What the kubelet of Kubernetes may allocate, as the broker answers it.

use super::PodPlacement;
use serde::{Deserialize, Serialize};
use tranche_core::ledger::PodName;

/// The answer to [`super::OffersRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offers {
    /// All devices that the policy gives to the device plugin, in the order of their indices.
    pub offers: Vec<Offer>,
    /// What is wrong with the policy that somebody has written since the one of these devices, which stays in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong_policy: Option<String>,
    /// Which of them a container gets; `None` if the policy does not say.
    #[serde(default)]
    pub placement: Option<PodPlacement>,
    /// What is reserved for pods, also of devices and shares that an earlier policy offered; `None`: an older broker
    /// does not say it.
    #[serde(default)]
    pub reserved: Option<Vec<PodReservation>>,
}

/// A device that is reserved for a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodReservation {
    /// The id by which the kubelet allocated it.
    pub id: String,
    /// The pod.
    pub pod: PodName,
}

/// The parts of one device under one resource name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The extended resource: `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`, `nvidia.com/gpu.big`.
    pub resource: String,
    /// The device, by its UUID: `GPU-…` or `MIG-…`.
    pub device: String,
    /// The UUID of the GPU that it is, or is on.
    pub gpu: String,
    /// The kind of its CDI names: `nvidia.com/gpu`.
    pub kind: String,
    /// The NUMA node that it is next to.
    #[serde(default)]
    pub numa: Option<u32>,
    /// Which parts of it there are.
    pub parts: OfferedParts,
    /// Whether a container may have one share and no more, because MPS shows one device to a process, or because the
    /// policy says so (`failRequestsGreaterThanOne`).
    #[serde(default)]
    pub one_share: bool,
    /// Why no container can use it now; `None` if it works.
    #[serde(default)]
    pub unhealthy: Option<String>,
    /// Why nothing new is given of it, while what a pod has stays as it is; `None` if it is in service.
    #[serde(default)]
    pub out_of_service: Option<String>,
    /// What is held or reserved of it.
    #[serde(default)]
    pub taken: Vec<Taken>,
}

/// The parts of a device that are offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OfferedParts {
    /// The device itself.
    Whole,
    /// Equal replicas, numbered from 0.
    Replicas {
        /// How many.
        count: u32,
        /// Whether each has a CDI name of its own. Otherwise, `any` is the name of all.
        named: bool,
    },
    /// Shares with names.
    Shares(Vec<String>),
}

/// A part of a device that is held or reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The name or number of the share; `None` for all parts of the device.
    #[serde(default)]
    pub share: Option<String>,
    /// The pod that it is reserved for, or used by; `None` for every holder outside Kubernetes.
    #[serde(default)]
    pub pod: Option<PodName>,
    /// Who has it, for people: `container 262bf9f7e5a8`.
    pub by: String,
}

impl Offer {
    /// How many parts it has.
    pub fn count(&self) -> usize {
        match &self.parts {
            OfferedParts::Whole => 1,
            OfferedParts::Replicas { count, .. } => usize::try_from(*count).unwrap_or(usize::MAX),
            OfferedParts::Shares(names) => names.len(),
        }
    }

    /// The ids of its parts, as the kubelet knows them, each made when it is asked for. They are unique on the node,
    /// over all resources.
    pub fn ids(&self) -> impl Iterator<Item = String> + '_ {
        let (whole, count, names) = match &self.parts {
            OfferedParts::Whole => (true, 0, &[][..]),
            OfferedParts::Replicas { count, .. } => (false, *count, &[][..]),
            OfferedParts::Shares(names) => (false, 0, names.as_slice()),
        };
        let with = |part: &dyn std::fmt::Display| format!("{}.{part}", self.device);
        let whole = whole.then(|| self.device.clone());
        let replicas = (0..count).map(move |n| with(&n));
        whole
            .into_iter()
            .chain(replicas)
            .chain(names.iter().map(move |name| with(name)))
    }

    /// The ids of its parts that `taken` is, or contains.
    pub fn covered<'a>(&'a self, taken: &'a Taken) -> impl Iterator<Item = String> + 'a {
        let named = taken.share.as_ref().filter(|_| self.parts != OfferedParts::Whole);
        let one = named.map(|share| format!("{}.{share}", self.device));
        let most = if named.is_some() { 0 } else { usize::MAX };
        one.filter(|id| self.has(id)).into_iter().chain(self.ids().take(most))
    }

    /// The CDI name of the part with this id.
    pub fn cdi_name(&self, id: &str) -> String {
        match self.parts {
            OfferedParts::Replicas { named: false, .. } => format!("{}={}.any", self.kind, self.device),
            _ => format!("{}={id}", self.kind),
        }
    }

    /// The share that has this id; `None` for the device itself, and for an id of another device.
    pub fn share_of<'a>(&self, id: &'a str) -> Option<&'a str> {
        id.strip_prefix(self.device.as_str())?.strip_prefix('.')
    }

    /// Whether it has a part with this id: one of [`Offer::ids`].
    pub fn has(&self, id: &str) -> bool {
        match (&self.parts, self.share_of(id)) {
            (OfferedParts::Whole, _) => id == self.device,
            (OfferedParts::Replicas { count, .. }, Some(share)) => {
                // As it is written, so that `03` is no second id of replica 3.
                share.parse().is_ok_and(|n: u32| n < *count && n.to_string() == share)
            }
            (OfferedParts::Shares(names), Some(share)) => names.iter().any(|name| name == share),
            (OfferedParts::Replicas { .. } | OfferedParts::Shares(_), None) => false,
        }
    }

    /// Whether `taken` is, or contains, the part with this id.
    pub fn covers(&self, taken: &Taken, id: &str) -> bool {
        match (self.share_of(id), &taken.share) {
            (Some(share), Some(taken)) => share == taken,
            (Some(_), None) => true,
            // The whole device cannot be had while a share of it is held.
            (None, _) => id == self.device,
        }
    }

    /// Who has the part with this id; `None` if it is free.
    pub fn taken(&self, id: &str) -> Option<&Taken> {
        self.taken.iter().find(|taken| self.covers(taken, id))
    }

    /// Whether one of its parts cannot be had because of `taken`.
    pub fn concerns(&self, taken: &Taken) -> bool {
        match (&self.parts, &taken.share) {
            (OfferedParts::Shares(names), Some(share)) => names.contains(share),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(parts: OfferedParts, taken: Vec<Taken>) -> Offer {
        Offer {
            resource: "nvidia.com/gpu".into(),
            device: "GPU-1".into(),
            gpu: "GPU-1".into(),
            kind: "nvidia.com/gpu".into(),
            numa: None,
            parts,
            one_share: false,
            unhealthy: None,
            out_of_service: None,
            taken,
        }
    }

    fn taken(share: Option<&str>) -> Taken {
        Taken {
            share: share.map(str::to_owned),
            pod: None,
            by: "container a".into(),
        }
    }

    #[test]
    fn a_part_has_one_id_and_the_name_of_the_specification() {
        let whole = offer(OfferedParts::Whole, Vec::new());
        assert_eq!(whole.ids().collect::<Vec<_>>(), ["GPU-1"]);
        assert_eq!(whole.cdi_name("GPU-1"), "nvidia.com/gpu=GPU-1");
        let each = offer(OfferedParts::Replicas { count: 2, named: true }, Vec::new());
        assert_eq!(each.ids().collect::<Vec<_>>(), ["GPU-1.0", "GPU-1.1"]);
        assert_eq!(each.cdi_name("GPU-1.1"), "nvidia.com/gpu=GPU-1.1");
        let any = offer(OfferedParts::Replicas { count: 2, named: false }, Vec::new());
        assert!(any.ids().eq(each.ids()));
        assert_eq!(any.cdi_name("GPU-1.1"), "nvidia.com/gpu=GPU-1.any");
        let named = offer(OfferedParts::Shares(vec!["big".into()]), Vec::new());
        assert_eq!(named.cdi_name(&named.ids().next().unwrap()), "nvidia.com/gpu=GPU-1.big");
        for offer in [&whole, &each, &any, &named] {
            assert!(offer.ids().all(|id| offer.has(&id)), "{offer:?}");
            assert_eq!(offer.ids().count(), offer.count());
            for other in [
                "GPU-1.2",
                "GPU-1.01",
                "GPU-1.+1",
                "GPU-1.",
                "GPU-11.1",
                "GPU-11",
                "GPU-1.any",
                "",
            ] {
                assert!(!offer.has(other), "{other}: {offer:?}");
            }
        }
        assert!(!each.has("GPU-1") && !named.has("GPU-1") && !whole.has("GPU-1.0"));
    }

    #[test]
    fn a_part_is_taken_by_its_own_holder_or_by_one_of_the_whole_device() {
        let parts = OfferedParts::Replicas { count: 12, named: true };
        let one = offer(parts.clone(), vec![taken(Some("1"))]);
        assert!(one.taken("GPU-1.1").is_some());
        for free in ["GPU-1.0", "GPU-1.11", "GPU-11.1"] {
            assert!(one.taken(free).is_none(), "{free}");
        }
        let all = offer(parts, vec![taken(None)]);
        assert!(all.taken("GPU-1.11").is_some());
        // The whole device cannot be had while a share of it is held.
        assert!(
            offer(OfferedParts::Whole, vec![taken(Some("1"))])
                .taken("GPU-1")
                .is_some()
        );
    }
}
