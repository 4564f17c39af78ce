//! From layouts and the state of the GPUs to what each GPU is to have, or to who stands in the way.

use super::exact::ExactGpu;
use super::layout::{GpuSelector, GpuWish, Layout, WishedInstance};
use super::place::{Kept, WantedInstance, place};
use super::{InstanceProfile, MigGpu};
use crate::inventory::MigMode;
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::error::{Error, Result};
use tranche_core::text::{candidates, some};
use tranche_core::types::{ComputeInstanceId, DeviceSelector, GpuInstanceId, GpuUuid, MigProfile};

/// Somebody who uses a part of a GPU, so that it must not be destroyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceHolder {
    /// The GPU.
    pub gpu: GpuUuid,
    /// The GPU instance and the compute instance; `None` for the whole GPU, or where it is not known which instance is
    /// used.
    pub instance: Option<(GpuInstanceId, Option<ComputeInstanceId>)>,
    /// The name by which a person knows the holder.
    pub who: String,
}

/// What each GPU that a layout names is to have, in the order of the GPUs. A GPU that no layout names is not in it. Of
/// several layouts that name a GPU, the last one counts.
///
/// # Errors
/// Returns the first GPU that cannot have what its layout says: because the product lacks a profile, because the
/// instances do not fit, or because of holders, who are named; also a layout that names no GPU here.
pub fn plan(layouts: &[Layout], gpus: &[MigGpu], holders: &[InstanceHolder]) -> Result<Vec<ExactGpu>> {
    let mut meant: BTreeMap<usize, &GpuWish> = BTreeMap::new();
    for layout in layouts {
        for gpu in selected(layout, gpus)? {
            meant.insert(gpu, &layout.wish);
        }
    }
    let exact = meant
        .into_iter()
        .filter_map(|(number, wish)| Some((gpus.get(number)?, wish)));
    exact.map(|(gpu, wish)| plan_one(gpu, wish, holders)).collect()
}

impl Layout {
    /// The one of `layouts` that counts for this GPU: the last one that names it.
    pub fn of<'l>(gpu: &MigGpu, layouts: &'l [Self]) -> Option<&'l Self> {
        layouts.iter().rfind(|layout| layout.names(gpu))
    }

    /// Whether it is for this GPU.
    pub fn names(&self, gpu: &MigGpu) -> bool {
        match &self.gpus {
            GpuSelector::All => true,
            GpuSelector::One(selector) => is_selected(selector, gpu),
            GpuSelector::MigParted(selector) => selector.names(&gpu.into()),
        }
    }
}

/// The positions of the GPUs that a layout names.
fn selected(layout: &Layout, gpus: &[MigGpu]) -> Result<Vec<usize>> {
    let numbered = gpus.iter().enumerate();
    let found: Vec<usize> = numbered
        .filter(|(_, gpu)| layout.names(gpu))
        .map(|(number, _)| number)
        .collect();
    // mig-parted's files name GPUs of other machines as well.
    if found.is_empty() && !matches!(layout.gpus, GpuSelector::MigParted(_)) {
        let there: Vec<String> = gpus.iter().map(|gpu| gpu.index.to_string()).collect();
        let error = Error::usage(format!("layout {layout}"), "names no GPU with MIG of this machine");
        return Err(match there.is_empty() {
            true => error,
            false => error.hint(format!("expected all or one of {}", candidates("", &there))),
        });
    }
    Ok(found)
}

fn is_selected(selector: &DeviceSelector, gpu: &MigGpu) -> bool {
    match selector {
        DeviceSelector::Index(device) => device.mig.is_none() && device.gpu == gpu.index,
        DeviceSelector::GpuUuid(uuid) => *uuid == gpu.uuid,
        DeviceSelector::Pci(pci) => *pci == gpu.pci,
        DeviceSelector::Minor(_) | DeviceSelector::MigUuid(_) => false,
    }
}

