//! Which of the free devices a container should get.

mod distributed;

use crate::catalog::{Part, Parts};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tranche_protocol::PodPlacement;

/// The devices of one GPU.
#[derive(Default)]
struct Gpu<'a> {
    /// The free ones, in the order of the offers.
    free: BTreeSet<(usize, &'a str)>,
    /// How many pods or others have.
    used: usize,
    /// Whether the container gets one of them.
    is_chosen: bool,
    numa: Option<u32>,
}

/// Chooses `size` of the `available` devices, with all that are `required`. Several devices of one container are on as
/// few GPUs as possible, unless they are distributed. The result is empty if `size` of them cannot be chosen, and then
/// the kubelet chooses.
///
/// It has no errors, because the kubelet would fail the pod, and its controller would make the next one at once
/// (NVIDIA/k8s-device-plugin#1223). Ids that are not known count as GPUs of their own.
pub fn prefer(
    parts: &Parts,
    available: &[String],
    required: &[String],
    size: usize,
    placement: PodPlacement,
) -> Vec<String> {
    let order = |id: &str| parts.get(id).map_or(usize::MAX, |part| part.order);
    let mut gpus = gpus(parts, available, required);
    let must: BTreeSet<(usize, &str)> = required.iter().map(|id| (order(id), id.as_str())).collect();
    let free: usize = gpus.values().map(|gpu| gpu.free.len()).sum();
    if must.len() > size || must.len() + free < size {
        return Vec::new();
    }
    if placement == PodPlacement::Distributed {
        let chosen = distributed::choose(parts, available, required, size);
        return chosen.into_iter().map(str::to_owned).collect();
    }
    let mut chosen: Vec<&str> = must.into_iter().map(|(_, id)| id).collect();
    while chosen.len() < size {
        let need = size - chosen.len();
        let numa = gpus.values().find(|gpu| gpu.is_chosen).and_then(|gpu| gpu.numa);
        let candidates = gpus.iter_mut().filter(|(_, gpu)| !gpu.free.is_empty());
        let best = candidates.min_by_key(|(_, gpu)| {
            let free = gpu.free.len();
            let fits = free >= need;
            let by_policy = match placement {
                PodPlacement::Packed => (usize::from(gpu.used == 0), free),
                PodPlacement::Spread | PodPlacement::Distributed => (usize::MAX - free, gpu.used),
            };
            let is_far = numa.is_some() && gpu.numa != numa;
            let few_gpus = if fits { Reverse(0) } else { Reverse(free) };
            (
                !gpu.is_chosen,
                !fits,
                few_gpus,
                by_policy,
                is_far,
                gpu.free.first().copied(),
            )
        });
        let Some((_, gpu)) = best else {
            return Vec::new();
        };
        gpu.is_chosen = true;
        while chosen.len() < size
            && let Some((_, id)) = gpu.free.pop_first()
        {
            chosen.push(id);
        }
    }
    chosen.into_iter().map(str::to_owned).collect()
}

