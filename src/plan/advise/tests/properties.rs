//! What holds for every wish on every built-in machine.

use super::*;
use crate::mig::plan;
use crate::policy::read::parse;
use crate::share::{Holds, Plan, SplitDevice, Wish};
use proptest::prelude::*;
use tranche_core::error::Kind;
use tranche_core::types::{Device, DevicePart, MemorySize, Percent, ShareName};

fn workload(trust: Trust) -> impl Strategy<Value = Workload> {
    let kind = prop::sample::select(WorkloadKind::ALL);
    let memory = prop::option::of((1_u64..100).prop_map(|gib| MemorySize::from_mib(gib * 1024)));
    let compute = prop::option::weighted(
        0.3,
        (1_u32..=100).prop_map(|compute| Percent::try_from(compute).unwrap()),
    );
    (kind, 1_u32..12, memory, compute, any::<(bool, bool)>()).prop_map(move |(kind, count, memory, compute, more)| {
        let latency = match kind != WorkloadKind::Training && more.0 {
            true => Latency::Bounded,
            false => Latency::Usual,
        };
        Workload {
            memory,
            compute,
            latency,
            whole_gpu: more.1 && compute.is_none(),
            tenant: (trust == Trust::None && more.0).then(|| "a".to_owned()),
            ..Workload::new("x".parse().unwrap(), kind, count)
        }
    })
}

fn wishes() -> impl Strategy<Value = Wishes> {
    prop::sample::select(Trust::ALL).prop_flat_map(|trust| {
        prop::collection::vec(workload(trust), 1..4).prop_map(move |workloads| {
            let named = workloads.into_iter().enumerate();
            let named = named.map(|(at, one)| Workload {
                name: format!("w{at}").parse().unwrap(),
                ..one
            });
            Wishes {
                file: "w.yaml".to_owned(),
                trust,
                workloads: named.collect(),
            }
        })
    })
}

/// The shares that the containers before have.
struct Held(Vec<(Device, ShareName)>);

impl Holds for Held {
    fn is_free(&self, split: &SplitDevice, name: &ShareName) -> bool {
        !self.0.contains(&(split.device, name.clone()))
    }

    fn named(&self, split: &SplitDevice) -> Vec<ShareName> {
        let own = self.0.iter().filter(|(device, _)| *device == split.device);
        own.map(|(_, name)| name.clone()).collect()
    }
}

/// Asks for each name of the advice as an engine does, one after the other.
fn all_are_granted(advice: &Advice, plan: &Plan, inventory: &Inventory) {
    let mut held = Held(Vec::new());
    for ask in advice.choices.iter().flat_map(|choice| &choice.ask) {
        let name: DevicePart = ask.strip_prefix("nvidia.com/gpu=").unwrap().parse().unwrap();
        let device = inventory.catalogue().find(&name.device).unwrap();
        let mut wish = Wish::default();
        wish.add(plan, device, &name.part, ask).unwrap();
        let fit = share::fit(plan, &wish, &held).unwrap();
        held.0.extend(fit.shares.into_iter().map(|share| (fit.device, share)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    /// The text is a policy without a warning, its layouts are possible, a machine with them has every device that it
    /// names, and untrusted tenants share none.
    #[test]
    fn what_is_proposed_is_granted(wishes in wishes(), sim in prop::sample::select(sim::ALL), first in 0_usize..4) {
        let mut inventory = sim::open(sim.name).unwrap();
        inventory.gpus.drain(..first.min(inventory.gpus.len() - 1));
        let (mig, _) = described(&inventory);
        match advise(&wishes, &inventory, &mig) {
            Err(error) => {
                prop_assert_eq!(error.kind(), Kind::Found);
                prop_assert!(!line(&error).contains('\n'));
            }
            Ok(advice) => {
                let read = parse("policy", &advice.policy).unwrap();
                prop_assert!(read.warnings.is_empty(), "{:?}", read.warnings);
                let written: Vec<String> = read.policy.mig_layouts.iter().map(ToString::to_string).collect();
                prop_assert_eq!(&written, &advice.mig_layouts);
                prop_assert!(plan(&read.policy.mig_layouts, &mig, &[]).is_ok(), "{:?}", written);
                if advice.mig_layouts.is_empty() {
                    let plan = share::plan(&read.policy, &inventory).unwrap();
                    prop_assert!(plan.absent.is_empty() && plan.notes.is_empty() && plan.warnings.is_empty());
                    all_are_granted(&advice, &plan, &inventory);
                }
                for (choice, one) in advice.choices.iter().zip(&wishes.workloads) {
                    let (served, count) = (choice.ask.len(), one.count as usize);
                    prop_assert!(served == count || choice.way == Way::Waiting && (1..count).contains(&served), "{choice:?}");
                    prop_assert!(choice.worth.is_some() && !choice.devices.is_empty(), "{choice:?}");
                    let apart = matches!(choice.way, Way::Whole | Way::Waiting | Way::Mig);
                    prop_assert!(apart || wishes.trust == Trust::Team, "{choice:?}");
                    prop_assert!(one.latency == Latency::Usual || choice.way != Way::Turns || one.tenant.is_some());
                }
                for other in &advice.runners_up {
                    prop_assert!(!other.gives_up.is_empty());
                }
            }
        }
    }
}
