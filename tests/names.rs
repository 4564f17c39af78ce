//! Names that people type, through the tools that cut them, and policies that others have written.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use tranche::cdi::validate::validate;
use tranche::cdi::{Spec, build};
use tranche::derive::{HookOptions, NameStrategy, Options, Sharing, derive};
use tranche::error::Error;
use tranche::inventory::Inventory;
use tranche::policy::read;
use tranche::share::{Grade, Plan, Wish, fit, plan};
use tranche::types::HostPath;

fn inventory(name: &str) -> Inventory {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/sim/{name}.json"));
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
            plan: planned(yaml, inventory)?,
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
        // The same for whoever cuts at another place.
        for (at, _) in name.match_indices(':') {
            if all.contains(&name[..at]) {
                return Err(format!("{name} begins with another device's name and a colon"));
            }
        }
        name.parse::<tranche::types::QualifiedName>()
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
        let share = &plan.devices[0].shares[0];
        let grades = [
            &share.guarantees.memory,
            &share.guarantees.compute,
            &share.guarantees.faults,
        ]
        .map(|g| g.grade);
        assert_eq!(grades, [Grade::Hard; 3]);
        let found = fit(
            &plan,
            Wish {
                compute: Some(70),
                ..Wish::default()
            },
            |_, _| true,
        )
        .unwrap();
        assert_eq!((found.device.cdi_name(), found.compute), (mig_name.clone(), Some(100)));
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
        fit(&strict, wish(2), |_, _| true)
            .unwrap_err()
            .to_string()
            .contains("one a claim")
    );
    assert_eq!(fit(&strict, wish(1), |_, _| true).unwrap().shares.len(), 1);
    let several = planned(&read("rename-by-default"), &hgx).unwrap();
    assert_eq!(
        fit(&several, wish(2), |_, _| true).unwrap().shares.len(),
        2,
        "said: false"
    );

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
        mixed.notes.iter().all(|n| n.contains("no such device here")),
        "{:?}",
        mixed.notes
    );

    // A tenth of memory and compute each.
    let mps = planned(&read("mps"), &hgx).unwrap();
    let device = &mps.devices[0];
    assert_eq!(device.shares.len(), 10);
    assert_eq!(device.shares[0].compute.unwrap().get(), 10);
    assert_eq!(
        device.shares[0].memory.unwrap().mib(),
        device.memory.unwrap().mib() / 10
    );

    let read = read::parse("flags.yaml", &read("flags")).unwrap();
    assert_eq!(read.warnings.len(), 1, "{:?}", read.warnings);
    assert!(
        read.warnings[0].starts_with("flags.yaml:3:1: flags"),
        "{:?}",
        read.warnings
    );
    assert_eq!(plan_len(&read.policy, &hgx), 4);
}

fn plugin_file(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/device-plugin/{name}.yaml"))
}

#[test]
fn keys_are_read_in_any_letter_case_as_go_reads_them() {
    let read = read::file(&plugin_file("any-letter-case"), None).unwrap();
    let warnings = read.warnings.join("\n");
    assert_eq!(read.warnings.len(), 2, "{warnings}");
    assert!(
        warnings.contains(".yaml:3:1: flags") && warnings.contains(".yaml:5:1: \"somethingNew\" is unknown"),
        "{warnings}"
    );
    let plan = plan(&read.policy, &inventory("hgx-h200")).unwrap();
    assert!(
        plan.devices
            .iter()
            .all(|d| d.shares.len() == 4 && d.kind.to_string() == "nvidia.com/gpu.shared")
    );
    // Within sharing a key that is unknown decides over what a container gets, so it is an error.
    for (yaml, says) in [
        (
            "sharing:\n  timeSlice: {}\n",
            "p.yaml:2:3: \"timeSlice\" is unknown in sharing; did you mean timeSlicing?",
        ),
        (
            "sharing:\n  mps:\n    Replicas: 2\n",
            "p.yaml:3:5: \"Replicas\" is unknown in sharing.mps; ",
        ),
        (
            "sharing:\n  mps: {resources: []}\n  MPS: {}\n",
            "p.yaml:3:3: sharing: \"mps\" and \"MPS\" are the same key; ",
        ),
    ] {
        let said = read::parse("p.yaml", yaml).unwrap_err().to_string();
        assert!(said.starts_with(says), "{said}");
    }
    // An empty section is no section, however it is written.
    for empty in [
        "mps:",
        "mps: {}",
        "timeSlicing:",
        "timeSlicing: {}",
        "dedicated: {}",
        "overcommit: {}",
    ] {
        let read = read::parse("p.yaml", &format!("sharing:\n  {empty}\n")).unwrap();
        assert!(read.policy.splits.is_empty(), "{empty}");
    }
}

