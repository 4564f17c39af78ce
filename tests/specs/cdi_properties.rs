//! What holds for every specification, whatever the host.

use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::ledger::OutOfService;
use tranche_core::types::{
    CdiVersion, ComputeInstanceId, ContainerPath, GpuIndex, GpuInstanceId, HostPath, MigIndex, Minor,
};
use tranche_plan::cdi::encode::{Format, encode};
use tranche_plan::cdi::validate::validate;
use tranche_plan::cdi::{LeftOut, Spec, build, minimum_version, parse};
use tranche_plan::derive::{HookOptions, NameStrategy, Options, Sharing, derive};
use tranche_plan::inventory::{
    Arch, ControlNode, ControlRole, DeviceNode, DriKind, DriNode, Driver, DriverCapability, DriverFile, ElfClass,
    FileKind, Gpu, HostMount, Inventory, Link, MigDevice, MigMode, MigState, Platform, PlatformKind,
};

prop_compose! {
    fn node(path: String)(
        elsewhere in any::<bool>(),
        present in any::<bool>(),
        mode in prop::option::of(prop::sample::select(vec![0o666, 0o660, 0o400])),
        gid in prop::sample::select(vec![0, 0, 44, 110]),
    ) -> DeviceNode {
        let host = if elsewhere { format!("/run/driver{path}") } else { path.clone() };
        DeviceNode {
            host: HostPath::new(host).unwrap(),
            container: ContainerPath::new(&path).unwrap(),
            major: 195,
            minor: 1,
            mode,
            uid: 0,
            gid,
            present,
        }
    }
}

prop_compose! {
    fn mig(gpu: u32, index: u32)(
        uuid in prop::option::of(any::<bool>()),
        gi in node(format!("/dev/nvidia-caps/nvidia-cap{}", gpu * 100 + index * 2)),
        ci in prop::option::of(node(format!("/dev/nvidia-caps/nvidia-cap{}", gpu * 100 + index * 2 + 1))),
        profile in prop::sample::select(vec!["1g.10gb", "1c.2g.20gb", "1g.10gb+gfx"]),
    ) -> MigDevice {
        MigDevice {
            index: MigIndex(index),
            uuid: uuid.map(|old| if old {
                format!("MIG-GPU-{gpu:08}-aaaa/{index}/0").parse().unwrap()
            } else {
                format!("MIG-{gpu:04}{index:04}-bbbb").parse().unwrap()
            }),
            gpu_instance: GpuInstanceId(index),
            compute_instance: ComputeInstanceId(0),
            profile: Some(profile.parse().unwrap()),
            memory: None,
            sms: None,
            engines: None,
            gpu_slices: None,
            compute_slices: None,
            gpu_instance_cap: Some(gi),
            compute_instance_cap: ci,
        }
    }
}

prop_compose! {
    fn gpu(index: u32)(
        node in prop::option::weighted(0.9, node(format!("/dev/nvidia{}", 7 - index))),
        card in node(format!("/dev/dri/card{index}")),
        by_path in prop::option::of(Just(format!("pci-0000:0{index}:00.0-card"))),
        in_mig in any::<bool>(),
        migs in prop::collection::vec(any::<bool>(), 0..3)
            .prop_flat_map(move |migs| (0..migs.len() as u32).map(|i| mig(index, i)).collect::<Vec<_>>()),
    ) -> Gpu {
        let mode = if in_mig { MigMode::Enabled } else { MigMode::Disabled };
        Gpu {
            index: GpuIndex(index),
            index_is_known: true,
            minor: Minor(7 - index),
            uuid: format!("GPU-{index:08}-aaaa").parse().unwrap(),
            pci: format!("0000:0{index}:00.0").parse().unwrap(),
            name: "NVIDIA Test".into(),
            architecture: None,
            compute_capability: None,
            sms: None,
            memory: None,
            mig: Some(MigState { current: mode, pending: mode }),
            compute_mode: None,
            persistence: None,
            addressing: None,
            brand: None,
            pcie_root: None,
            numa_node: None,
            virtualization: None,
            node,
            dri: vec![DriNode { kind: DriKind::Card, node: card, by_path }],
            mig_devices: migs,
            uses_system_memory: false,
            unnamed_instances: Vec::new(),
        }
    }
}

