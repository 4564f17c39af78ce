//! What the kubelet is shown: the devices of each resource and their health.

use crate::pods::Pods;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use tranche_core::text::counted;
use tranche_protocol::{Offer, OfferedParts, Offers, PodPlacement};

/// A device that the kubelet may allocate, or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its CDI name, which many shares of a device have together.
    pub cdi: Arc<str>,
    /// The UUID of the GPU that it is on.
    pub gpu: Arc<str>,
    /// The NUMA node that it is next to.
    pub numa: Option<u32>,
    /// Whether a container may have this one and no other.
    pub one_share: bool,
    /// Its place in the order of the offers.
    pub order: usize,
}

/// All devices of a resource that were ever offered, by their ids.
pub type Parts = BTreeMap<String, Part>;

/// A device as the kubelet is shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its id.
    pub id: String,
    /// Why no pod can have it; `None` if it is healthy.
    pub unhealthy: Option<String>,
    /// The NUMA node that it is next to.
    pub numa: Option<u32>,
}

/// The most bytes of a list that the kubelet reads in one message: 4 MiB, as every client of gRPC in Go
/// (`defaultClientMaxReceiveMessageSize`). It drops a longer one without a word.
const MOST_BYTES: usize = 4 << 20;

/// What a device has in the list in addition to its id: its health, its NUMA node, and the lengths of these.
const BESIDE_ID: usize = 24;

/// What one resource is at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Its devices, in the order of the offers; then those that are offered no more.
    pub devices: Arc<Vec<Device>>,
    /// Which of them a container gets.
    pub placement: PodPlacement,
    /// How many devices are offered and not listed, because the kubelet would not read the list.
    pub left_out: usize,
    /// Also those that are listed no more: the kubelet may have chosen one before it read the list.
    pub parts: Arc<Parts>,
}

/// All resources. It remembers what was offered, because the kubelet takes a device that is missing from a list for a
/// healthy one (`pkg/kubelet/cm/devicemanager/manager.go`, `UpdateAllocatedResourcesStatus`).
#[derive(Debug, Default)]
pub struct Catalog {
    resources: BTreeMap<String, Listing>,
    /// Which device a container gets, whatever the policy says.
    placement: Option<PodPlacement>,
}

impl Catalog {
    /// An empty one. With `placement`, what the policy says of it does not count.
    pub fn new(placement: Option<PodPlacement>) -> Self {
        Self {
            placement,
            ..Self::default()
        }
    }

    /// The resources as they are with these offers. `pods` is `None` as long as the kubelet has not answered which pods
    /// have what.
    pub fn update(&mut self, offers: &Offers, pods: Option<&Pods>) {
        let mut lists: BTreeMap<&str, Vec<Device>> = BTreeMap::new();
        let mut listed = HashSet::new();
        for listing in self.resources.values_mut() {
            listing.left_out = 0;
        }
        for (offer, room) in with_room(&offers.offers) {
            let listing = self.resources.entry(offer.resource.clone()).or_default();
            listing.left_out += offer.count().saturating_sub(room);
            let parts = &mut listing.parts;
            let list = lists.entry(&offer.resource).or_default();
            let gpu: Arc<str> = offer.gpu.as_str().into();
            let is_any = matches!(offer.parts, OfferedParts::Replicas { named: false, .. });
            let any: Option<Arc<str>> = is_any.then(|| offer.cdi_name("").into());
            for id in offer.ids().take(room) {
                if !listed.insert(id.clone()) {
                    continue;
                }
                let part = Part {
                    cdi: any.clone().unwrap_or_else(|| offer.cdi_name(&id).into()),
                    gpu: gpu.clone(),
                    numa: offer.numa,
                    one_share: offer.one_share,
                    order: listed.len(),
                };
                // An equal one is not written: the list of parts is shared with the servers, and would be copied.
                if parts.get(&id) != Some(&part) {
                    Arc::make_mut(parts).insert(id.clone(), part);
                }
                list.push(Device {
                    unhealthy: why_unhealthy(offer, &id, pods),
                    id,
                    numa: offer.numa,
                });
            }
        }
        for (resource, listing) in &mut self.resources {
            let mut devices = lists.remove(resource.as_str()).unwrap_or_default();
            let in_use = |id: &String| pods.is_none_or(|pods| pods.owner(id).is_some());
            let gone = listing.parts.iter().filter(|(id, _)| !listed.contains(*id));
            devices.extend(gone.filter(|(id, _)| in_use(id)).map(|(id, part)| Device {
                id: id.clone(),
                unhealthy: Some("not offered any more".into()),
                numa: part.numa,
            }));
            listing.devices = Arc::new(devices);
            listing.placement = self.placement.or(offers.placement).unwrap_or_default();
        }
    }