#[test]
fn mig_strategy_single_shares_mig_devices() {
    let dgx = inventory("dgx-a100-mig");
    let single = plan(
        &read::file(&plugin_file("mig-strategy-single"), None).unwrap().policy,
        &dgx,
    )
    .unwrap();
    let migs = single.devices.iter().filter(|d| d.device.mig.is_some()).count();
    assert_eq!((migs, dgx.mig_devices().count() > 0), (dgx.mig_devices().count(), true));
    assert!(single.devices.iter().all(|d| d.shares.len() == 3));
    let none =
        "flags: {migStrategy: none}\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}\n";
    let none = planned(none, &dgx).unwrap();
    assert!(!none.devices.is_empty() && none.devices.iter().all(|d| d.device.mig.is_none()));
}

#[test]
fn mps_wins_over_time_slicing_of_the_same_devices_with_a_warning() {
    let read = read::file(&plugin_file("mps-and-time-slicing"), None).unwrap();
    let plan = plan(&read.policy, &inventory("t4x2")).unwrap();
    let strategies: Vec<String> = plan.devices.iter().map(|d| d.method.strategy().to_string()).collect();
    assert_eq!(strategies, ["mps", "mps"]);
    assert!(plan.devices.iter().all(|d| d.shares.len() == 4));
    let [warning] = plan.warnings.as_slice() else {
        panic!("{:?}", plan.warnings)
    };
    assert!(
        warning.ends_with(".yaml:6:7: timeSlicing has no effect on gpu 0, 1, which mps shares at line 10: mps wins"),
        "{warning}"
    );
    // Two entries of one section are a mistake, wherever they meet.
    let twice = "sharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n    - {name: nvidia.com/gpu, devices: [1], replicas: 4}\n";
    let said = planned(twice, &inventory("t4x2")).unwrap_err().to_string();
    assert!(
        said.starts_with("policy.yaml:5:7: gpu 1: two entries share it: this one and that at line 4; "),
        "{said}"
    );
}

#[test]
fn a_whole_config_map_is_read() {
    let file = plugin_file("config-map");
    let hgx = inventory("hgx-h200");
    let shares = |key| {
        let read = read::file(&file, key).unwrap();
        (
            plan(&read.policy, &hgx).unwrap().devices[0].shares.len(),
            read.warnings.len(),
        )
    };
    assert_eq!(shares(Some("a100-40gb")), (8, 0));
    assert_eq!(shares(None), (2, 1), "default, and a line that says so");
    let said = read::file(&file, Some("h100")).unwrap_err().to_string();
    assert!(
        said.contains("has no key \"h100\"; it has a100-40gb, default"),
        "{said}"
    );

    // A place is that in the file which a person edits.
    let text = std::fs::read_to_string(&file).unwrap();
    let wrong = text.replace("replicas: 8", "replicas: 1");
    let said = read::parse_key("m.yaml", &wrong, Some("a100-40gb"))
        .unwrap_err()
        .to_string();
    assert!(said.starts_with("m.yaml:13:21: replicas: too few; "), "{said}");
    let wrong = text.replace("replicas: 2", "replicas: 2: 3");
    let said = read::parse_key("m.yaml", &wrong, None).unwrap_err().to_string();
    assert!(said.starts_with("m.yaml:20:"), "{said}");
    let quoted = "kind: ConfigMap\ndata:\n  a: \"sharing: {mps: 7}\"\n";
    let said = read::parse_key("m.yaml", quoted, None).unwrap_err().to_string();
    assert!(said.starts_with("m.yaml:3:6: "), "{said}");

    let several = text.replace("default:", "other:");
    let said = read::parse_key("m.yaml", &several, None).unwrap_err().to_string();
    assert!(
        said.contains("; give --config-key with one of a100-40gb, other"),
        "{said}"
    );
    let said = read::parse_key("m.yaml", "version: v1\n", Some("a"))
        .unwrap_err()
        .to_string();
    assert!(said.contains("leave --config-key out"), "{said}");
    let (code, out, err) = tranche(&[
        "plan",
        "--json",
        "--inventory=sim:hgx-h200",
        "--config-key=a100-40gb",
        &format!("--config={}", file.display()),
    ]);
    assert!(
        code == Some(0) && out.contains("\"name\": \"7\"") && !out.contains("\"name\": \"8\""),
        "{err}"
    );
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
        [name.clone()]
    );

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    std::fs::write(&file, &yaml).unwrap();
    let at = ["--inventory=sim:dgx-a100-mig", &format!("--config={}", file.display())];
    let (code, out, err) = tranche(&[&["cdi", "generate", "--device-id", &old], &at[..1]].concat());
    assert!(
        code == Some(0) && out.contains(&format!("name: \"{name}\"\n")),
        "{out}{err}"
    );
    let state = format!("--state-dir={}", dir.path().join("state").display());
    let specs = format!("--spec-dir={}", dir.path().display());
    let create = ["claim", "create", "--name=old", "--device", &old, &state, &specs];
    let (code, _, err) = tranche(&[&create, &at[..]].concat());
    if nix::unistd::geteuid().is_root() {
        assert!(
            code == Some(0) && err.contains(&format!("gpu {name}: share 0")),
            "{err}"
        );
    }
}

