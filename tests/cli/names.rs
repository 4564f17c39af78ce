//! Names that people type, through the tools that cut them, and policies that others have written.

use crate::{Said, tranche};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use tranche_core::error::Error;
use tranche_core::ledger::OutOfService;
use tranche_core::types::{HostPath, Percent};
use tranche_plan::cdi::validate::validate;
use tranche_plan::cdi::{Spec, build};
use tranche_plan::derive::{HookOptions, NameStrategy, Options, Sharing, derive};
use tranche_plan::inventory::Inventory;
use tranche_plan::policy::read;
use tranche_plan::share::{Grade, Plan, Unused, Wish, fit, plan};

fn inventory(name: &str) -> Inventory {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/plan/sim/{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn planned(yaml: &str, inventory: &Inventory) -> Result<Plan, Error> {
    plan(&read::parse("policy.yaml", yaml)?.policy, inventory)
}

/// The specifications of a policy, one for each kind.
fn specs(yaml: &str, inventory: &Inventory) -> Result<Vec<Spec>, Error> {
    let options = Options {
        hook: Some(HookOptions::default()),
        names: vec![NameStrategy::Index, NameStrategy::Uuid],
        sharing: Some(Sharing {
            held: BTreeSet::new(),
            out_of_service: OutOfService::default(),
            plan: planned(yaml, inventory)?.into(),
            state_dir: HostPath::new("/run/tranche").unwrap(),
        }),
        ..Options::default()
    };
    let derived = derive(inventory, &options)?;
    derived.by_kind().iter().map(|d| Ok(build(d, None)?.0)).collect()
}

/// What docker compose takes for the source of an entry under `devices`: it cuts at each colon and knows `SOURCE`,
/// `SOURCE:TARGET` and `SOURCE:TARGET:PERMISSIONS`; more is an error (compose specification, "devices").
fn compose_source(entry: &str) -> Option<&str> {
    let parts: Vec<&str> = entry.split(':').collect();
    (parts.len() <= 3).then(|| parts[0])
}

/// Every name survives: compose means the same device, or one that is not there, and never another.
fn check(specs: &[Spec]) -> Result<(), String> {
    let all: BTreeSet<String> = specs
        .iter()
        .flat_map(|s| s.devices.iter().map(|d| format!("{}={}", s.kind, d.name)))
        .collect();
    for name in &all {
        if name.contains("::") {
            return Err(format!("{name} has the mark of NVIDIA's device plugin"));
        }
        match compose_source(name) {
            Some(source) if source != name && all.contains(source) => {
                return Err(format!("compose takes {name} for {source}"));
            }
            _ => {}
        }
        // The same if the name is cut at another place.
        for (at, _) in name.match_indices(':') {
            if all.contains(&name[..at]) {
                return Err(format!("{name} begins with another device's name and a colon"));
            }
        }
        name.parse::<tranche_core::types::QualifiedName>()
            .map_err(|e| e.to_string())?;
    }
    for spec in specs {
        let findings = validate(spec);
        if !findings.is_empty() {
            return Err(format!("{findings:?}"));
        }
    }
    Ok(())
}

/// A policy for some devices of a DGX with MIG: whole GPUs and MIG devices, in replicas or by name.
fn policies() -> impl Strategy<Value = String> {
    let devices = prop::sample::subsequence(
        vec!["0", "1", "\"2:0\"", "\"2:1\"", "3", "\"0:0\"", "\"0:1\"", "\"1:0\""],
        1..5,
    );
    let parts = prop_oneof![
        (2u32..30).prop_map(|n| format!("replicas: {n}")),
        prop::collection::btree_set("[a-z][a-z0-9_-]{0,10}", 1..6).prop_map(|names| {
            let shares: Vec<String> = names.iter().map(|n| format!("{{name: \"{n}\"}}")).collect();
            format!("shares: [{}]", shares.join(", "))
        }),
    ];
    let rename = prop::option::of(prop::sample::select(vec!["gpu.shared", "slice", "nvidia.com/part"]));
    let whole = prop::sample::select(vec!["claim", "open", "hide"]);
    (devices, parts, rename, any::<bool>(), whole).prop_map(|(devices, parts, rename, by_default, whole)| {
        let mut yaml = format!(
            "version: v1\nsharing:\n  wholeDevice: {whole}\n  timeSlicing:\n    renameByDefault: {by_default}\n    resources:\n"
        );
        for device in devices {
            let _ = write!(yaml, "    - {{name: nvidia.com/gpu, devices: [{device}], {parts}");
            if let Some(rename) = &rename {
                let _ = write!(yaml, ", rename: {rename}");
            }
            yaml.push_str("}\n");
        }
        yaml
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_name_survives_compose(policy in policies()) {
        // A device that this machine lacks, or has in MIG mode, is refused: no specification, no names.
        if let Ok(specs) = specs(&policy, &inventory("dgx-a100-mig")) {
            prop_assert_eq!(check(&specs), Ok(()), "{}", policy);
        }
    }
}

#[test]
fn equal_replicas_have_one_name_for_any_free_one_and_numbers_while_they_are_few() {
    let dgx = inventory("dgx-a100-mig");
    let mig = dgx.mig_devices().next().unwrap();
    let mig_name = format!("{}:{}", mig.0.index, mig.1.index);
    let bases = [mig_name.clone(), mig.1.uuid.as_ref().unwrap().to_string()];
    let names = |more: &str, parts: &str| -> BTreeSet<String> {
        let yaml = format!(
            "sharing:\n{more}  timeSlicing:\n    resources:\n    - {{name: nvidia.com/gpu, devices: [\"{mig_name}\"], {parts}}}\n"
        );
        let specs = specs(&yaml, &dgx).unwrap();
        assert_eq!(check(&specs), Ok(()));
        let names = specs
            .iter()
            .flat_map(|s| s.devices.iter().map(|d| format!("{}={}", s.kind, d.name)));
        let shares = names.filter(|n| bases.iter().any(|base| n.contains(&format!("={base}."))));
        shares.collect()
    };
    let expected = |kind: &str, shares: &[&str]| -> BTreeSet<String> {
        let names = bases
            .iter()
            .flat_map(|base| shares.iter().map(move |share| format!("{kind}={base}.{share}")));
        names.collect()
    };
    let gpu = "nvidia.com/gpu";
    assert_eq!(names("", "replicas: 2"), expected(gpu, &["any", "0", "1"]));
    assert_eq!(names("  names: any\n", "replicas: 2"), expected(gpu, &["any"]));
    assert_eq!(
        names("", "replicas: 2, rename: slice"),
        expected("nvidia.com/slice", &["any", "0", "1"])
    );
    assert_eq!(names("", "replicas: 32").len(), 2 * 33);
    assert_eq!(names("", "replicas: 33"), expected(gpu, &["any"]));
    assert_eq!(names("  names: each\n", "replicas: 33").len(), 2 * 34);
    // Shares that a person named are not alike: none of them is any, and each keeps its name.
    assert_eq!(
        names("  names: any\n", "shares: [{name: a}, {name: b}]"),
        expected(gpu, &["a", "b"])
    );
}

#[test]
fn a_dedicated_device_has_the_names_of_a_whole_one_each_with_a_claim() {
    let dgx = inventory("dgx-a100-mig");
    let (gpu, mig) = dgx.mig_devices().next().unwrap();
    let mig_name = format!("{}:{}", gpu.index, mig.index);
    let uuid = mig.uuid.as_ref().unwrap().to_string();
    for whole in ["claim", "open", "hide"] {
        let yaml = format!("sharing:\n  wholeDevice: {whole}\n  dedicated: {{devices: [\"{mig_name}\"]}}\n");
        let specs = specs(&yaml, &dgx).unwrap();
        assert_eq!((specs.len(), check(&specs)), (1, Ok(())));
        let of_it: Vec<&str> = specs[0]
            .devices
            .iter()
            .map(|d| d.name.as_str())
            .filter(|name| {
                name.split('.')
                    .next()
                    .is_some_and(|base| base == mig_name || base == uuid)
            })
            .collect();
        assert_eq!(of_it, [mig_name.as_str(), uuid.as_str()]);
        for device in &specs[0].devices {
            let edits = serde_json::to_string(&device.edits).unwrap();
            let claims = edits.contains("--whole") && edits.contains("hook\",\"claim");
            assert_eq!(
                claims,
                of_it.contains(&device.name.as_str()),
                "{whole} {} {edits}",
                device.name
            );
        }
        let plan = planned(&yaml, &dgx).unwrap();
        let share = &plan.devices[0].shares.distinct()[0];
        let grades = [
            &share.guarantees.memory,
            &share.guarantees.compute,
            &share.guarantees.faults,
        ]
        .map(|g| g.grade);
        assert_eq!(grades, [Grade::Hard; 3]);
        let found = fit(
            &plan,
            &Wish {
                compute: Some("70%".parse().unwrap()),
                ..Wish::default()
            },
            &Unused,
        )
        .unwrap();
        assert_eq!(
            (found.device.cdi_name(), found.compute),
            (mig_name.clone(), Some(Percent::ALL))
        );
    }
}

#[test]
fn a_container_sees_the_same_whichever_replica_it_gets() {
    let yaml = "sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 4}\n";
    let specs = specs(yaml, &inventory("hgx-h200")).unwrap();
    let shares: Vec<_> = specs[0].devices.iter().filter(|d| d.name.starts_with("0.")).collect();
    assert_eq!(
        shares.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(),
        ["0.any", "0.0", "0.1", "0.2", "0.3"]
    );
    let seen = |at: usize| {
        let mut edits = serde_json::to_value(&shares[at].edits).unwrap();
        let hooks = edits.as_object_mut().unwrap().remove("hooks").unwrap();
        (edits, hooks.to_string())
    };
    let (any, hook) = seen(0);
    assert!(
        any["env"].to_string().contains("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25"),
        "{any}"
    );
    assert!(hook.contains("--share=any") && hook.contains("--of=4"), "{hook}");
    for at in 0..4 {
        let (numbered, hook) = seen(at + 1);
        assert_eq!(numbered, any);
        assert!(hook.contains(&format!("--share={at}")), "{hook}");
    }
}

#[test]
fn the_check_finds_what_it_looks_for() {
    let inventory = inventory("hgx-h200");
    let yaml = "sharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 2}\n";
    let mut specs = specs(yaml, &inventory).unwrap();
    assert_eq!(check(&specs), Ok(()));
    for bad in ["0::big", "0:big"] {
        let mut device = specs[0].devices[0].clone();
        device.name = bad.into();
        specs[0].devices.push(device);
        assert!(check(&specs).is_err(), "{bad}");
        specs[0].devices.pop();
    }
}

/// Drivers before 470 called MIG devices `MIG-GPU-UUID/GI/CI`, and NVIDIA's files may name them so.
#[test]
fn a_mig_device_has_its_old_name_wherever_a_device_is_chosen() {
    let dgx = inventory("dgx-a100-mig");
    let (gpu, mig) = dgx.mig_devices().nth(1).unwrap();
    let old = format!("MIG-{}/{}/{}", gpu.uuid, mig.gpu_instance, mig.compute_instance);
    let name = format!("{}:{}", gpu.index, mig.index);
    let yaml = format!(
        "sharing:\n  timeSlicing:\n    resources:\n    - {{name: nvidia.com/gpu, devices: [\"{old}\"], replicas: 2}}\n"
    );
    let plan = planned(&yaml, &dgx).unwrap();
    assert_eq!(
        plan.devices.iter().map(|d| d.device.cdi_name()).collect::<Vec<_>>(),
        std::slice::from_ref(&name)
    );

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    std::fs::write(&file, &yaml).unwrap();
    let at = ["--inventory=sim:dgx-a100-mig", &format!("--config={}", file.display())];
    let Said { code, out, err } = tranche(&[&["cdi", "generate", "--device-id", &old], &at[..1]].concat());
    assert!(
        code == Some(0) && out.contains(&format!("name: \"{name}\"\n")),
        "{out}{err}"
    );
    let state = format!("--state-dir={}", dir.path().join("state").display());
    let specs = format!("--spec-dir={}", dir.path().display());
    let create = ["claim", "create", "--name=old", "--device", &old, &state, &specs];
    let Said { code, err, .. } = tranche(&[&create, &at[..]].concat());
    if nix::unistd::geteuid().is_root() {
        assert!(
            code == Some(0) && err.contains(&format!("gpu {name}: share 0")),
            "{err}"
        );
    }
}

/// A GPU whose minor is not its index, so that one taken for the other is noticed.
#[test]
fn every_form_of_a_gpu_means_the_same_wherever_a_device_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let mut inventory = inventory("hgx-h200");
    let minors: Vec<_> = inventory.gpus.iter().rev().map(|gpu| gpu.minor).collect();
    for (gpu, minor) in inventory.gpus.iter_mut().zip(minors) {
        gpu.minor = minor;
    }
    let saved = dir.path().join("inventory.json");
    std::fs::write(&saved, serde_json::to_string(&inventory).unwrap()).unwrap();
    let saved = format!("--inventory={}", saved.display());
    let gpu = &inventory.gpus[2];
    let node = format!("/dev/nvidia{}", gpu.minor);
    assert_ne!(node, "/dev/nvidia2");
    let specs = format!("--spec-dir={}", dir.path().display());
    let of = |form: &str| {
        let Said { code, out: spec, err } = tranche(&["cdi", "generate", &saved, "--device-id", form]);
        assert_eq!(code, Some(0), "{form}: {err}");
        let yaml = format!(
            "sharing:\n  timeSlicing:\n    resources:\n    - {{name: nvidia.com/gpu, devices: [\"{form}\"], replicas: 2}}\n"
        );
        let plan = planned(&yaml, &inventory).unwrap();
        let devices: Vec<String> = plan.devices.iter().map(|d| d.device.cdi_name()).collect();
        let file = dir.path().join("p.yaml");
        std::fs::write(&file, &yaml).unwrap();
        let config = format!("--config={}", file.display());
        let state = format!("--state-dir={}", dir.path().join(form.replace('/', "_")).display());
        let create = [
            "claim",
            "create",
            "--name=one",
            "--device",
            form,
            &config,
            &saved,
            &state,
            &specs,
        ];
        let Said { code, err, .. } = tranche(&create);
        if nix::unistd::geteuid().is_root() {
            assert!(code == Some(0) && err.contains("gpu 2: share 0"), "{form}: {err}");
            let Said { code, err, .. } = tranche(&["claim", "release", "one", &state]);
            assert_eq!(code, Some(0), "{form}: {err}");
        }
        (spec, devices)
    };
    let by_index = of("2");
    assert_eq!(by_index.1, ["2"]);
    assert!(by_index.0.contains(gpu.uuid.as_str()), "{}", by_index.0);
    for form in [gpu.uuid.to_string(), gpu.pci.to_string(), node] {
        assert_eq!(of(&form), by_index, "{form}");
    }
}

#[test]
fn the_device_plugin_s_documentation_works_unchanged() {
    let read = |name: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/device-plugin/{name}.yaml"));
        std::fs::read_to_string(file).unwrap()
    };
    let hgx = inventory("hgx-h200");
    let names = |yaml: &str, inventory: &Inventory| -> BTreeSet<String> {
        let specs = specs(yaml, inventory).unwrap();
        assert_eq!(check(&specs), Ok(()));
        let all = specs.iter();
        all.flat_map(|s| s.devices.iter().map(|d| format!("{}={}", s.kind, d.name)))
            .collect()
    };

    // Ten of each GPU, as the plugin advertises nvidia.com/gpu: 10 for one.
    let plan = planned(&read("time-slicing"), &hgx).unwrap();
    assert!(plan.devices.len() == 8 && plan.devices.iter().all(|d| d.shares.len() == 10));
    let all = names(&read("time-slicing"), &hgx);
    assert!(all.contains("nvidia.com/gpu=7.9") && !all.contains("nvidia.com/gpu=7.10"));

    let all = names(&read("rename-by-default"), &hgx);
    assert!(
        all.contains("nvidia.com/gpu.shared=0.9") && !all.contains("nvidia.com/gpu=0.9"),
        "{all:?}"
    );
    assert!(all.contains("nvidia.com/gpu=0"));

    let strict = planned(&read("fail-requests-greater-than-one"), &hgx).unwrap();
    let wish = |shares| Wish {
        shares: Some(shares),
        ..Wish::default()
    };
    assert!(
        fit(&strict, &wish(2), &Unused)
            .unwrap_err()
            .to_string()
            .contains("one a claim")
    );
    assert_eq!(fit(&strict, &wish(1), &Unused).unwrap().shares.len(), 1);
    let several = planned(&read("rename-by-default"), &hgx).unwrap();
    assert_eq!(fit(&several, &wish(2), &Unused).unwrap().shares.len(), 2, "said: false");

    // Each resource in its own number; profiles that this machine lacks are a note, as one file serves many nodes.
    let dgx = inventory("dgx-a100-mig");
    let mixed = planned(&read("several-resources"), &dgx).unwrap();
    for split in &mixed.devices {
        let expected = match (split.device.mig, split.product.as_str()) {
            (None, _) => 8,
            (Some(_), p) if p.contains("3g.40gb") => 3,
            (Some(_), p) if p.contains("7g.80gb") => 7,
            _ => 2,
        };
        assert_eq!(split.shares.len(), expected, "{} {}", split.device, split.product);
    }
    assert!(
        mixed.devices.iter().any(|d| d.device.mig.is_some()) && mixed.devices.iter().any(|d| d.device.mig.is_none())
    );
    assert!(
        mixed.notes.iter().all(|n| n.contains("this host has no such device")),
        "{:?}",
        mixed.notes
    );

    // A tenth of memory and compute each.
    let mps = planned(&read("mps"), &hgx).unwrap();
    let device = &mps.devices[0];
    assert_eq!(device.shares.len(), 10);
    assert_eq!(device.shares.distinct()[0].compute.unwrap().get(), 10);
    assert_eq!(
        device.shares.distinct()[0].memory.unwrap().mib(),
        device.memory.unwrap().mib() / 10
    );

    let read = read::parse("flags.yaml", &read("flags")).unwrap();
    assert_eq!(read.warnings.len(), 1, "{:?}", read.warnings);
    assert!(
        read.warnings[0]
            .starts_with("flags.yaml:4:3: flags: without an effect here: failOnInitError, nvidiaDriverRoot"),
        "{:?}",
        read.warnings
    );
    assert_eq!(plan_len(&read.policy, &hgx), 4);
}

fn plan_len(policy: &tranche_plan::policy::Policy, inventory: &Inventory) -> usize {
    plan(policy, inventory).unwrap().devices[0].shares.len()
}

#[test]
fn renamed_shares_get_a_file_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let state = format!("--state-dir={}", file("state").display());
    let policy = concat!(
        "--config=",
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/device-plugin/rename-by-default.yaml"
    );
    let base = ["cdi", "generate", "--inventory=sim:hgx-h200", policy, &state];
    let output = format!("--output={}", file("x.yaml").display());
    let Said { code, out, err } = tranche(&[&base[..], &[&output]].concat());
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    let plain = std::fs::read_to_string(file("x.yaml")).unwrap();
    let shared = std::fs::read_to_string(file("x-gpu.shared.yaml")).unwrap();
    assert!(plain.contains("kind: nvidia.com/gpu\n") && !plain.contains("0.9"));
    assert!(
        shared.contains("kind: nvidia.com/gpu.shared\n") && shared.contains("cdiVersion: \"0.7.0\"\n"),
        "{shared:.80}"
    );

    // To stdout goes one specification, not two.
    let Said { code, out, err } = tranche(&base);
    assert_eq!((code, out.as_str(), err.lines().count()), (Some(2), "", 1), "{err}");
    assert!(err.contains("--output"), "{err}");

    // An engine that does not support a dot in a class is reported, and no file is touched.
    let other = format!("--output={}", file("old.yaml").display());
    let Said { code, err, .. } = tranche(&[&base[..], &[&other, "--cdi-version=0.5"]].concat());
    assert_eq!(code, Some(2));
    let line = err.lines().next_back().unwrap();
    assert!(
        line.contains("dot in the class of nvidia.com/gpu.shared") && line.contains("rename"),
        "{line}"
    );
    assert!(!file("old.yaml").exists() && !file("old-gpu.shared.yaml").exists());
}