    /// The resources, each with its devices.
    pub fn resources(&self) -> impl Iterator<Item = (&str, &Listing)> {
        self.resources.iter().map(|(name, listing)| (name.as_str(), listing))
    }

    /// Whether a resource is known.
    pub fn has(&self, resource: &str) -> bool {
        self.resources.contains_key(resource)
    }

    /// Forgets the resources that have no devices.
    pub fn forget_empty(&mut self) {
        self.resources.retain(|_, listing| !listing.devices.is_empty());
    }
}

impl Listing {
    /// Whether the kubelet has forgotten the plugin: it takes none of the healthy devices for healthy.
    pub fn is_forgotten(&self, allocatable: Option<&BTreeSet<String>>) -> bool {
        let mut healthy = self
            .devices
            .iter()
            .filter(|device| device.unhealthy.is_none())
            .peekable();
        let is_known = |device: &Device| allocatable.is_some_and(|ids| ids.contains(&device.id));
        healthy.peek().is_some() && !healthy.any(is_known)
    }

    /// One line for the log and the node's events, where devices are left out.
    pub fn left_out_text(&self, resource: &str) -> String {
        format!(
            "{resource}: the kubelet is shown {} of {}, because it reads no list of more than 4 MiB; lower replicas in the \
             policy, or leave the rest to other engines",
            self.devices.len(),
            counted(self.devices.len() + self.left_out, "device"),
        )
    }

    /// One line for the log: how many devices there are, and why some are unhealthy.
    pub fn summary(&self) -> String {
        let all = self.devices.len();
        let mut unhealthy = self.devices.iter().filter_map(|d| Some((&d.id, d.unhealthy.as_ref()?)));
        match unhealthy.next() {
            None => format!("{}, all healthy", counted(all, "device")),
            Some((id, why)) => {
                let others = match unhealthy.count() {
                    0 => String::new(),
                    more => format!("; {more} more unhealthy"),
                };
                format!("{}; {id} is unhealthy: {why}{others}", counted(all, "device"))
            }
        }
    }
}

/// The offers, each with how many of its parts are listed: all, if the kubelet reads that many of the resource, or else
/// as many of each device.
fn with_room(offers: &[Offer]) -> Vec<(&Offer, usize)> {
    let mut left: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for offer in offers {
        let longest = offer.device.len() + 1 + "4294967295".len();
        let (most, devices) = left.entry(&offer.resource).or_insert((usize::MAX, 0));
        *most = (*most).min(MOST_BYTES / (longest + BESIDE_ID));
        *devices += 1;
    }
    let mut room: Vec<(usize, &Offer, usize)> = Vec::new();
    let mut fewest_first: Vec<(usize, &Offer)> = offers.iter().enumerate().collect();
    fewest_first.sort_by_key(|(_, offer)| offer.count());
    for (place, offer) in fewest_first {
        // What a device does not need is left to those with more.
        let (most, devices) = left.entry(&offer.resource).or_default();
        let own = offer.count().min(*most / (*devices).max(1));
        (*most, *devices) = (*most - own, devices.saturating_sub(1));
        room.push((place, offer, own));
    }
    room.sort_by_key(|(place, ..)| *place);
    room.into_iter().map(|(_, offer, own)| (offer, own)).collect()
}

