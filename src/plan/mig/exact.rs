//! What a GPU is to have, down to each placement, and the change that comes next on the way there.
//!
//! The next change follows from what the GPU has and what it is to have, and from nothing else. So a process that
//! continues after another one was killed needs no list of what was done.

use super::layout::{GpuSelector, GpuWish, Layout, WishedInstance};
use super::{ComputeProfile, GpuInstance, InstanceProfile, MigGpu, Placement, ProfileId};
use crate::inventory::MigMode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use tranche_core::types::{ComputeInstanceId, DeviceSelector, GpuInstanceId, GpuUuid, MigProfile};

/// What a GPU has, or is to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExactGpu {
    /// The GPU.
    pub gpu: GpuUuid,
    /// Whether it is in MIG mode.
    pub mode: MigMode,
    /// Its GPU instances, by their first unit.
    pub instances: Vec<ExactInstance>,
}

/// A GPU instance in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExactInstance {
    /// Its profile.
    pub profile: ProfileId,
    /// The profile's name, for messages, and for a driver that gives it another number.
    pub name: MigProfile,
    /// Where it lies.
    pub placement: Placement,
    /// Its compute instances, by their first slice.
    pub compute: Vec<ExactCompute>,
}

/// A compute instance. The driver's number of its profile is not in it, because the driver says it only while a GPU
/// instance exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExactCompute {
    /// Its first slice within the GPU instance; `None` where the driver does not say or take it.
    pub start: Option<u32>,
    /// How many slices of the GPU instance it has.
    pub slices: u32,
}

/// One change of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigChange {
    /// Turn MIG mode on or off.
    SetMode(MigMode),
    /// Destroy a compute instance.
    DestroyCompute(GpuInstanceId, ComputeInstanceId),
    /// Destroy a GPU instance, which has no compute instance any more.
    Destroy(GpuInstanceId),
    /// Create a GPU instance.
    Create {
        /// Of this profile.
        profile: ProfileId,
        /// The profile's name.
        name: MigProfile,
        /// At this place.
        placement: Placement,
    },
    /// Create a compute instance in a GPU instance.
    CreateCompute {
        /// In this GPU instance.
        instance: GpuInstanceId,
        /// Of this profile.
        profile: ComputeProfile,
        /// At this slice; `None`: where the driver chooses.
        start: Option<u32>,
    },
}

impl fmt::Display for MigChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetMode(MigMode::Enabled) => f.write_str("turn MIG mode on"),
            Self::SetMode(MigMode::Disabled) => f.write_str("turn MIG mode off"),
            Self::DestroyCompute(instance, compute) => {
                write!(f, "destroy compute instance {compute} of GPU instance {instance}")
            }
            Self::Destroy(instance) => write!(f, "destroy GPU instance {instance}"),
            Self::Create { name, placement, .. } => write!(f, "create {name} at {placement}"),
            Self::CreateCompute { instance, profile, .. } => write!(
                f,
                "create a compute instance with {} slices in GPU instance {instance}",
                profile.slices
            ),
        }
    }
}

/// Why no change leads to what a GPU is to have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoWay {
    /// The driver does not offer compute instances of this size there.
    #[error("the driver offers no compute instance with {slices} slices in {profile}")]
    ComputeProfile {
        /// The GPU instance's profile.
        profile: MigProfile,
        /// The slices.
        slices: u32,
    },
}

impl ExactGpu {
    /// What the GPU has now.
    pub fn of(gpu: &MigGpu) -> Self {
        let mut instances: Vec<ExactInstance> = gpu.instances.iter().filter_map(|one| exact(gpu, one)).collect();
        instances.sort_by_key(|one| one.placement);
        Self {
            gpu: gpu.uuid.clone(),
            mode: gpu.mode.current,
            instances,
        }
    }

