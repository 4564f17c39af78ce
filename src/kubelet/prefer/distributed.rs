//! Each share from the device of which the least is allocated: the shares of one container are on several GPUs.

use crate::catalog::Parts;
use std::collections::{BTreeMap, BTreeSet};

/// What several shares are of: a GPU, or a MIG device.
#[derive(Default)]
struct Divided<'a> {
    gpu: &'a str,
    numa: Option<u32>,
    /// The free shares, in the order of the offers.
    free: BTreeSet<(usize, &'a str)>,
    /// How many are allocated, with those that the container gets.
    used: usize,
    /// How many of them the container gets.
    chosen: usize,
}

/// Chooses `size` of `available`, with all of `must`; the caller has checked that there are as many. Of two devices of
/// which the same is allocated, the one of which the container has less is taken, then the one on the GPU of which it
/// has less, and then one of the same NUMA node.
pub(super) fn choose<'a>(parts: &'a Parts, available: &'a [String], must: &'a [String], size: usize) -> Vec<&'a str> {
    let must: BTreeSet<&str> = must.iter().map(String::as_str).collect();
    let available: BTreeSet<&str> = available.iter().map(String::as_str).collect();
    let known = parts.keys().map(String::as_str);
    let all: BTreeSet<&str> = known
        .chain(available.iter().copied())
        .chain(must.iter().copied())
        .collect();
    let mut devices: BTreeMap<&str, Divided> = BTreeMap::new();
    let mut on_gpu: BTreeMap<&str, usize> = BTreeMap::new();
    let mut numa = None;
    for id in all {
        let device = devices.entry(device_of(id)).or_default();
        let part = parts.get(id);
        device.gpu = part.map_or(id, |part| &*part.gpu);
        device.numa = part.and_then(|part| part.numa);
        if must.contains(id) {
            device.chosen += 1;
            *on_gpu.entry(device.gpu).or_default() += 1;
            numa = numa.or(device.numa);
        }
        match available.contains(id) && !must.contains(id) {
            true => drop(device.free.insert((part.map_or(usize::MAX, |part| part.order), id))),
            false => device.used += 1,
        }
    }
    let mut chosen: Vec<&str> = must.into_iter().collect();
    while chosen.len() < size {
        let candidates = devices.values_mut().filter(|device| !device.free.is_empty());
        let best = candidates.min_by_key(|device| {
            let is_far = numa.is_some() && device.numa != numa;
            let of_gpu = on_gpu.get(device.gpu).copied().unwrap_or(0);
            (device.used, device.chosen, of_gpu, is_far, device.free.first().copied())
        });
        let Some((device, (_, id))) = best.and_then(|device| device.free.pop_first().map(|first| (device, first)))
        else {
            return Vec::new();
        };
        (device.used, device.chosen) = (device.used + 1, device.chosen + 1);
        *on_gpu.entry(device.gpu).or_default() += 1;
        numa = numa.or(device.numa);
        chosen.push(id);
    }
    chosen
}

/// The device of which `id` is a share. The UUID of a device has no dot.
fn device_of(id: &str) -> &str {
    id.split_once('.').map_or(id, |(device, _)| device)
}