/// Why no pod can have this device now. What a pod has already stays healthy: the kubelet fails a pod, after a reboot,
/// if a device of its checkpoint is unhealthy (kubernetes/kubernetes#125579).
fn why_unhealthy(offer: &Offer, id: &str, pods: Option<&Pods>) -> Option<String> {
    if let Some(reason) = &offer.unhealthy {
        return Some(reason.clone());
    }
    let outside = offer
        .taken
        .iter()
        .find(|taken| taken.pod.is_none() && offer.covers(taken, id));
    let held = outside.map(|outside| format!("held by {}", outside.by));
    let why = offer.out_of_service.clone().or(held)?;
    let allocated = pods.is_some_and(|pods| pods.owner(id).is_some());
    (!allocated).then_some(why)
}

#[cfg(test)]
pub(crate) fn offers(offers: impl IntoIterator<Item = Offer>) -> Offers {
    Offers {
        offers: offers.into_iter().collect(),
        wrong_policy: None,
        placement: None,
        reserved: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{pod, replicas, taken, whole};
    use crate::pods::listed as pods;

    fn devices(catalog: &Catalog, resource: &str) -> Vec<(String, Option<String>)> {
        let Some((_, listing)) = catalog.resources().find(|(name, _)| *name == resource) else {
            return Vec::new();
        };
        let device = |d: &Device| (d.id.clone(), d.unhealthy.clone());
        listing.devices.iter().map(device).collect()
    }

    fn device(id: &str, unhealthy: Option<&str>) -> (String, Option<String>) {
        (id.to_owned(), unhealthy.map(str::to_owned))
    }

    #[test]
    fn one_unhealthy_gpu_leaves_the_others() {
        let mut broken = whole("GPU-1");
        broken.unhealthy = Some("Xid 79: it has fallen off the bus".into());
        let mut catalog = Catalog::default();
        catalog.update(&offers([whole("GPU-0"), broken]), None);
        let xid = Some("Xid 79: it has fallen off the bus");
        assert_eq!(
            devices(&catalog, "nvidia.com/gpu"),
            [device("GPU-0", None), device("GPU-1", xid)]
        );
    }

    #[test]
    fn what_is_held_outside_is_unhealthy_until_it_is_released() {
        let mut offer = replicas("GPU-0", 3);
        offer.taken = vec![taken(Some("1"), None)];
        let mut catalog = Catalog::default();
        catalog.update(&offers([offer.clone()]), None);
        let held = Some("held by container 262bf9f7e5a8");
        assert_eq!(
            devices(&catalog, "nvidia.com/gpu")[1..],
            [device("GPU-0.1", held), device("GPU-0.2", None)]
        );
        offer.taken = vec![taken(None, None)];
        catalog.update(&offers([offer.clone()]), None);
        assert!(devices(&catalog, "nvidia.com/gpu").iter().all(|(_, why)| why.is_some()));
        offer.taken.clear();
        catalog.update(&offers([offer]), None);
        assert!(devices(&catalog, "nvidia.com/gpu").iter().all(|(_, why)| why.is_none()));
    }

    #[test]
    fn a_device_out_of_service_is_unhealthy_for_every_pod_but_those_that_have_it() {
        let mut offer = replicas("GPU-0", 2);
        offer.out_of_service = Some("out of service since 2026-11-25 10:00:00 UTC (a fan)".into());
        let mut catalog = Catalog::default();
        catalog.update(&offers([offer.clone()]), Some(&pods(&[("a", &["GPU-0.0"])])));
        let why = Some("out of service since 2026-11-25 10:00:00 UTC (a fan)");
        assert_eq!(
            devices(&catalog, "nvidia.com/gpu"),
            [device("GPU-0.0", None), device("GPU-0.1", why)]
        );
        offer.out_of_service = None;
        catalog.update(&offers([offer]), Some(&pods(&[])));
        assert!(devices(&catalog, "nvidia.com/gpu").iter().all(|(_, why)| why.is_none()));
    }

    #[test]
    fn what_a_pod_has_stays_healthy() {
        let mut offer = replicas("GPU-0", 2);
        offer.taken = vec![taken(Some("0"), None), taken(Some("1"), Some(pod("a")))];
        let mut catalog = Catalog::default();
        catalog.update(&offers([offer]), Some(&pods(&[("a", &["GPU-0.0", "GPU-0.1"])])));
        assert_eq!(
            devices(&catalog, "nvidia.com/gpu"),
            [device("GPU-0.0", None), device("GPU-0.1", None)]
        );
    }

    #[test]
    fn what_is_not_offered_any_more_is_unhealthy_while_a_pod_has_it_and_then_dropped() {
        let mut catalog = Catalog::default();
        catalog.update(&offers([whole("GPU-0"), whole("GPU-1")]), None);
        let left = offers([whole("GPU-0")]);
        let gone = Some("not offered any more");
        // Nobody knows yet which pods have what.
        catalog.update(&left, None);
        assert_eq!(devices(&catalog, "nvidia.com/gpu")[1], device("GPU-1", gone));
        catalog.update(&left, Some(&pods(&[("a", &["GPU-1"])])));
        assert_eq!(devices(&catalog, "nvidia.com/gpu")[1], device("GPU-1", gone));
        catalog.update(&left, Some(&pods(&[])));
        assert_eq!(devices(&catalog, "nvidia.com/gpu"), [device("GPU-0", None)]);
        // A choice of the kubelet may be older than the list.
        let listing = catalog.resources().next().unwrap().1;
        assert!(listing.parts.contains_key("GPU-1"));
    }

    #[test]
    fn a_resource_without_offers_is_empty_and_forgotten() {
        let mut catalog = Catalog::default();
        catalog.update(&offers([whole("GPU-0")]), Some(&pods(&[])));
        catalog.update(&offers([]), Some(&pods(&[])));
        assert_eq!(devices(&catalog, "nvidia.com/gpu"), []);
        assert!(catalog.has("nvidia.com/gpu"));
        catalog.forget_empty();
        assert!(!catalog.has("nvidia.com/gpu"));
    }

    #[test]
    fn an_id_is_listed_once() {
        let mut catalog = Catalog::default();
        catalog.update(&offers([whole("GPU-0"), whole("GPU-0")]), None);
        assert_eq!(devices(&catalog, "nvidia.com/gpu").len(), 1);
    }

    #[test]
    fn a_kubelet_that_has_none_of_the_healthy_devices_has_forgotten_the_plugin() {
        let mut broken = whole("GPU-1");
        broken.unhealthy = Some("lost".into());
        let mut catalog = Catalog::default();
        catalog.update(&offers([whole("GPU-0"), broken.clone(), whole("GPU-2")]), None);
        let listing = catalog.resources().next().unwrap().1;
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
        assert!(listing.is_forgotten(None));
        assert!(listing.is_forgotten(Some(&ids(&["GPU-1", "another plugin's"]))));
        // It may not have read the last list yet.
        assert!(!listing.is_forgotten(Some(&ids(&["GPU-2"]))));
        let mut catalog = Catalog::default();
        catalog.update(&offers([broken]), None);
        assert!(!catalog.resources().next().unwrap().1.is_forgotten(None));
    }

    #[test]
    fn the_summary_names_one_reason() {
        let mut offer = replicas("GPU-0", 3);
        let mut catalog = Catalog::default();
        let summary = |catalog: &Catalog| catalog.resources().next().unwrap().1.summary();
        catalog.update(&offers([offer.clone()]), None);
        assert_eq!(summary(&catalog), "3 devices, all healthy");
        offer.unhealthy = Some("lost".into());
        catalog.update(&offers([offer]), None);
        assert_eq!(
            summary(&catalog),
            "3 devices; GPU-0.0 is unhealthy: lost; 2 more unhealthy"
        );
    }
}