fn plan_one(gpu: &MigGpu, wish: &GpuWish, holders: &[InstanceHolder]) -> Result<ExactGpu> {
    let name = format!("gpu {}", gpu.index);
    // What is reserved on an instance that a boot has ended is in nobody's way: the instance is made again for it.
    let exists = |holder: &&InstanceHolder| match holder.instance {
        Some((instance, _)) => gpu.instances.iter().any(|one| one.id == instance),
        None => true,
    };
    let own: Vec<&InstanceHolder> = holders
        .iter()
        .filter(|holder| holder.gpu == gpu.uuid)
        .filter(exists)
        .collect();
    let GpuWish::Instances(instances) = wish else {
        return match own.as_slice() {
            [] => Ok(ExactGpu {
                gpu: gpu.uuid.clone(),
                mode: MigMode::Disabled,
                instances: Vec::new(),
            }),
            _ if gpu.mode.current == MigMode::Disabled => Ok(ExactGpu::of(gpu)),
            own => Err(in_the_way(&name, own)),
        };
    };
    let wanted = wanted(gpu, &name, instances)?;
    if gpu.mode.current == MigMode::Disabled && !own.is_empty() {
        return Err(in_the_way(&name, &own));
    }
    if let Some((exact, _)) = place(gpu, &wanted, &kept(gpu, &own)) {
        return Ok(exact);
    }
    if place(gpu, &wanted, &BTreeSet::new()).is_none() {
        return Err(does_not_fit(gpu, &name, wish));
    }
    Err(in_the_way(&name, &fewest(gpu, &wanted, &own)))
}

/// What the holders keep.
fn kept(gpu: &MigGpu, holders: &[&InstanceHolder]) -> BTreeSet<Kept> {
    let all = || gpu.instances.iter().map(|one| (one.id, None)).collect::<Vec<Kept>>();
    let of = |holder: &&InstanceHolder| holder.instance.map_or_else(all, |instance| vec![instance]);
    holders.iter().flat_map(of).collect()
}

/// The smallest set of holders without whom the layout is possible. There are at most as many as instances that matter,
/// because those of one instance stand and fall together.
fn fewest<'h>(gpu: &MigGpu, wanted: &[WantedInstance], holders: &[&'h InstanceHolder]) -> Vec<&'h InstanceHolder> {
    let groups: BTreeSet<Vec<Kept>> = holders
        .iter()
        .map(|one| kept(gpu, &[one]).into_iter().collect())
        .collect();
    let groups: Vec<Vec<Kept>> = groups.into_iter().collect();
    // More groups than a GPU has compute instances cannot be; the limit keeps the search short whatever the driver
    // says.
    const MOST: usize = 16;
    let number = groups.len().min(MOST);
    let mut sets: Vec<u32> = (0..1 << number).collect();
    sets.sort_by_key(|set: &u32| (set.count_ones(), *set));
    let is_gone = |set: u32, group: usize| group < MOST && set & (1 << group) != 0;
    let enough = sets.into_iter().find(|set| {
        let left = groups.iter().enumerate().filter(|(group, _)| !is_gone(*set, *group));
        let kept: BTreeSet<Kept> = left.flat_map(|(_, kept)| kept).copied().collect();
        place(gpu, wanted, &kept).is_some()
    });
    let goes = |holder: &&&InstanceHolder| {
        let own: Vec<Kept> = kept(gpu, &[holder]).into_iter().collect();
        let group = groups.iter().position(|group| *group == own);
        enough.is_none_or(|set| group.is_none_or(|group| is_gone(set, group)))
    };
    holders.iter().filter(goes).copied().collect()
}

