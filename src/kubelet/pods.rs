//! Which pod has which device, as the kubelet says it.

use std::collections::{BTreeMap, BTreeSet};
use tranche_core::ledger::PodName;

/// The devices of each pod in an answer of PodResources.
pub type List = Vec<(PodName, Vec<String>)>;

/// The pod that has each device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pods {
    owners: BTreeMap<String, PodName>,
}

impl Pods {
    /// The pod that has the device with this id.
    pub fn owner(&self, id: &str) -> Option<&PodName> {
        self.owners.get(id)
    }

    /// The pod that has all these devices.
    pub fn owner_of_all(&self, ids: &[String]) -> Option<&PodName> {
        let owner = self.owner(ids.first()?)?;
        ids.iter().all(|id| self.owner(id) == Some(owner)).then_some(owner)
    }

    /// All devices, each with its pod.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PodName)> {
        self.owners.iter().map(|(id, pod)| (id.as_str(), pod))
    }
}

/// Remembers when a pod was first seen with a device.
///
/// A kubelet before 1.34 also lists pods that have ended, and whose devices other pods have by now. A device is given
/// to another pod only after that, so the pod that was seen last has it.
#[derive(Debug, Default)]
pub struct Owners {
    seen: BTreeMap<(String, PodName), u64>,
    lists: u64,
}

impl Owners {
    /// Decides which pod has each device of a list. If nothing is known of an order, it is the pod for which the device
    /// is reserved, by `reserved`.
    pub fn resolve(&mut self, list: List, reserved: impl Fn(&str) -> Option<PodName>) -> Pods {
        self.lists += 1;
        let mut now = BTreeSet::new();
        for (pod, ids) in list {
            now.extend(ids.into_iter().map(|id| (id, pod.clone())));
        }
        self.seen.retain(|key, _| now.contains(key));
        let mut owners: BTreeMap<String, (u64, PodName)> = BTreeMap::new();
        for (id, pod) in now {
            let since = *self.seen.entry((id.clone(), pod.clone())).or_insert(self.lists);
            match owners.get(&id) {
                Some((other, _)) if *other > since => {}
                Some((other, owner)) if *other == since && reserved(&id).as_ref() == Some(owner) => {}
                _ => {
                    owners.insert(id, (since, pod));
                }
            }
        }
        let owners = owners.into_iter().map(|(id, (_, pod))| (id, pod));
        Pods {
            owners: owners.collect(),
        }
    }
}

#[cfg(test)]
pub(crate) fn listed(pods: &[(&str, &[&str])]) -> Pods {
    let list = pods.iter().map(|(name, ids)| {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        (crate::fixtures::pod(name), ids)
    });
    Owners::default().resolve(list.collect(), |_| None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::pod;

    fn list(pods: &[(&str, &[&str])]) -> List {
        let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        pods.iter().map(|(name, ids)| (pod(name), owned(ids))).collect()
    }

    #[test]
    fn the_pod_of_a_container_has_all_its_devices() {
        let all = list(&[("a", &["1", "2"]), ("b", &["3"])]);
        let pods = Owners::default().resolve(all, |_| None);
        let owner = |ids: &[&str]| {
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            pods.owner_of_all(&ids).cloned()
        };
        assert_eq!(owner(&["1"]), Some(pod("a")));
        assert_eq!(owner(&["2", "1"]), Some(pod("a")));
        assert_eq!(owner(&["2", "3"]), None);
        assert_eq!(owner(&["4"]), None);
        assert_eq!(owner(&[]), None);
    }

    #[test]
    fn of_two_pods_the_one_that_was_seen_later_has_the_device() {
        for names in [["old", "young"], ["young", "old"]] {
            let mut owners = Owners::default();
            owners.resolve(list(&[("old", &["1"])]), |_| None);
            let both = list(&[(names[0], &["1"]), (names[1], &["1"])]);
            // That the ended pod still has the reservation changes nothing.
            let pods = owners.resolve(both, |_| Some(pod("old")));
            assert_eq!(pods.owner("1"), Some(&pod("young")));
        }
    }

    #[test]
    fn without_an_order_the_pod_with_the_reservation_has_the_device() {
        for name in ["a", "b"] {
            let both = list(&[("a", &["1"]), ("b", &["1"])]);
            let pods = Owners::default().resolve(both, |_| Some(pod(name)));
            assert_eq!(pods.owner("1"), Some(&pod(name)));
        }
    }

    #[test]
    fn a_pod_that_was_away_is_new_again() {
        let mut owners = Owners::default();
        owners.resolve(list(&[("a", &["1"]), ("b", &["2"])]), |_| None);
        owners.resolve(list(&[("b", &["1"])]), |_| None);
        let pods = owners.resolve(list(&[("a", &["1"]), ("b", &["1"])]), |_| None);
        assert_eq!(pods.owner("1"), Some(&pod("a")));
    }
}