    /// The layout that a person would write for it, with the place of each GPU instance.
    pub fn layout(&self) -> Layout {
        let wished = |one: &ExactInstance, slices: Option<u32>| WishedInstance {
            profile: MigProfile {
                // More slices than any GPU has are no profile.
                compute_slices: slices.map(|slices| u8::try_from(slices).unwrap_or(u8::MAX)),
                ..one.name.clone()
            },
            start: Some(one.placement.start),
        };
        let mut instances = BTreeMap::new();
        for one in &self.instances {
            let slices: Vec<Option<u32>> = match one.compute.as_slice() {
                [] => vec![Some(0)],
                [whole] if whole.slices == u32::from(one.name.gpu_slices) => vec![None],
                parts => parts.iter().map(|part| Some(part.slices)).collect(),
            };
            for slices in slices {
                *instances.entry(wished(one, slices)).or_insert(0) += 1;
            }
        }
        Layout {
            gpus: GpuSelector::One(DeviceSelector::GpuUuid(self.gpu.clone())),
            wish: match self.mode {
                MigMode::Disabled => GpuWish::Off,
                MigMode::Enabled => GpuWish::Instances(instances),
            },
        }
    }

    /// The change that comes next if the GPU is as `now`; `None` if it has what it is to have. All that is not wanted
    /// is destroyed before anything is created, because its place may be needed.
    ///
    /// # Errors
    /// Returns why no change leads on.
    pub fn next(&self, now: &MigGpu) -> Result<Option<MigChange>, NoWay> {
        if now.mode.current != self.mode {
            let first = now.instances.first().map(destroy);
            return Ok(Some(first.unwrap_or(MigChange::SetMode(self.mode))));
        }
        // A change of the mode that waits for a reset is taken back.
        if now.mode.pending != self.mode {
            return Ok(Some(MigChange::SetMode(self.mode)));
        }
        let kept = |one: &&GpuInstance| self.wanted(one).is_some();
        if let Some(unwanted) = now.instances.iter().find(|one| !kept(one)) {
            return Ok(Some(destroy(unwanted)));
        }
        for one in &now.instances {
            let Some(wanted) = self.wanted(one) else { continue };
            let profile = now.profile(one.profile);
            let compute = surplus(one, wanted, profile);
            if let Some(compute) = compute {
                return Ok(Some(MigChange::DestroyCompute(one.id, compute)));
            }
        }
        let is_there = |wanted: &ExactInstance| now.instances.iter().find(|one| wanted.is(one));
        if let Some(wanted) = self.instances.iter().find(|wanted| is_there(wanted).is_none()) {
            return Ok(Some(MigChange::Create {
                profile: wanted.profile,
                name: wanted.name.clone(),
                placement: wanted.placement,
            }));
        }
        for wanted in &self.instances {
            let Some(one) = is_there(wanted) else { continue };
            if let Some(change) = missing(one, wanted, now.profile(one.profile))? {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }

    /// What is destroyed on the way if the GPU is as `now`: compute instances, each with its GPU instance, and GPU
    /// instances that have none (`None`).
    pub fn destroyed(&self, now: &MigGpu) -> Vec<(GpuInstanceId, Option<ComputeInstanceId>)> {
        let all_go = now.mode.current != self.mode;
        let mut destroyed = Vec::new();
        for one in &now.instances {
            let compute: Vec<ComputeInstanceId> = match self.wanted(one).filter(|_| !all_go) {
                Some(wanted) => compare(one, wanted, now.profile(one.profile)).0,
                None if one.compute.is_empty() => {
                    destroyed.push((one.id, None));
                    continue;
                }
                None => one.compute.iter().map(|compute| compute.id).collect(),
            };
            destroyed.extend(compute.into_iter().map(|compute| (one.id, Some(compute))));
        }
        destroyed
    }

    /// It, and the instances of `now` that neither it nor `other` has: somebody has created them on
    /// the way from one to the other. What would lie where they are is left out.
    pub fn beside_strangers(&self, other: &Self, now: &MigGpu) -> Self {
        let is_strange = |one: &&GpuInstance| self.wanted(one).is_none() && other.wanted(one).is_none();
        let strangers: Vec<&GpuInstance> = now.instances.iter().filter(is_strange).collect();
        let mut whole = self.clone();
        if strangers.is_empty() {
            return whole;
        }
        whole.mode = now.mode.current;
        let is_free = |one: &ExactInstance| strangers.iter().all(|other| !other.placement.overlaps(&one.placement));
        whole.instances.retain(is_free);
        let strangers = strangers.into_iter().filter_map(|one| exact(now, one));
        whole.instances.extend(strangers);
        whole.instances.sort_by_key(|one| one.placement);
        whole
    }

    fn wanted(&self, one: &GpuInstance) -> Option<&ExactInstance> {
        self.instances.iter().find(|wanted| wanted.is(one))
    }
}

impl ExactInstance {
    fn is(&self, one: &GpuInstance) -> bool {
        one.profile == self.profile && one.placement == self.placement
    }
}

/// Destroys `one`, or what must be destroyed before.
fn destroy(one: &GpuInstance) -> MigChange {
    match one.compute.first() {
        Some(compute) => MigChange::DestroyCompute(one.id, compute.id),
        None => MigChange::Destroy(one.id),
    }
}

/// `None` for an instance of a profile that the driver does not list.
fn exact(gpu: &MigGpu, one: &GpuInstance) -> Option<ExactInstance> {
    let profile = gpu.profile(one.profile)?;
    Some(ExactInstance {
        profile: one.profile,
        name: profile.name.clone(),
        placement: one.placement,
        compute: sizes(one, Some(profile)).into_iter().map(|(_, size)| size).collect(),
    })
}

/// The compute instances that exist, with their sizes, in order.
fn sizes(one: &GpuInstance, profile: Option<&InstanceProfile>) -> Vec<(ComputeInstanceId, ExactCompute)> {
    let slices = |id| {
        profile?
            .compute
            .iter()
            .find(|compute| compute.id == id)
            .map(|compute| compute.slices)
    };
    let mut sizes: Vec<(ComputeInstanceId, ExactCompute)> = one
        .compute
        .iter()
        .map(|compute| {
            let size = ExactCompute {
                start: compute.placement.map(|placement| placement.start),
                slices: compute
                    .placement
                    .map(|p| p.size)
                    .or(slices(compute.profile))
                    .unwrap_or(0),
            };
            (compute.id, size)
        })
        .collect();
    sizes.sort_by_key(|(_, size)| *size);
    sizes
}

/// Pairs what exists with what is wanted: the compute instances that are not wanted, and the sizes that are missing.
fn compare(
    one: &GpuInstance,
    wanted: &ExactInstance,
    profile: Option<&InstanceProfile>,
) -> (Vec<ComputeInstanceId>, Vec<ExactCompute>) {
    let mut missing = wanted.compute.clone();
    let mut surplus = Vec::new();
    for (id, has) in sizes(one, profile) {
        let is_same = |want: &ExactCompute| {
            want.slices == has.slices && want.start.zip(has.start).is_none_or(|(want, has)| want == has)
        };
        match missing.iter().position(is_same) {
            Some(found) => drop(missing.remove(found)),
            None => surplus.push(id),
        }
    }
    (surplus, missing)
}

fn surplus(one: &GpuInstance, wanted: &ExactInstance, profile: Option<&InstanceProfile>) -> Option<ComputeInstanceId> {
    compare(one, wanted, profile).0.into_iter().next()
}

fn missing(
    one: &GpuInstance,
    wanted: &ExactInstance,
    profile: Option<&InstanceProfile>,
) -> Result<Option<MigChange>, NoWay> {
    let (_, missing) = compare(one, wanted, profile);
    let Some(size) = missing.first() else {
        return Ok(None);
    };
    let offered = profile.and_then(|profile| profile.compute_of(size.slices));
    let profile = offered.ok_or_else(|| NoWay::ComputeProfile {
        profile: wanted.name.clone(),
        slices: size.slices,
    })?;
    Ok(Some(MigChange::CreateCompute {
        instance: one.id,
        profile: profile.clone(),
        start: size.start,
    }))
}