/// The GPUs of the devices, by their UUIDs.
fn gpus<'a>(parts: &'a Parts, available: &'a [String], must: &'a [String]) -> BTreeMap<&'a str, Gpu<'a>> {
    let must: BTreeSet<&str> = must.iter().map(String::as_str).collect();
    let available: BTreeSet<&str> = available.iter().map(String::as_str).collect();
    let mut gpus: BTreeMap<&str, Gpu> = BTreeMap::new();
    for (id, part) in parts {
        let gpu = gpus.entry(&part.gpu).or_default();
        gpu.numa = part.numa;
        gpu.used += usize::from(!available.contains(id.as_str()));
    }
    let of = |id: &'a str| parts.get_key_value(id);
    for id in available.difference(&must) {
        let (gpu, order) = of(id).map_or((*id, usize::MAX), |(_, Part { gpu, order, .. })| (&**gpu, *order));
        gpus.entry(gpu).or_default().free.insert((order, id));
    }
    for id in must {
        let gpu = of(id).map_or(id, |(_, part)| &*part.gpu);
        gpus.entry(gpu).or_default().is_chosen = true;
    }
    gpus
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, offers};
    use crate::fixtures::{replicas, whole};
    use proptest::prelude::*;
    use std::sync::Arc;
    use tranche_protocol::Offer;

    fn parts(all: impl IntoIterator<Item = Offer>) -> Arc<Parts> {
        let mut catalog = Catalog::default();
        catalog.update(&offers(all), None);
        catalog.resources().next().unwrap().1.parts.clone()
    }

    fn owned(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn chosen(free: &[&str], must: &[&str], size: usize, placement: PodPlacement) -> Vec<String> {
        let parts = parts([replicas("GPU-b", 4), replicas("GPU-a", 4)]);
        prefer(&parts, &owned(free), &owned(must), size, placement)
    }

    #[test]
    fn packed_fills_the_gpu_in_use_and_spread_takes_the_freest() {
        let free = ["GPU-b.0", "GPU-b.1", "GPU-b.2", "GPU-b.3", "GPU-a.1", "GPU-a.2"];
        assert_eq!(chosen(&free, &[], 1, PodPlacement::Packed), ["GPU-a.1"]);
        assert_eq!(chosen(&free, &[], 1, PodPlacement::Spread), ["GPU-b.0"]);
    }

    #[test]
    fn several_are_on_one_gpu_if_it_has_room() {
        let free = ["GPU-b.0", "GPU-b.1", "GPU-b.2", "GPU-b.3", "GPU-a.1", "GPU-a.2"];
        let on_b = ["GPU-b.0", "GPU-b.1", "GPU-b.2"];
        assert_eq!(chosen(&free, &[], 3, PodPlacement::Packed), on_b);
        assert_eq!(chosen(&free, &[], 3, PodPlacement::Spread), on_b);
        assert_eq!(chosen(&free, &[], 5, PodPlacement::Packed).len(), 5);
    }

    /// As NVIDIA's plugin chooses by default: each replica anew, from the GPU of which the least is allocated.
    #[test]
    fn distributed_takes_each_share_from_the_device_of_which_the_least_is_allocated() {
        let all: Vec<String> = ["b", "a"]
            .iter()
            .flat_map(|gpu| (0..4).map(move |n| format!("GPU-{gpu}.{n}")))
            .collect();
        let of = |used: &[&str], must: &[&str], size| {
            let free: Vec<&str> = all.iter().map(String::as_str).filter(|id| !used.contains(id)).collect();
            chosen(&free, must, size, PodPlacement::Distributed)
        };
        assert_eq!(of(&[], &[], 2), ["GPU-b.0", "GPU-a.0"]);
        assert_eq!(of(&[], &[], 4), ["GPU-b.0", "GPU-a.0", "GPU-b.1", "GPU-a.1"]);
        assert_eq!(of(&["GPU-b.0"], &[], 1), ["GPU-a.0"]);
        // Two of the other first, then in turn.
        let used = ["GPU-b.0", "GPU-b.1"];
        assert_eq!(of(&used, &[], 4), ["GPU-a.0", "GPU-a.1", "GPU-b.2", "GPU-a.2"]);
        assert_eq!(of(&[], &["GPU-b.1"], 2), ["GPU-b.1", "GPU-a.0"]);
        // The same with what is spread stays together.
        let free: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(chosen(&free, &[], 2, PodPlacement::Spread), ["GPU-b.0", "GPU-b.1"]);
    }

    #[test]
    fn distributed_shares_of_mig_devices_are_on_several_gpus_first() {
        let on = |gpu: &str, mig: &str| Offer {
            gpu: gpu.into(),
            ..replicas(mig, 2)
        };
        let parts = parts([on("GPU-0", "MIG-0a"), on("GPU-0", "MIG-0b"), on("GPU-1", "MIG-1a")]);
        let free: Vec<String> = parts.keys().cloned().collect();
        let of = |size| prefer(&parts, &free, &[], size, PodPlacement::Distributed);
        assert_eq!(of(2), ["MIG-0a.0", "MIG-1a.0"]);
        assert_eq!(of(3), ["MIG-0a.0", "MIG-1a.0", "MIG-0b.0"]);
    }

    #[test]
    fn what_must_be_included_decides_the_gpu() {
        let free = ["GPU-b.0", "GPU-b.1", "GPU-a.1", "GPU-a.2", "GPU-a.3"];
        assert_eq!(
            chosen(&free, &["GPU-b.1"], 2, PodPlacement::Spread),
            ["GPU-b.1", "GPU-b.0"]
        );
        assert_eq!(chosen(&free, &["GPU-b.1"], 1, PodPlacement::Packed), ["GPU-b.1"]);
    }

    #[test]
    fn gpus_of_one_numa_node_go_together() {
        let on = |gpu: &str, numa| Offer {
            numa: Some(numa),
            ..whole(gpu)
        };
        let parts = parts([on("GPU-0", 0), on("GPU-1", 1), on("GPU-2", 0)]);
        let free = owned(&["GPU-0", "GPU-1", "GPU-2"]);
        assert_eq!(prefer(&parts, &free, &[], 2, PodPlacement::Packed), ["GPU-0", "GPU-2"]);
    }

    #[test]
    fn an_impossible_request_has_an_empty_answer() {
        assert_eq!(chosen(&["GPU-a.0"], &[], 2, PodPlacement::Packed), [""; 0]);
        assert_eq!(chosen(&[], &["GPU-a.0", "GPU-a.1"], 1, PodPlacement::Packed), [""; 0]);
        assert_eq!(chosen(&[], &[], 0, PodPlacement::Packed), [""; 0]);
        assert_eq!(chosen(&["x", "y"], &[], usize::MAX, PodPlacement::Spread), [""; 0]);
    }

    fn ids() -> impl Strategy<Value = Vec<String>> {
        let id = prop_oneof![
            (0..4u8, 0..5u8).prop_map(|(gpu, n)| format!("GPU-{gpu}.{n}")),
            "[a-c]{0,2}".prop_map(|id| id),
        ];
        proptest::collection::vec(id, 0..24)
    }

    proptest! {
        #[test]
        fn any_answer_is_one_that_the_kubelet_can_use(
            free in ids(), must in proptest::collection::vec(0..24usize, 0..3), size in 0..12usize, placement in 0..3usize
        ) {
            let parts = parts((0..4).map(|gpu| replicas(&format!("GPU-{gpu}"), 5)));
            let placement = PodPlacement::ALL[placement];
            let must: Vec<String> = must.iter().filter_map(|at| free.get(*at).cloned()).collect();
            let answer = prefer(&parts, &free, &must, size, placement);

            let all: BTreeSet<&String> = free.iter().collect();
            let needed: BTreeSet<&String> = must.iter().collect();
            let got: BTreeSet<&String> = answer.iter().collect();
            prop_assert_eq!(got.len(), answer.len(), "an id is there twice");
            if needed.len() > size || all.len() < size {
                prop_assert!(answer.is_empty());
            } else {
                prop_assert_eq!(answer.len(), size);
                prop_assert!(got.is_subset(&all));
                prop_assert!(needed.is_subset(&got));
            }

            let mut other = free.clone();
            other.reverse();
            prop_assert_eq!(&answer, &prefer(&parts, &other, &must, size, placement), "the order of the ids matters");

            // One GPU, if one has room for all.
            let of = |id: &str| parts.get(id).map_or(id.to_owned(), |part| part.gpu.to_string());
            let on = |gpu: &str| all.iter().filter(|id| of(id) == gpu).count();
            let together = placement != PodPlacement::Distributed;
            if together && must.is_empty() && size > 0 && all.iter().any(|id| on(&of(id)) >= size) {
                let gpus: BTreeSet<String> = answer.iter().map(|id| of(id)).collect();
                prop_assert_eq!(gpus.len(), 1);
            }
        }
    }
}