fn file(name: &str, capability: DriverCapability, links: Vec<Link>) -> DriverFile {
    let path = format!("/usr/lib64/{name}");
    DriverFile {
        host: HostPath::new(format!("/run/driver{path}")).unwrap(),
        container: ContainerPath::new(&path).unwrap(),
        kind: FileKind::Library {
            soname: None,
            class: ElfClass::Elf64,
            own_version: false,
        },
        capability,
        links,
    }
}

prop_compose! {
    fn host()(
        gpus in (1u32..5).prop_flat_map(|n| (0..n).map(gpu).collect::<Vec<_>>()),
        names in prop::collection::btree_set("lib[a-z]{1,6}\\.so\\.1\\.2", 1..6),
        ctl in node("/dev/nvidiactl".into()),
        uvm in node("/dev/nvidia-uvm".into()),
    ) -> Inventory {
        let mut inventory = Inventory::empty(Platform {
            arch: Arch::X86_64,
            kind: PlatformKind::Linux,
            kernel: "6.1".into(),
            cgroup_v2: false,
        });
        inventory.gpus = gpus;
        inventory.nodes.control = vec![
            ControlNode { role: ControlRole::Ctl, node: ctl },
            ControlNode { role: ControlRole::Uvm, node: uvm },
        ];
        let link = |name: &String| Link {
            path: ContainerPath::new(format!("/usr/lib64/{}", name.replace(".1.2", ".1"))).unwrap(),
            target: name.clone(),
        };
        inventory.driver = Some(Driver {
            version: "1.2".parse().unwrap(),
            cuda: None,
            limits_cgroups: false,
            library_dirs: vec![HostMount {
                host: HostPath::new("/run/driver/usr/lib64").unwrap(),
                container: ContainerPath::new("/usr/lib64").unwrap(),
            }],
            files: names.iter().map(|n| file(n, DriverCapability::Compute, vec![link(n)])).collect(),
        });
        inventory
    }
}

prop_compose! {
    fn options()(
        all_device in any::<bool>(),
        hook in any::<bool>(),
        additional_gids in any::<bool>(),
        names in prop::sample::subsequence(vec![NameStrategy::Index, NameStrategy::Uuid, NameStrategy::TypeIndex], 1..=3),
    ) -> Options {
        Options {
            all_device,
            hook: hook.then(HookOptions::default),
            additional_gids,
            names,
            ..Options::default()
        }
    }
}

fn made(inventory: &Inventory, options: &Options, cap: Option<CdiVersion>) -> Spec {
    build(&derive(inventory, options).unwrap(), cap).unwrap().0
}

