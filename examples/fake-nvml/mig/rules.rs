//! Which instances a product can have, in the simulator's own words.

use crate::config::{ComputeInstance, GpuInstance, Mig};
use std::hash::{DefaultHasher, Hash, Hasher};
use tranche_plan::mig::{InstanceProfile, MigGpu};

/// Why the driver refuses something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Full,
    Invalid,
    InUse,
    NotFound,
}

/// The tables, by the names in the configuration.
const TABLES: [(&str, &str); 7] = [
    ("a30", include_str!("../../../src/plan/sim/mig/a30.json")),
    ("a100-40", include_str!("../../../src/plan/sim/mig/a100-40.json")),
    ("a100-80", include_str!("../../../src/plan/sim/mig/a100-80.json")),
    ("h100-80", include_str!("../../../src/plan/sim/mig/h100-80.json")),
    ("h200", include_str!("../../../src/plan/sim/mig/h200.json")),
    ("b200", include_str!("../../../src/plan/sim/mig/b200.json")),
    (
        "rtx-pro-6000",
        include_str!("../../../src/plan/sim/mig/rtx-pro-6000.json"),
    ),
];

/// A product.
pub(crate) struct Table(MigGpu);

impl Table {
    pub(crate) fn of(mig: &Mig) -> Option<Self> {
        let name = mig.product.as_deref()?;
        let (_, text) = TABLES.iter().find(|(known, _)| *known == name)?;
        serde_json::from_str(text).ok().map(Self)
    }

    pub(crate) fn is_resetless(&self) -> bool {
        self.0.resetless == Some(true)
    }

    pub(crate) fn by_index(&self, index: u32) -> Option<&InstanceProfile> {
        self.0.profiles.iter().find(|profile| profile.index.0 == index)
    }

