//! No answer of a broker becomes slices that an API server refuses.

use super::checker::check;
use super::fixtures::{DRIVER, devices, equal, held, mig, named, node, published, turns, whole};
use k8s_openapi::api::resource::v1::{DeviceAttribute, DeviceTaint, ResourceSlice};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use tranche_core::broker::{DraDevice, DraDevices, DraHeld, DraMig, DraParts, DraShare};
use tranche_kubelet::dra::slices::{Form, NodeRef, slices};

#[test]
fn each_kind_of_device_is_valid_in_both_forms() {
    let all = devices([whole(0), mig(1, 7), mig(1, 8), equal(2, 10), named(3), turns(4, 4)]);
    for form in [Form::Full, Form::Plain] {
        assert_eq!(check(&published(&all, form)), [""; 0], "{form:?}");
        assert_eq!(slices(&all, DRIVER, &node(), form).warnings, [""; 0]);
    }
}

/// A change of a slice that must be found.
type Mutant = (&'static str, fn(&mut Vec<ResourceSlice>));

fn device(slices: &mut [ResourceSlice]) -> &mut k8s_openapi::api::resource::v1::Device {
    &mut slices[0].spec.devices.as_mut().unwrap()[0]
}

fn range(slices: &mut [ResourceSlice]) -> &mut k8s_openapi::api::resource::v1::CapacityRequestPolicyRange {
    let memory = device(slices).capacity.as_mut().unwrap().get_mut("memory").unwrap();
    memory.request_policy.as_mut().unwrap().valid_range.as_mut().unwrap()
}

fn text(value: &str) -> DeviceAttribute {
    DeviceAttribute {
        string: Some(value.into()),
        ..DeviceAttribute::default()
    }
}

fn quantity(text: &str) -> Option<Quantity> {
    Some(Quantity(text.into()))
}

const MUTANTS: &[Mutant] = &[
    ("name with dots", |s| device(s).name = "gpu.0".into()),
    ("name too long", |s| device(s).name = "g".repeat(64)),
    ("name twice", |s| device(s).name = "gpu-1".into()),
    ("generation", |s| s[0].spec.pool.generation = 9),
    ("count", |s| {
        s.iter_mut().for_each(|s| s.spec.pool.resource_slice_count = 3)
    }),
    ("no slice left", |s| {
        s.iter_mut().for_each(|s| s.spec.pool.resource_slice_count = 0)
    }),
    ("a slice is missing", |s| drop(s.pop())),
    ("pool", |s| s[1].spec.pool.name = "other".into()),
    ("driver", |s| s.iter_mut().for_each(|s| s.spec.driver = "-x".into())),
    ("node", |s| s.iter_mut().for_each(|s| s.spec.node_name = None)),
    ("two ways to a node", |s| s[0].spec.all_nodes = Some(true)),
    ("a node for a device", |s| device(s).node_name = Some("gpu1".into())),
    ("neither devices nor counters", |s| s[0].spec.devices = None),
    ("devices and counters", |s| {
        s[0].spec.shared_counters = Some(vec![Default::default()])
    }),
    ("order", |s| s.reverse()),
    ("names of slices", |s| {
        s[0].metadata.generate_name = s[1].metadata.generate_name.clone()
    }),
    ("long name of a slice", |s| {
        s[0].metadata.generate_name = Some("0".repeat(59))
    }),
    ("name of a slice", |s| s[0].metadata.generate_name = Some("0.-".into())),
    ("owner", |s| {
        s[0].metadata.owner_references.as_mut().unwrap()[0].uid.clear()
    }),
    ("long string", |s| {
        drop(
            device(s)
                .attributes
                .as_mut()
                .unwrap()
                .insert("x".into(), text(&"x".repeat(65))),
        )
    }),
    ("key", |s| {
        drop(device(s).attributes.as_mut().unwrap().insert("gpu-x".into(), text("x")))
    }),
    ("long key", |s| {
        drop(device(s).attributes.as_mut().unwrap().insert("k".repeat(33), text("x")))
    }),
    ("domain", |s| {
        drop(device(s).attributes.as_mut().unwrap().insert("-/x".into(), text("x")))
    }),
    ("no value", |s| {
        drop(
            device(s)
                .attributes
                .as_mut()
                .unwrap()
                .insert("x".into(), DeviceAttribute::default()),
        )
    }),
    ("version", |s| {
        let version = DeviceAttribute {
            version: Some("570.124.06".into()),
            ..DeviceAttribute::default()
        };
        device(s).attributes.as_mut().unwrap().insert("x".into(), version);
    }),
    ("33 attributes", |s| {
        let all = device(s).attributes.as_mut().unwrap();
        (all.len() + 3..33).for_each(|n| drop(all.insert(format!("x{n}"), text("x"))));
    }),
    ("65 devices with taints", |s| {
        let one = device(s).clone();
        let taint = DeviceTaint {
            effect: "NoSchedule".into(),
            key: "x".into(),
            ..DeviceTaint::default()
        };
        let all = s[0].spec.devices.as_mut().unwrap();
        all[0].taints = Some(vec![taint]);
        all.extend((0..64).map(|n| k8s_openapi::api::resource::v1::Device {
            name: format!("d{n}"),
            ..one.clone()
        }));
    }),
    ("effect", |s| {
        let taint = DeviceTaint {
            effect: "PreferNoSchedule".into(),
            key: "x".into(),
            ..DeviceTaint::default()
        };
        device(s).taints = Some(vec![taint]);
    }),
    ("key of a taint", |s| {
        let taint = DeviceTaint {
            effect: "NoSchedule".into(),
            key: "a/b/c".into(),
            ..DeviceTaint::default()
        };
        device(s).taints = Some(vec![taint]);
    }),
    ("policy for one claim", |s| device(s).allow_multiple_allocations = None),
    ("no policy", |s| {
        device(s)
            .capacity
            .as_mut()
            .unwrap()
            .get_mut("shares")
            .unwrap()
            .request_policy = None
    }),
    ("no default", |s| {
        let shares = device(s).capacity.as_mut().unwrap().get_mut("shares").unwrap();
        shares.request_policy.as_mut().unwrap().default = None;
    }),
    ("value", |s| {
        device(s).capacity.as_mut().unwrap().get_mut("memory").unwrap().value = Quantity("1gi".into())
    }),
    ("value below max", |s| {
        device(s).capacity.as_mut().unwrap().get_mut("memory").unwrap().value = Quantity("1Gi".into())
    }),
    ("default", |s| {
        let memory = device(s).capacity.as_mut().unwrap().get_mut("memory").unwrap();
        memory.request_policy.as_mut().unwrap().default = quantity("1");
    }),
    ("default between steps", |s| {
        let memory = device(s).capacity.as_mut().unwrap().get_mut("memory").unwrap();
        memory.request_policy.as_mut().unwrap().default = quantity("1537Ki");
    }),
    ("max between steps", |s| {
        range(s).max = quantity("139Gi").map(|_| Quantity("100000000001".into()))
    }),
    ("max below the default", |s| range(s).max = quantity("2Mi")),
    ("max above the value", |s| range(s).max = quantity("1Ti")),
    ("min above the value", |s| range(s).min = Quantity("1Ti".into())),
    ("step", |s| range(s).step = quantity("0")),
    ("step above the value", |s| range(s).step = quantity("1Ti")),
    ("counters that are not there", |s| {
        let one = k8s_openapi::api::resource::v1::DeviceCounterConsumption {
            counter_set: "x".into(),
            counters: [("memory".to_owned(), Default::default())].into(),
        };
        device(s).consumes_counters = Some(vec![one]);
    }),
];

#[test]
fn the_checker_finds_each_mutant() {
    let all = devices([equal(0, 10), equal(1, 10)]);
    for (what, change) in MUTANTS {
        let mut slices = published(&all, Form::Full);
        assert_eq!(check(&slices), [""; 0]);
        change(&mut slices);
        assert_ne!(check(&slices), [""; 0], "{what} is not found");
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

fn share() -> impl Strategy<Value = DraShare> {
    (name(), name(), of(amount()), of(any::<u32>())).prop_map(|(device, name, memory_mib, compute)| DraShare {
        device,
        name,
        memory_mib,
        compute,
    })
}

fn parts() -> impl Strategy<Value = DraParts> {
    let most = (
        of(amount()),
        of(prop_oneof![0..300_u32, any::<u32>()]),
        prop_oneof![0..100_u32, any::<u32>()],
    );
    (any::<bool>(), vec(share(), 0..90), most).prop_map(|(equal, shares, most)| DraParts {
        equal,
        shares,
        most_memory_mib: most.0,
        most_compute: most.1,
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
        of(amount()),
        of(any::<u32>()),
    );
    (words, mig_device, state).prop_map(move |(words, mig_device, state)| {
        let mut device = whole(minor);
        device.name = words.0;
        device.gpu.pci = words.1;
        device.gpu.product = words.2;
        device.gpu.compute_capability = Some(words.3);
        device.mig = mig_device.map(|(uuid, profile)| DraMig { uuid, profile });
        (
            device.parts,
            device.held,
            device.unhealthy,
            device.memory_mib,
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
            prop_assert_eq!(check(&objects), vec![String::new(); 0]);
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