fn in_the_way(name: &str, holders: &[&InstanceHolder]) -> Error {
    let names: BTreeSet<&str> = holders.iter().map(|holder| holder.who.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let stands = if names.len() == 1 { "stands" } else { "stand" };
    Error::failed(name, format!("{} {stands} in the way of the layout", some(&names)))
        .hint("end that, or choose a layout that keeps what is in use")
}

fn does_not_fit(gpu: &MigGpu, name: &str, wish: &GpuWish) -> Error {
    let error = Error::usage(name, format!("cannot have {wish} at once"));
    let most: Vec<String> = gpu
        .profiles
        .iter()
        .map(|profile| format!("{}x{}", profile.most, profile.name))
        .collect();
    error.hint(format!("it can have at most {} of one kind", some(&most)))
}

/// The instances of a layout with the profiles of this GPU. Compute instances of one profile of GPU instance fill GPU
/// instances one after the other, the largest first.
fn wanted(gpu: &MigGpu, name: &str, wish: &BTreeMap<WishedInstance, u32>) -> Result<Vec<WantedInstance>> {
    let mut wanted = Vec::new();
    let mut parts: BTreeMap<(u32, Option<u32>), Vec<u32>> = BTreeMap::new();
    for (one, count) in wish {
        let profile = offered(gpu, name, &one.profile)?;
        check_place(profile, name, one)?;
        match one.profile.compute_slices.map(u32::from) {
            Some(slices) if slices > profile.slices => {
                let what = format!(
                    "has no profile {}: {} has {} slices",
                    one.profile, profile.name, profile.slices
                );
                return Err(Error::usage(name, what));
            }
            Some(0) => wanted.extend((0..*count).map(|_| WantedInstance {
                profile: profile.id,
                start: one.start,
                compute: Vec::new(),
            })),
            Some(slices) if slices < profile.slices => {
                let sizes = parts.entry((profile.id.0, one.start)).or_default();
                sizes.extend((0..*count).map(|_| slices));
            }
            _ => wanted.extend((0..*count).map(|_| WantedInstance {
                profile: profile.id,
                start: one.start,
                compute: vec![profile.slices],
            })),
        }
    }
    for ((id, start), mut sizes) in parts {
        let Some(profile) = gpu.profiles.iter().find(|profile| profile.id.0 == id) else {
            continue;
        };
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut bins: Vec<Vec<u32>> = Vec::new();
        for size in sizes {
            let has_room = |bin: &&mut Vec<u32>| bin.iter().sum::<u32>() + size <= profile.slices;
            match bins.iter_mut().find(has_room) {
                Some(bin) => bin.push(size),
                None => bins.push(vec![size]),
            }
        }
        wanted.extend(bins.into_iter().map(|compute| WantedInstance {
            profile: profile.id,
            start,
            compute,
        }));
    }
    Ok(wanted)
}

/// Refuses a place at which no instance of the profile can lie, whatever else there is.
fn check_place(profile: &InstanceProfile, name: &str, one: &WishedInstance) -> Result<()> {
    let starts = || profile.placements.iter().map(|place| place.start);
    let Some(wrong) = one.start.filter(|start| !starts().any(|known| known == *start)) else {
        return Ok(());
    };
    let error = Error::usage(name, format!("no {} can begin at {wrong}", profile.name));
    let places: Vec<String> = starts().map(|start| format!("{}@{start}", profile.name)).collect();
    Err(error.hint(format!("its places are {}", some(&places))))
}

/// The GPU's profile of this name. The driver computes the gigabytes of a name from the memory that it reports, so the
/// same profile has another name with another driver: where one profile alone has these slices and attributes and
/// this memory within a twentieth, it is meant: 1g.23gb for 1g.24gb, and not 1g.18gb for 1g.20gb.
pub(super) fn offered<'g>(gpu: &'g MigGpu, name: &str, wished: &MigProfile) -> Result<&'g InstanceProfile> {
    let is_same = |profile: &&InstanceProfile| {
        let has = &profile.name;
        (has.gpu_slices, &has.attributes) == (wished.gpu_slices, &wished.attributes)
    };
    let exact = gpu
        .profiles
        .iter()
        .filter(is_same)
        .find(|profile| profile.name.memory_gb == wished.memory_gb);
    let near = || {
        let is_near = |profile: &&InstanceProfile| {
            let (has, wants) = (profile.name.memory_gb, wished.memory_gb);
            has.abs_diff(wants) * 20 <= has.max(wants)
        };
        let mut near = gpu.profiles.iter().filter(is_same).filter(is_near);
        near.next().filter(|_| near.next().is_none())
    };
    exact.or_else(near).ok_or_else(|| {
        let has: Vec<String> = gpu.profiles.iter().map(|profile| profile.name.to_string()).collect();
        let error = Error::usage(name, format!("has no profile {wished}"));
        match has.is_empty() {
            true => error.hint("its driver lists profiles only while MIG mode is on"),
            false => error.hint(format!("{} has {}", gpu.product, candidates(&wished.to_string(), &has))),
        }
    })
}