proptest! {
    #[test]
    fn every_specification_is_good(inventory in host(), options in options()) {
        let spec = made(&inventory, &options, None);
        prop_assert_eq!(validate(&spec), []);
        prop_assert_eq!(&spec.version, minimum_version(&spec).as_str());
        for device in &spec.devices {
            prop_assert!(!device.name.contains("::") && !device.name.contains('/'));
        }
        for hook in &spec.edits.hooks {
            prop_assert!(!hook.env.is_empty(), "runc gives such a hook the environment of the image");
        }
        let yaml = encode(&spec, Format::Yaml, &["x".into()]).unwrap();
        let json = encode(&spec, Format::Json, &[]).unwrap();
        prop_assert_eq!(&parse::spec(yaml.as_bytes()).unwrap(), &spec);
        prop_assert_eq!(&parse::spec(json.as_bytes()).unwrap(), &spec);
    }

    #[test]
    fn a_cap_holds(inventory in host(), options in options(), cap in prop::sample::select(vec!["0.5", "0.6", "0.7", "1.1"])) {
        let cap: CdiVersion = cap.parse().unwrap();
        let derived = derive(&inventory, &options).unwrap();
        let (spec, left_out) = build(&derived, Some(cap)).unwrap();
        prop_assert!(minimum_version(&spec) <= cap);
        prop_assert_eq!(validate(&spec), []);
        let whole = build(&derived, None).unwrap().0;
        prop_assert_eq!(left_out.is_empty(), spec == whole, "what is left out is listed");
        prop_assert!(left_out.iter().all(|l| l.needs > cap));
    }

    #[test]
    fn the_order_of_an_inventory_does_not_matter(inventory in host(), options in options()) {
        let mut other = inventory.clone();
        other.gpus.reverse();
        other.nodes.control.reverse();
        for gpu in &mut other.gpus {
            gpu.mig_devices.reverse();
            gpu.dri.reverse();
        }
        if let Some(driver) = &mut other.driver {
            driver.files.reverse();
        }
        prop_assert_eq!(made(&inventory, &options, None), made(&other, &options, None));
    }

    #[test]
    fn no_bytes_harm_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse::spec(&bytes);
        let _ = parse::outline(&bytes);
    }

    #[test]
    fn nor_does_a_broken_specification(inventory in host(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let spec = made(&inventory, &Options::default(), None);
        let mut text = encode(&spec, Format::Yaml, &[]).unwrap().into_bytes();
        let at = at.index(text.len());
        if cut { text.truncate(at) } else { text[at] = byte }
        if let Ok(spec) = parse::spec(&text) {
            let _ = validate(&spec);
        }
    }
}

#[test]
fn a_cap_that_cannot_be_met_is_refused() {
    let inventory: Inventory = serde_json::from_str(include_str!("../../src/plan/sim/hgx-h200.json")).unwrap();
    let mut options = Options::default();
    let said = |options: &Options, cap: &str| {
        let derived = derive(&inventory, options).unwrap();
        build(&derived, Some(cap.parse().unwrap())).unwrap_err().to_string()
    };
    assert!(said(&options, "0.2").contains("too old"));
    options.class = Some("gpu.shared".into());
    assert!(said(&options, "0.5").contains("dot in the class"));
    let mut options = Options {
        names: vec![NameStrategy::Index],
        devices: vec!["0".parse().unwrap()],
        all_device: false,
        ..Options::default()
    };
    assert!(said(&options, "0.4").contains("leaves no device"));
    options.names.push(NameStrategy::Uuid);
    let (spec, left_out) = build(&derive(&inventory, &options).unwrap(), Some("0.4".parse().unwrap())).unwrap();
    assert_eq!((spec.version.as_str(), spec.devices.len()), ("0.3.0", 1));
    assert_eq!(
        LeftOut::comments(&left_out),
        [
            "Left out: 0: the device: its name begins with a digit (CDI 0.5.0)".to_owned(),
            format!(
                "Left out: {}: additional groups 44, 105 (CDI 0.7.0)",
                spec.devices[0].name
            ),
        ]
    );
    // In a file all names are of use; a line for a person stops at eight.
    let all = derive(&inventory, &Options::default()).unwrap();
    let (_, left_out) = build(&all, Some("0.5".parse().unwrap())).unwrap();
    assert_eq!(
        LeftOut::lines(&left_out, "nvidia.com/gpu"),
        [
            "nvidia.com/gpu: left out, because it needs CDI 0.7.0: additional groups 44, 105; devices: 0, 1, 2, 3, 4, 5, 6, 7 \
          and 9 more"
        ]
    );
}

/// Everything that tranche can write about a host: the specifications of each mode, and the shares of a policy.
fn everything(inventory: &Inventory) -> Vec<Option<Spec>> {
    let policy = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n";
    let policy = tranche_plan::policy::read::parse("x.yaml", policy).unwrap().policy;
    let plan = tranche_plan::share::plan(&policy, inventory).ok();
    let state_dir = HostPath::new("/run/tranche").unwrap();
    let mut all = vec![Options {
        sharing: plan.map(|plan| Sharing {
            plan: plan.into(),
            held: BTreeSet::new(),
            out_of_service: OutOfService::default(),
            state_dir,
        }),
        split_by_coherence: true,
        ..Options::default()
    }];
    for mode in ["nvml", "management", "gds", "mofed", "gdrcopy", "nvswitch", "imex"] {
        all.push(Options {
            mode: mode.parse().unwrap(),
            hook: None,
            ..Options::default()
        });
    }
    let specs = all.iter().flat_map(|options| {
        let derived = derive(inventory, options)
            .map(|derived| derived.by_kind())
            .unwrap_or_default();
        derived
            .into_iter()
            .map(|one| build(&one, None).ok().map(|(spec, _)| spec))
            .collect::<Vec<_>>()
    });
    specs.collect()
}

