//! What holds for every wish.

use super::products::product;
use crate::mig::{ComputeInstance, ComputeProfileId};
use crate::mig::{ExactGpu, GpuInstance, InstanceHolder, Layout, MigChange, MigGpu, Placement, plan};
use proptest::prelude::*;
use tranche_core::types::{ComputeInstanceId, GpuInstanceId};

/// Does to `gpu` what the change says, as a driver would.
fn make(gpu: &mut MigGpu, change: &MigChange, next: &mut u32) {
    *next += 1;
    match change {
        MigChange::SetMode(mode) => {
            gpu.mode.current = *mode;
            gpu.mode.pending = *mode;
        }
        MigChange::DestroyCompute(instance, compute) => {
            let one = gpu.instances.iter_mut().find(|one| one.id == *instance).unwrap();
            one.compute.retain(|one| one.id != *compute);
        }
        MigChange::Destroy(instance) => {
            let one = gpu.instances.iter().find(|one| one.id == *instance).unwrap();
            assert!(one.compute.is_empty());
            gpu.instances.retain(|one| one.id != *instance);
        }
        MigChange::Create { profile, placement, .. } => {
            assert!(gpu.instances.iter().all(|one| !one.placement.overlaps(placement)));
            gpu.instances.push(GpuInstance {
                id: GpuInstanceId(*next),
                profile: *profile,
                placement: *placement,
                compute: Vec::new(),
            });
        }
        MigChange::CreateCompute { instance, profile, .. } => {
            let one = gpu.instances.iter_mut().find(|one| one.id == *instance).unwrap();
            let start = one
                .compute
                .iter()
                .filter_map(|c| c.placement)
                .map(|p| p.start + p.size)
                .max();
            one.compute.push(ComputeInstance {
                id: ComputeInstanceId(*next),
                profile: ComputeProfileId(profile.id.0),
                placement: Some(Placement {
                    start: start.unwrap_or(0),
                    size: profile.slices,
                }),
                uuid: None,
            });
        }
    }
}

/// Makes all changes that lead to `exact`; returns how many instances were destroyed.
fn reach(gpu: &mut MigGpu, exact: &ExactGpu) -> usize {
    let ids = gpu
        .instances
        .iter()
        .flat_map(|one| one.compute.iter().map(|compute| compute.id.0).chain([one.id.0]));
    let (mut next, mut destroyed) = (ids.max().unwrap_or(0), 0);
    for _ in 0..200 {
        match exact.next(gpu).unwrap() {
            None => return destroyed,
            Some(change) => {
                destroyed += usize::from(matches!(change, MigChange::DestroyCompute(..)));
                make(gpu, &change, &mut next);
            }
        }
    }
    panic!("it does not end: {:?} {:?}", exact.next(gpu), exact);
}

fn layout() -> impl Strategy<Value = String> {
    let profile = prop::sample::select(vec![
        "1g.5gb",
        "1g.5gb",
        "1g.5gb+me",
        "1g.10gb",
        "2g.10gb",
        "3g.20gb",
        "4g.20gb",
        "7g.40gb",
        "1c.3g.20gb",
        "2c.3g.20gb",
        "1c.2g.10gb",
    ]);
    prop::collection::vec(profile, 0..6).prop_map(|list| match list.is_empty() {
        true => "0:empty".to_owned(),
        false => format!("0:{}", list.join(",")),
    })
}

proptest! {
    #[test]
    fn a_plan_leads_to_its_layout_and_destroys_nothing_that_is_used(
        first in layout(), second in layout(), used in prop::collection::vec(any::<bool>(), 8)
    ) {
        let mut gpu = product("a100-40");
        let read = |text: &str| vec![text.parse::<Layout>().unwrap()];
        let Ok(exact) = plan(&read(&first), std::slice::from_ref(&gpu), &[]) else { return Ok(()) };
        reach(&mut gpu, &exact[0]);
        // What is there already needs no change.
        let again = plan(&read(&first), std::slice::from_ref(&gpu), &[]).unwrap();
        prop_assert_eq!(again[0].next(&gpu), Ok(None));
        // What is there, written as a layout and read again, is what is there.
        let written = ExactGpu::of(&gpu).layout().to_string();
        let same = plan(&read(&written), std::slice::from_ref(&gpu), &[]).unwrap();
        prop_assert_eq!(same[0].next(&gpu), Ok(None), "{}", written);
        let holders: Vec<InstanceHolder> = gpu.instances.iter().zip(used).filter(|(_, used)| *used).map(|(one, _)| {
            InstanceHolder { gpu: gpu.uuid.clone(), instance: Some((one.id, None)), who: format!("holder {}", one.id) }
        }).collect();
        let before = gpu.clone();
        match plan(&read(&second), std::slice::from_ref(&gpu), &holders) {
            Ok(exact) => {
                let promised = exact[0].destroyed(&before);
                let destroyed = reach(&mut gpu, &exact[0]);
                prop_assert_eq!(promised.iter().filter(|(_, compute)| compute.is_some()).count(), destroyed);
                for holder in &holders {
                    let id = holder.instance.unwrap().0;
                    let find = |gpu: &MigGpu| gpu.instances.iter().find(|one| one.id == id).cloned();
                    let (was, is) = (find(&before).unwrap(), find(&gpu).unwrap());
                    prop_assert_eq!((was.profile, was.placement), (is.profile, is.placement));
                    // More compute instances may be made beside those that there were.
                    prop_assert!(was.compute.iter().all(|compute| is.compute.contains(compute)));
                }
            }
            Err(error) => {
                let text = error.to_string();
                // Without those who are named it is possible, and without any one of them it is not.
                let named = |holder: &&InstanceHolder| text.contains(&format!("{} ", holder.who))
                    || text.contains(&format!("{},", holder.who));
                let others: Vec<InstanceHolder> = holders.iter().filter(|h| !named(h)).cloned().collect();
                let in_the_way: Vec<InstanceHolder> = holders.iter().filter(|h| named(h)).cloned().collect();
                if !in_the_way.is_empty() {
                    prop_assert!(plan(&read(&second), std::slice::from_ref(&gpu), &others).is_ok(), "{}", text);
                    for one in &in_the_way {
                        let mut but_one = others.clone();
                        but_one.push(one.clone());
                        prop_assert!(plan(&read(&second), std::slice::from_ref(&gpu), &but_one).is_err(), "{}", text);
                    }
                }
            }
        }
    }
}
