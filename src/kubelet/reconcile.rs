//! Reservations that are missing, and those that are left over.
//!
//! The device plugin interface has no call for the release of a device (kubernetes/kubernetes#59110, #86539). What pods
//! have is therefore compared with what is reserved for them.

use crate::pods::Pods;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tranche_core::ledger::PodName;
use tranche_protocol::Offers;

/// Devices of each pod.
pub type Devices = BTreeMap<PodName, Vec<String>>;

/// The reservations in the offers, as ids of devices with the pods. Each has the id that the kubelet allocated, which
/// may be of an earlier policy: only under that one can it be given up.
pub fn reserved(offers: &Offers) -> BTreeSet<(String, PodName)> {
    if let Some(reserved) = &offers.reserved {
        return reserved.iter().map(|one| (one.id.clone(), one.pod.clone())).collect();
    }
    let mut found = BTreeSet::new();
    for offer in offers.offers.iter().filter(|offer| !offer.taken.is_empty()) {
        for taken in &offer.taken {
            let Some(pod) = &taken.pod else { continue };
            found.extend(offer.covered(taken).map(|id| (id, pod.clone())));
        }
    }
    found
}

/// What pods have and is not reserved for them.
pub fn missing(offers: &Offers, pods: &Pods) -> Devices {
    let reserved = reserved(offers);
    let is_offered = |id: &str| offers.offers.iter().any(|offer| offer.has(id));
    let mut found = Devices::new();
    for (id, pod) in pods.iter() {
        if is_offered(id) && !reserved.contains(&(id.to_owned(), pod.clone())) {
            found.entry(pod.clone()).or_default().push(id.to_owned());
        }
    }
    found
}

/// What is reserved for a pod, although the kubelet has given it to another one. It is given up at once, because the
/// kubelet alone decides which pod has a device, and the new pod waits for it.
pub fn moved(offers: &Offers, pods: &Pods) -> Devices {
    let mut found = Devices::new();
    for (id, pod) in reserved(offers) {
        if pods.owner(&id).is_some_and(|owner| *owner != pod) {
            found.entry(pod).or_default().push(id);
        }
    }
    found
}

/// Since when pods have been missing from the lists of the kubelet.
#[derive(Debug)]
pub struct Absences {
    patience: Duration,
    since: BTreeMap<(String, PodName), Instant>,
}

impl Absences {
    /// One that waits for `patience`.
    pub fn new(patience: Duration) -> Self {
        Self {
            patience,
            since: BTreeMap::new(),
        }
    }

    /// Takes a list of the kubelet, and returns what is reserved for pods that have been missing for long enough, in
    /// every list since. An [`Instant`] is of a clock that nobody sets, and that stands still while the machine sleeps.
    pub fn listed(&mut self, now: Instant, offers: &Offers, pods: &Pods) -> Devices {
        let mut absent = reserved(offers);
        absent.retain(|(id, pod)| pods.owner(id) != Some(pod));
        self.since.retain(|key, _| absent.contains(key));
        let mut found = Devices::new();
        for key in absent {
            let since = *self.since.entry(key.clone()).or_insert(now);
            if now.duration_since(since) >= self.patience {
                found.entry(key.1).or_default().push(key.0);
            }
        }
        found
    }

    /// The kubelet did not answer. Every wait begins anew with its next list: a kubelet that has just started may not
    /// know its pods yet.
    pub fn no_list(&mut self) {
        self.since.clear();
    }