/// The places of all values below `value`, as JSON pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Array(items) => (0..)
            .zip(items)
            .for_each(|(i, item): (usize, _)| places(item, &format!("{at}/{i}"), found)),
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, field)| places(field, &format!("{at}/{name}"), found)),
        _ => {}
    }
}

/// Other values that may be valid in the place of `value`.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::Bool(old) => vec![json!(!old)],
        Value::Number(old) => vec![json!(old.as_u64().unwrap() + 1)],
        Value::Array(items) if !items.is_empty() => vec![json!(items[1..])],
        Value::String(old) => {
            let enums = [
                "proc",
                "aarch64",
                "wsl",
                "enabled",
                "disabled",
                "prohibited",
                "ats",
                "vgpu",
                "kepler",
            ];
            let enums = enums
                .iter()
                .chain(&["graphics", "card", "control", "uvm_tools", "config", "32"]);
            let changed = [format!("{old}1"), old.replace(['1', '5'], "2"), format!("1{old}")];
            let changed = changed.into_iter().map(|text| json!(text));
            let others = enums.map(|text| json!(text)).chain(changed);
            others.filter(|other| *other != *value).collect()
        }
        _ => Vec::new(),
    }
}

/// Changes each field of an inventory, and compares: a field that a specification depends on is part of the digest. The
/// few that are not part of it are named here.
#[test]
fn the_digest_changes_with_every_specification() {
    let mut left_out = BTreeSet::new();
    let mut fields = BTreeMap::new();
    for simulation in tranche_plan::sim::ALL
        .iter()
        .filter(|sim| ["t4x2", "gb200", "dgx-a100-mig"].contains(&sim.name))
    {
        let inventory = tranche_plan::sim::open(simulation.name).unwrap();
        let (specs, digest) = (
            everything(&inventory),
            tranche_specs::digests::of_host(&inventory).unwrap(),
        );
        let whole = serde_json::to_value(&inventory).unwrap();
        let mut found = Vec::new();
        places(&whole, "", &mut found);
        for place in found {
            let field: String = place
                .split('/')
                .filter(|part| part.parse::<usize>().is_err())
                .collect::<Vec<_>>()
                .join("/");
            // Values of one field are alike: three of them are enough.
            let tried = fields.entry(field.clone()).or_insert(0);
            for other in others(whole.pointer(&place).unwrap()) {
                if *tried == 3 {
                    break;
                }
                let mut changed = whole.clone();
                *changed.pointer_mut(&place).unwrap() = other;
                let Ok(changed) = serde_json::from_value::<Inventory>(changed) else {
                    continue;
                };
                *tried += 1;
                if tranche_specs::digests::of_host(&changed).unwrap() == digest {
                    assert!(
                        everything(&changed) == specs,
                        "{}: {place} changes a specification",
                        simulation.name
                    );
                    left_out.insert(field.clone());
                }
            }
        }
    }
    assert!(
        fields.len() > 80 && fields.values().filter(|tried| **tried > 0).count() > 70,
        "{fields:?}"
    );
    left_out.retain(|field| {
        !["major", "minor", "uid"]
            .iter()
            .any(|number| field.ends_with(&format!("/{number}")))
    });
    let expected = [
        "/absent",
        "/absent/looked_in",
        "/absent/what",
        "/format",
        "/gpus/compute_mode",
        "/gpus/mig/pending",
        "/gpus/persistence",
        "/platform/kernel",
    ];
    assert_eq!(left_out.into_iter().collect::<Vec<_>>(), expected);
}