    pub(crate) fn by_id(&self, id: u32) -> Option<&InstanceProfile> {
        self.0.profiles.iter().find(|profile| profile.id.0 == id)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&InstanceProfile> {
        self.0.profiles.iter().find(|profile| profile.name.to_string() == name)
    }

    pub(crate) fn slices(&self, name: &str) -> u32 {
        self.by_name(name).map_or(0, |profile| profile.slices)
    }

    /// The slices of compute instances of this profile; `None` if the GPU instance has no such profile.
    pub(crate) fn compute_slices(&self, name: &str, id: u32) -> Option<u32> {
        let profile = self.by_name(name)?;
        profile
            .compute
            .iter()
            .find(|compute| compute.id.0 == id)
            .map(|compute| compute.slices)
    }

    /// The units that the instances take, as bits.
    fn units(&self, mig: &Mig) -> u64 {
        let bits = |one: &GpuInstance| {
            let size = self
                .by_name(&one.profile)
                .and_then(|profile| profile.placements.first())
                .map_or(0, |p| p.size);
            ((1 << size) - 1) << one.start
        };
        mig.instances.iter().map(bits).fold(0, |all, bits| all | bits)
    }

    /// Whether the limits of the profile and of the media engines leave room for one more.
    fn has_room(&self, mig: &Mig, profile: &InstanceProfile) -> bool {
        let name = profile.name.to_string();
        let same = mig.instances.iter().filter(|one| one.profile == name).count();
        let engines = |profile: &InstanceProfile| {
            let has = profile.engines;
            [has.decoders, has.encoders, has.jpeg, has.ofa]
        };
        let mut sum = engines(profile);
        for one in mig.instances.iter().filter_map(|one| self.by_name(&one.profile)) {
            sum.iter_mut().zip(engines(one)).for_each(|(sum, more)| *sum += more);
        }
        let mut total = [0; 4];
        for one in &self.0.profiles {
            total
                .iter_mut()
                .zip(engines(one))
                .for_each(|(total, has)| *total = has.max(*total));
        }
        same < profile.most as usize && sum.iter().zip(total).all(|(sum, total)| *sum <= total)
    }

    /// The places of the profile that are free.
    fn free(&self, mig: &Mig, profile: &InstanceProfile) -> Vec<u32> {
        let units = self.units(mig);
        let is_free = |start: &u32| {
            let size = profile.placements.first().map_or(0, |place| place.size);
            units & (((1 << size) - 1) << start) == 0
        };
        profile
            .placements
            .iter()
            .map(|place| place.start)
            .filter(is_free)
            .collect()
    }

    /// How many instances of this profile can still be created, one after the other.
    pub(crate) fn remaining(&self, mig: &Mig, id: u32) -> Result<u32, Refusal> {
        let mut mig = mig.clone();
        let mut count = 0;
        self.by_id(id).ok_or(Refusal::Invalid)?;
        while self.create(&mut mig, id, None).is_ok() {
            count += 1;
        }
        Ok(count)
    }

    /// Creates a GPU instance. Without a place, a model of the driver's choice: the last place that is free.
    pub(crate) fn create(&self, mig: &mut Mig, id: u32, place: Option<(u32, u32)>) -> Result<(), Refusal> {
        let profile = self.by_id(id).ok_or(Refusal::Invalid)?;
        let is_place =
            |(start, size): (u32, u32)| profile.placements.iter().any(|p| (p.start, p.size) == (start, size));
        if place.is_some_and(|place| !is_place(place)) {
            return Err(Refusal::Invalid);
        }
        let free = self.free(mig, profile);
        let start = match place {
            Some((start, _)) => Some(start).filter(|start| free.contains(start)),
            None => free.last().copied(),
        };
        let start = start.filter(|_| self.has_room(mig, profile)).ok_or(Refusal::Full)?;
        let id = self.number(mig, profile).ok_or(Refusal::Full)?;
        mig.instances.push(GpuInstance {
            id,
            used_mib: 0,
            profile: profile.name.to_string(),
            start,
            memory_mib: profile.memory.mib(),
            sms: profile.sms,
            nvml_profile: Some(profile.index.0),
            compute: Vec::new(),
        });
        Ok(())
    }

    /// The lowest free number for a share of the memory of this size: 0 for all of it, then halves, quarters, eighths
    /// (NVIDIA's open kernel modules, swizzle ids). It does not tell the place.
    fn number(&self, mig: &Mig, profile: &InstanceProfile) -> Option<u32> {
        let units = self
            .0
            .profiles
            .iter()
            .flat_map(|p| &p.placements)
            .map(|p| p.start + p.size)
            .max()?;
        let size = profile.placements.first()?.size;
        let mut range = match units / size.max(1) {
            0 | 1 => 0..=0,
            2 => 1..=2,
            3 | 4 => 3..=6,
            _ => 7..=14,
        };
        range.find(|id| mig.instances.iter().all(|one| one.id != *id))
    }

    /// Creates a compute instance, at the first free slices where no place is given.
    pub(crate) fn create_compute(
        &self,
        mig: &mut Mig,
        instance: u32,
        profile: u32,
        start: Option<u32>,
    ) -> Result<(), Refusal> {
        let index = (0..).find(|index| {
            mig.instances
                .iter()
                .flat_map(|one| &one.compute)
                .all(|c| c.index != *index)
        });
        let made = mig.made + 1;
        let one = mig
            .instances
            .iter_mut()
            .find(|one| one.id == instance)
            .ok_or(Refusal::NotFound)?;
        let all = self.slices(&one.profile);
        let slices = self.compute_slices(&one.profile, profile).ok_or(Refusal::Invalid)?;
        let taken: u64 = one
            .compute
            .iter()
            .map(|compute| ((1 << compute.slices.unwrap_or(all)) - 1) << compute.start.unwrap_or(compute.id))
            .fold(0, |all: u64, bits: u64| all | bits);
        let is_free = |start: &u32| *start + slices <= all && taken & (((1 << slices) - 1) << start) == 0;
        let start = match start {
            Some(start) => Some(start).filter(is_free),
            None => (0..all).find(is_free),
        };
        let start = start.ok_or(Refusal::Full)?;
        let id = (0..)
            .find(|id| one.compute.iter().all(|compute| compute.id != *id))
            .ok_or(Refusal::Full)?;
        one.compute.push(ComputeInstance {
            id,
            uuid: uuid(mig.product.as_deref().unwrap_or_default(), made),
            slices: Some(slices),
            start: Some(start),
            index: index.ok_or(Refusal::Full)?,
        });
        mig.made = made;
        Ok(())
    }
}

/// A UUID that no earlier instance of the GPU had.
fn uuid(product: &str, made: u64) -> String {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (product, made, salt).hash(&mut hasher);
        hasher.finish()
    };
    let (a, b) = (half(1), half(2));
    format!(
        "MIG-{:08x}-{:04x}-5{:03x}-8{:03x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        b >> 52,
        b & 0xffff_ffff_ffff
    )
}

/// Destroys a GPU instance.
pub(crate) fn destroy(mig: &mut Mig, id: u32) -> Result<(), Refusal> {
    let at = mig
        .instances
        .iter()
        .position(|one| one.id == id)
        .ok_or(Refusal::NotFound)?;
    if mig.instances.get(at).is_some_and(|one| !one.compute.is_empty()) {
        return Err(Refusal::InUse);
    }
    mig.instances.remove(at);
    Ok(())
}

/// Destroys a compute instance.
pub(crate) fn destroy_compute(mig: &mut Mig, instance: u32, id: u32) -> Result<(), Refusal> {
    let one = mig
        .instances
        .iter_mut()
        .find(|one| one.id == instance)
        .ok_or(Refusal::NotFound)?;
    let at = one
        .compute
        .iter()
        .position(|compute| compute.id == id)
        .ok_or(Refusal::NotFound)?;
    one.compute.remove(at);
    Ok(())
}