/// What no program may wait for or read without end.
#[test]
fn a_policy_is_read_from_regular_files_of_bounded_size() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    std::fs::write(at("large"), vec![b'#'; (1 << 20) + 1]).unwrap();
    std::fs::write(at("latin"), b"version: v1 # \xe9\n").unwrap();
    let cases = [
        (at("fifo"), "is not a regular file; "),
        ("/dev/zero".into(), "is not a regular file; "),
        (dir.path().into(), "is not a regular file; "),
        (at("large"), "is larger than 1048576 bytes"),
        (at("latin"), "is not UTF-8 text; "),
        (at("missing"), "not found; "),
    ];
    for (file, says) in cases {
        let config = format!("--config={}", file.display());
        for verb in [&["policy", "check"][..], &["plan"], &["cdi", "generate"]] {
            let (code, out, err) = tranche(&[verb, &["--inventory=sim:hgx-h200", &config]].concat());
            assert_eq!(
                (code, out.as_str(), err.lines().count()),
                (Some(1), "", 1),
                "{verb:?} {err}"
            );
            assert!(err.contains(&format!("{}: {says}", file.display())), "{err}");
        }
    }
}

#[test]
fn the_number_of_parts_is_bounded_while_reading() {
    for n in ["0", "1", "1025", "1000000", "4294967295", "18446744073709551615"] {
        let yaml = format!("sharing:\n  timeSlicing:\n    resources:\n    - {{name: gpu, replicas: {n}}}\n");
        let said = read::parse("p.yaml", &yaml).unwrap_err().to_string();
        assert!(
            said.starts_with("p.yaml:4:29: replicas: too ") && said.contains("2 to 1024"),
            "{said}"
        );
    }
    let yaml = "sharing:\n  timeSlicing:\n    resources:\n    - {name: gpu, replicas: 1024}\n";
    assert_eq!(planned(yaml, &inventory("t4x2")).unwrap().devices[0].shares.len(), 1024);
}

#[test]
fn a_plan_fits_80_columns_and_shows_first_what_a_root_tenant_gets() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    let text = "\
sharing:
  mps:
    resources:
    - {name: nvidia.com/gpu, devices: [0, 1], replicas: 10}
    - {name: nvidia.com/gpu, devices: [2], shares: [{name: big, memory: 80%, compute: 80%}, {name: small, memory: 70%, compute: 20%}]}
  timeSlicing:
    interval: long
    resources:
    - {name: nvidia.com/gpu, devices: [3, 42], replicas: 100}
  dedicated: {devices: [4]}
  overcommit: {memory: 1.5}
