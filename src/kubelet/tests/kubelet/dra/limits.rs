//! No answer of a broker becomes slices that an API server refuses.

use super::checker::check;
use super::fixtures::{DRIVER, devices, equal, held, mig, named, node, published, turns, whole};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use tranche_core::types::{MemorySize, Percent};
use tranche_kubelet::dra::slices::{Form, NodeRef, slices};
use tranche_protocol::{DraDevice, DraDevices, DraHeld, DraMig, DraParts, DraShare};

#[test]
fn each_kind_of_device_is_valid_in_both_forms() {
    let all = devices([whole(0), mig(1, 7), mig(1, 8), equal(2, 10), named(3), turns(4, 4)]);
    for form in [Form::Full, Form::Plain] {
        assert_eq!(check(&published(&all, form)), [""; 0], "{form:?}");
        assert_eq!(slices(&all, DRIVER, &node(), form).warnings, [""; 0]);
    }
}

/// A name as a broker writes it, or one that it should not write.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z0-9]{1,5}(-[a-z0-9]{1,5}){0,3}",
        1 => "[a-z-]{0,70}",
        1 => "\\PC{0,40}",
        1 => Just("gpu-0".to_owned()),
    ]
}

fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..5_u64,
        0..200_000_u64,
        any::<u64>(),
        Just(u64::MAX),
        (1 << 42) - 1..(1_u64 << 42) + 2
    ]
}

fn size() -> impl Strategy<Value = MemorySize> {
    amount().prop_map(MemorySize::from_mib)
}

fn share() -> impl Strategy<Value = DraShare> {
    let parts = (name(), name(), of(size()), of(any::<u32>()));
    parts.prop_map(|(device, name, memory, compute)| DraShare {
        device,
        name,
        memory,
        compute: compute.map(Percent::of_sum),
    })
}

fn parts() -> impl Strategy<Value = DraParts> {
    let most = (
        of(size()),
        of(prop_oneof![0..300_u32, any::<u32>()]),
        prop_oneof![0..100_u32, any::<u32>()],
    );
    (any::<bool>(), vec(share(), 0..90), most).prop_map(|(equal, shares, most)| DraParts {
        equal,
        shares,
        most_memory: most.0,
        most_compute: most.1.map(Percent::of_sum),
        most_claims: most.2,
    })
}

fn holder() -> impl Strategy<Value = DraHeld> {
    (of(name()), of(amount()), of(0..120_u32))
        .prop_map(|(share, memory, compute)| held(share.as_deref(), memory, compute))
}

fn any_device(minor: u32) -> impl Strategy<Value = DraDevice> {
    let words = (name(), name(), "\\PC{0,80}", "[0-9.]{0,12}");
    let mig_device = of((name(), of("[0-9]g\\.[0-9]{1,70}gb")));
    let state = (
        of(parts()),
        vec(holder(), 0..4),
        of(name()),
        of(size()),
        of(any::<u32>()),
    );
    (words, mig_device, state).prop_map(move |(words, mig_device, state)| {
        let mut device = whole(minor);
        device.name = words.0;
        device.gpu.pci = words.1;
        device.gpu.product = words.2;
        device.gpu.compute_capability = Some(words.3);
        device.mig = mig_device.map(|(uuid, profile)| DraMig {
            uuid: Some(uuid),
            profile,
            engines: None,
        });
        (
            device.parts,
            device.held,
            device.unhealthy,
            device.memory,
            device.multiprocessors,
        ) = state;
        device
    })
}

/// A node with up to 16 GPUs, of which each is whole or has up to 7 MIG devices.
fn any_node() -> impl Strategy<Value = DraDevices> {
    let gpu = |minor: u32| {
        prop_oneof![
            3 => vec(any_device(minor), 0..3).boxed(),
            1 => Just((0..7).map(|instance| mig(minor, instance)).collect()).boxed(),
            1 => Just(vec![equal(minor, 10)]).boxed(),
        ]
    };
    let gpus: Vec<_> = (0..16).map(gpu).collect();
    (gpus, 0..17_usize, of("[0-9.]{0,70}"), of("\\PC{0,9}")).prop_map(|(gpus, count, driver, cuda)| DraDevices {
        devices: gpus.into_iter().take(count).flatten().collect(),
        driver,
        cuda,
        claims: Vec::new(),
        divided: Vec::new(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn no_answer_of_a_broker_breaks_a_rule(
        all in any_node(),
        driver in "[a-z]{1,20}(\\.[a-z0-9]{1,20}){0,2}",
        name in "[a-z]{1,60}([.-][a-z0-9]{1,60}){0,3}",
    ) {
        let node = NodeRef { name, uid: node().uid };
        for form in [Form::Full, Form::Plain] {
            let pool = slices(&all, &driver, &node, form);
            let objects = super::fixtures::objects(&pool, &driver, &node);
            prop_assert_eq!(check(&objects), Vec::<String>::new());
            // What is left out is either in use or reported.
            if form == Form::Full {
                let is_all = |device: &DraDevice| {
                    device.parts.as_ref().is_some_and(|parts| !parts.equal && parts.shares.is_empty())
                };
                let wanted: usize = all.devices.iter().filter(|device| !is_all(device)).map(|device| {
                    device.parts.as_ref().filter(|parts| !parts.equal).map_or(1, |parts| parts.shares.len())
                }).sum();
                let has: usize = pool.slices.iter().map(|slice| slice.devices.len()).sum();
                let reported = pool.warnings.iter().filter(|line| line.starts_with("the device")).count();
                prop_assert_eq!(has + reported, wanted);
            }
        }
    }
}
