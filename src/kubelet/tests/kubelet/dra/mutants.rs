//! Slices that the checker must refuse.

use super::checker::check;
use super::fixtures::{devices, equal, published};
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicyRange, Device, DeviceAttribute, DeviceCounterConsumption, DeviceTaint, ResourceSlice,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tranche_kubelet::dra::slices::Form;

/// A change of a slice that must be found.
type Mutant = (&'static str, fn(&mut Vec<ResourceSlice>));

fn device(slices: &mut [ResourceSlice]) -> &mut Device {
    &mut slices[0].spec.devices.as_mut().unwrap()[0]
}

fn range(slices: &mut [ResourceSlice]) -> &mut CapacityRequestPolicyRange {
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
        all.extend((0..64).map(|n| Device {
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
        let one = DeviceCounterConsumption {
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