";
    std::fs::write(&file, text).unwrap();
    let config = format!("--config={}", file.display());
    let plan = |more: &[&str]| {
        let (code, out, err) = tranche(&[&["plan", "--inventory=sim:hgx-h200", &config], more].concat());
        assert_eq!(code, Some(0), "{err}");
        out
    };
    let out = plan(&[]);
    let is_command =
        |line: &str| line.starts_with("    ") && (line.contains("nvidia-smi") || line.contains("nvidia-cuda-mps"));
    for line in out.lines().filter(|line| !is_command(line)) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let paragraphs: Vec<&str> = out.split("\n\n").collect();
    let of = |title: &str| {
        let found = paragraphs.iter().find(|p| p.starts_with(title));
        *found.unwrap_or_else(|| panic!("no {title} in\n{out}"))
    };
    // Equal devices are said once, and how to start the daemon of each.
    let equal = of("gpu 0, 1: ");
    assert!(
        equal.contains("10 equal shares\n  memory is 1.5 times promised\n"),
        "{equal}"
    );
    assert!(
        equal.contains("nvidia.com/gpu=0.any") && equal.contains("nvidia.com/gpu=0.0 … 9"),
        "{equal}"
    );
    assert_eq!(equal.matches("nvidia-cuda-mps-control -d").count(), 2, "{equal}");
    let row = |paragraph: &str, name: &str| -> Vec<String> {
        let table = paragraph.split("BECAUSE").nth(1).unwrap();
        let line = table.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split_whitespace().take(3).map(str::to_owned).collect()
    };
    assert!(equal.contains("ROOT      OTHERS    BECAUSE"), "{equal}");
    assert_eq!(row(equal, "memory"), ["memory", "advisory", "soft"]);
    assert_eq!(row(equal, "faults"), ["faults", "none", "none"]);
    let unequal = of("gpu 2: ");
    assert!(
        unequal.contains("memory is 1.5 times promised") && unequal.contains("nvidia.com/gpu=2.big"),
        "{unequal}"
    );
    let turns = of("gpu 3: ");
    assert!(
        turns.contains("0 equal shares") && !turns.contains("3.0") && turns.contains("--set-timeslice=3"),
        "{turns}"
    );
    assert_eq!(row(turns, "faults"), ["faults", "soft", "soft"]);
    let dedicated = of("gpu 4: ");
    assert!(
        dedicated.contains("dedicated: for one container at a time") && !dedicated.contains("promised"),
        "{dedicated}"
    );
    assert_eq!(row(dedicated, "memory"), ["memory", "hard", "hard"]);
    let rest = paragraphs.last().unwrap().replace("\n  ", " ");
    let not_built = out.matches("Not built yet: ").count();
    assert_eq!(not_built, 2, "{out}");
    assert!(
        rest.contains(&format!("Not offered: {}:9:43: device 42", file.display())),
        "{rest}"
    );
    assert!(rest.contains("for as many containers as ask: gpu 5, 6, 7\n"), "{rest}");

    let json: serde_json::Value = serde_json::from_str(&plan(&["--json"])).unwrap();
    let big = &json["devices"][2];
    assert_eq!(
        (&big["memory_promised"], &big["compute_promised"]),
        (&150.into(), &100.into())
    );
    assert_eq!(big["shares"][0]["guarantees"]["memory"]["root"], "advisory");
    assert_eq!(big["shares"][0]["guarantees"]["memory"]["grade"], "soft");
    assert_eq!(json["absent"][0]["asked"], "device 42");
    assert_eq!(json["devices"][4]["method"]["strategy"], "dedicated");
}

fn plan_len(policy: &tranche::policy::Policy, inventory: &Inventory) -> usize {
    plan(policy, inventory).unwrap().devices[0].shares.len()
}

fn tranche(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tranche"))
        .args(arguments)
        .env_clear()
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
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
    let (code, out, err) = tranche(&[&base[..], &[&output]].concat());
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    let plain = std::fs::read_to_string(file("x.yaml")).unwrap();
    let shared = std::fs::read_to_string(file("x-gpu.shared.yaml")).unwrap();
    assert!(plain.contains("kind: nvidia.com/gpu\n") && !plain.contains("0.9"));
    assert!(
        shared.contains("kind: nvidia.com/gpu.shared\n") && shared.contains("cdiVersion: \"0.7.0\"\n"),
        "{shared:.80}"
    );

    // To stdout goes one specification, not two.
    let (code, out, err) = tranche(&base);
    assert_eq!((code, out.as_str(), err.lines().count()), (Some(2), "", 1), "{err}");
    assert!(err.contains("--output"), "{err}");

    // An engine that knows no dot in a class gets a line, and no file is touched.
    let other = format!("--output={}", file("old.yaml").display());
    let (code, _, err) = tranche(&[&base[..], &[&other, "--cdi-version=0.5"]].concat());
    assert_eq!(code, Some(2));
    let line = err.lines().next_back().unwrap();
    assert!(
        line.contains("dot in the class of nvidia.com/gpu.shared") && line.contains("rename"),
        "{line}"
    );
    assert!(!file("old.yaml").exists() && !file("old-gpu.shared.yaml").exists());
}