    /// The broker was asked to give these up. If they are still there, because a container uses them, it is asked again
    /// after the same time.
    pub fn given_up(&mut self, now: Instant, pod: &PodName, ids: &[String]) {
        for id in ids {
            self.since.insert((id.clone(), pod.clone()), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::offers;
    use crate::fixtures::{pod, replicas, taken, whole};
    use crate::pods::listed as pods;
    use tranche_protocol::{Offer, PodReservation};

    const MINUTE: Duration = Duration::from_secs(60);

    fn held(taken: Vec<tranche_protocol::Taken>) -> Offers {
        offers([Offer {
            taken,
            ..replicas("GPU-0", 3)
        }])
    }

    fn devices(of: &[(&str, &[&str])]) -> Devices {
        let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        of.iter().map(|(name, ids)| (pod(name), owned(ids))).collect()
    }

    #[test]
    fn what_a_pod_has_is_reserved_once() {
        let has = pods(&[("a", &["GPU-0.0", "GPU-0.1", "other.com/device"])]);
        assert_eq!(missing(&held(vec![]), &has), devices(&[("a", &["GPU-0.0", "GPU-0.1"])]));
        let one = held(vec![taken(Some("0"), Some(pod("a")))]);
        assert_eq!(missing(&one, &has), devices(&[("a", &["GPU-0.1"])]));
        let all = held(vec![taken(None, Some(pod("a")))]);
        assert_eq!(missing(&all, &has), devices(&[]));
        // The broker decides about what a container outside holds.
        let outside = held(vec![taken(None, None)]);
        assert_eq!(missing(&outside, &has).len(), 1);
    }

    #[test]
    fn a_device_that_another_pod_has_now_is_given_up_at_once() {
        let reserved = held(vec![taken(Some("0"), Some(pod("a"))), taken(Some("1"), Some(pod("a")))]);
        let has = pods(&[("b", &["GPU-0.0"])]);
        assert_eq!(moved(&reserved, &has), devices(&[("a", &["GPU-0.0"])]));
        assert_eq!(moved(&reserved, &pods(&[("a", &["GPU-0.0"])])), devices(&[]));
    }

    #[test]
    fn a_pod_that_is_gone_for_a_minute_gives_up_exactly_what_it_had() {
        let start = Instant::now();
        let mut absences = Absences::new(MINUTE);
        let reserved = held(vec![taken(Some("0"), Some(pod("a"))), taken(Some("2"), None)]);
        let none = pods(&[]);
        assert_eq!(absences.listed(start, &reserved, &none), devices(&[]));
        let before = start + MINUTE - Duration::from_millis(1);
        assert_eq!(absences.listed(before, &reserved, &none), devices(&[]));
        let gone = devices(&[("a", &["GPU-0.0"])]);
        assert_eq!(absences.listed(start + MINUTE, &reserved, &none), gone);
        // The broker did not answer: it is asked again.
        assert_eq!(absences.listed(start + MINUTE, &reserved, &none), gone);
        absences.given_up(start + MINUTE, &pod("a"), &gone[&pod("a")]);
        assert_eq!(absences.listed(start + MINUTE, &reserved, &none), devices(&[]));
        assert_eq!(absences.listed(start + 2 * MINUTE, &reserved, &none), gone);
    }

    #[test]
    fn one_list_with_the_pod_starts_the_time_anew() {
        let start = Instant::now();
        let mut absences = Absences::new(MINUTE);
        let reserved = held(vec![taken(Some("0"), Some(pod("a")))]);
        let none = pods(&[]);
        absences.listed(start, &reserved, &none);
        absences.listed(start + MINUTE / 2, &reserved, &pods(&[("a", &["GPU-0.0"])]));
        assert_eq!(absences.listed(start + MINUTE, &reserved, &none), devices(&[]));
        // And so does a kubelet that does not answer.
        absences.no_list();
        let later = start + 2 * MINUTE;
        assert_eq!(absences.listed(later, &reserved, &none), devices(&[]));
        assert_eq!(absences.listed(later + MINUTE, &reserved, &none).len(), 1);
    }

    #[test]
    fn a_whole_device_is_reserved_with_any_part_of_it() {
        let mut offer = whole("GPU-0");
        offer.taken = vec![taken(Some("3"), Some(pod("a")))];
        let found = reserved(&offers([offer]));
        assert_eq!(found, BTreeSet::from([("GPU-0".to_owned(), pod("a"))]));
    }

    #[test]
    fn a_share_of_an_earlier_policy_is_given_up_by_its_own_id() {
        let mut offers = offers([Offer {
            taken: vec![taken(None, Some(pod("a")))],
            ..whole("GPU-0")
        }]);
        offers.reserved = Some(vec![PodReservation {
            id: "GPU-0.3".into(),
            pod: pod("a"),
        }]);
        let mut absences = Absences::new(MINUTE);
        let now = Instant::now();
        let running = pods(&[("a", &["GPU-0.3"])]);
        let none = pods(&[]);
        assert!(absences.listed(now, &offers, &running).is_empty());
        assert!(
            absences.listed(now + 2 * MINUTE, &offers, &running).is_empty(),
            "it still runs"
        );
        assert!(absences.listed(now + 2 * MINUTE, &offers, &none).is_empty());
        let left = absences.listed(now + 3 * MINUTE, &offers, &none);
        assert_eq!(left, devices(&[("a", &["GPU-0.3"])]));
        assert!(moved(&offers, &none).is_empty());
    }
}
