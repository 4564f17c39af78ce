//! MIG instances for the containers of a wish.

use super::super::machine::MachineGpu;
use super::super::wishes::WorkloadKind;
use super::{Instance, Task, Use, set};
use crate::mig::{InstanceProfile, WantedInstance, place};
use std::cmp::Reverse;
use std::collections::BTreeSet;

impl Task<'_> {
    /// `count` instances for `containers` containers each, of the profile that is the `variant`-th best.
    pub(super) fn instances(
        &self,
        uses: &mut [Use],
        variant: usize,
        count: u32,
        containers: u32,
    ) -> Result<(), String> {
        if self.machine.gpus.iter().all(|gpu| gpu.empty.is_none()) {
            return Err("no GPU of this host can be divided by MIG".to_owned());
        }
        let mut order: Vec<(usize, &MachineGpu<'_>)> = self.gpus().collect();
        let is_begun = |at: usize| matches!(uses.get(at), Some(Use::Mig(_)));
        order.sort_by_key(|(at, gpu)| (!is_begun(*at), !gpu.gpu.is_in_mig_mode(), *at));
        let mut left = count;
        for (at, gpu) in order {
            let (Some(empty), Some(profile)) = (&gpu.empty, self.profiles(gpu, containers).into_iter().nth(variant))
            else {
                continue;
            };
            let mut instances = match uses.get(at) {
                Some(Use::Free) => Vec::new(),
                Some(Use::Mig(instances)) => instances.clone(),
                _ => continue,
            };
            while left > 0 {
                let compute = profile.whole_compute().map_or(profile.slices, |compute| compute.slices);
                instances.push(Instance {
                    wanted: WantedInstance {
                        profile: profile.id,
                        start: None,
                        compute: vec![compute],
                    },
                    profile: profile.name.clone(),
                    seat: self.seat.clone(),
                    containers,
                });
                let wanted: Vec<WantedInstance> = instances.iter().map(|one| one.wanted.clone()).collect();
                if place(empty, &wanted, &BTreeSet::new()).is_none() {
                    instances.pop();
                    break;
                }
                left -= 1;
            }
            if !instances.is_empty() {
                set(uses, at, Use::Mig(instances));
            }
        }
        match left {
            0 => Ok(()),
            _ => Err(format!("{count} instances of the size needed do not fit")),
        }
    }

    /// The profiles of `gpu` that are large enough for `containers`, the best first: for a known size the smallest, for
    /// training the largest, and otherwise the largest of which a GPU has two.
    fn profiles<'g>(&self, gpu: &'g MachineGpu<'_>, containers: u32) -> Vec<&'g InstanceProfile> {
        let whole = gpu.slices();
        let memory = self.seat.memory.unwrap_or(0).saturating_mul(u64::from(containers));
        let is_enough = |profile: &&InstanceProfile| {
            let compute = self.seat.compute.unwrap_or(0);
            profile.memory.mib() >= memory && profile.slices * 100 >= compute.saturating_mul(whole)
        };
        let mut profiles: Vec<&InstanceProfile> = gpu.profiles().filter(is_enough).collect();
        let size = |profile: &InstanceProfile| (profile.slices, profile.memory);
        let is_training = self.one.kind == WorkloadKind::Training && self.one.tenant.is_none();
        match (is_training, self.seat.memory.or(self.seat.compute.map(u64::from))) {
            (true, _) => profiles.sort_by_key(|profile| Reverse(size(profile))),
            (false, Some(_)) => profiles.sort_by_key(|profile| size(profile)),
            (false, None) => profiles.sort_by_key(|profile| (profile.slices * 2 > whole, Reverse(size(profile)))),
        }
        profiles
    }
}