#[test]
fn the_example_of_a_policy_is_one() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/config.yaml");
    let read = read::file(&file, None).unwrap();
    assert_eq!(read.warnings, [""; 0]);
    let plan = plan(&read.policy, &inventory("hgx-h200")).unwrap();
    let shares: Vec<usize> = plan.devices.iter().map(|d| d.shares.len()).collect();
    assert_eq!(shares, [4, 2]);
    assert_eq!(plan.notes, [""; 0]);
}

#[test]
fn a_check_that_finds_something_says_where_and_exits_with_four() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    let config = format!("--config={}", file.display());
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let (code, out, err) = tranche(&["policy", "check", "--inventory=sim:hgx-h200", &config]);
        assert!(err.lines().count() <= 1 && out.lines().count() == 1, "{out}{err}");
        (code, format!("{out}{err}"))
    };
    let entry = |text: &str| {
        check(&format!(
            "version: v1\nsharing:\n  mps:\n    resources:\n    - {{name: nvidia.com/gpu, devices: [0], {text}}}\n"
        ))
    };
    let (code, said) = entry("replicas: 4");
    assert_eq!((code, said.contains("4 shares of 1 device")), (Some(0), true), "{said}");
    for (text, says) in [
        ("replica: 4", "did you mean replicas?"),
        ("shares: [{name: a, memory: 0Gi}]", "memory"),
        ("shares: [{name: a, compute: 0%}]", "compute"),
        ("shares: [{name: a, compute: 101%}]", "101%"),
        ("shares: [{name: a, memory: 7Q}]", "7Q"),
        (
            "shares: [{name: a, memory: 900Gi}]",
            ":5:53: gpu 0: share a asks for 900.0 GiB of 140.4 GiB; lower it",
        ),
        (
            "shares: [{name: a, memory: 7000}]",
            "memory: 7000 has no unit, so it is in bytes",
        ),
        (
            "rename: nvidia.com/claim, replicas: 2",
            ":5:52: rename: nvidia.com/claim is the kind of claims",
        ),
        ("rename: claim, replicas: 2", "nvidia.com/claim is the kind of claims"),
        ("replicas: 61", "gpu 0: 61 shares, and MPS serves"),
        (
            "shares: [{name: any}]",
            "\"any\" has a meaning of its own in device names; choose another",
        ),
        ("shares: [{name: None}]", "has a meaning of its own"),
        ("shares: [{name: all}]", "has a meaning of its own"),
        (
            "shares: [{name: a, compute: 60%}, {name: b, compute: 60%}]",
            "gpu 0: shares ask for 120% of 100% compute: a 60%, b 60%; lower one, or set overcommit.compute to 1.2",
        ),
        ("shares: [{name: a.b}]", "a.b"),
        ("shares: [{name: \"a::b\"}]", "a::b"),
        ("shares: [{name: \"7\"}]", "letter"),
        ("replicas: 2, devices: [9]", "devices"),
        ("replicas: two", "two"),
    ] {
        let (code, said) = entry(text);
        assert!(code == Some(4) && said.contains(says), "{text}: {code:?} {said}");
        assert!(said.starts_with(&format!("{}:5:", file.display())), "{text}: {said}");
    }
    let (code, said) = check(
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n    - {name: nvidia.com/gpu, devices: [3], replicas: 4}\n",
    );
    assert!(
        code == Some(4) && said.contains(":6:7: gpu 3: two entries share it: this one and that at line 5; "),
        "{said}"
    );
    let (code, said) = check(
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [42], replicas: 2}\n",
    );
    assert!(
        code == Some(4) && said.contains("device 42: is in the policy and not on this host"),
        "{said}"
    );
    let (code, said) = check(
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [MIG-00000000-dead-beef], replicas: 2}\n",
    );
    assert!(
        code == Some(4) && said.contains("its UUID changes with every MIG layout"),
        "{said}"
    );
}
