//! `nvidia-mig-parted`: the verbs of NVIDIA's program, by a link to `tranche`.

use crate::bed::{Bed, Said};
use crate::products;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

/// The program under NVIDIA's name, on the machine of `bed`.
fn parted_with(bed: &Bed, arguments: &[&str], variables: &[(&str, &str)]) -> Said {
    let link = bed.at("nvidia-mig-parted");
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_tranche"), &link).unwrap();
    }
    let as_tranche = bed.command(&[]);
    let mut command = Command::new(link);
    command.args(arguments).env_clear().stdin(std::process::Stdio::null());
    for (name, value) in as_tranche.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.envs(variables.iter().copied()).output().unwrap().into()
}

fn parted(bed: &Bed, arguments: &[&str]) -> Said {
    parted_with(bed, arguments, &[])
}

/// Writes a file on the machine, and returns its path.
fn file(bed: &Bed, name: &str, text: &str) -> String {
    let path = bed.at(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn refused(bed: &Bed, arguments: &[&str], expected: &str) {
    let before = bed.layouts();
    let said = parted(bed, arguments);
    assert_eq!(said.code, Some(1), "{arguments:?}: {said:?}");
    let errors: Vec<&str> = said.err.lines().filter(|line| line.starts_with("tranche: ")).collect();
    assert!(
        errors.len() == 1 && errors[0].contains(expected),
        "{arguments:?}: {said:?}"
    );
    assert_eq!(bed.layouts(), before);
}

fn done(said: &Said) {
    assert_eq!(said.code, Some(0), "{said:?}");
}

/// Two GPUs of an A100 with 40 GB, and others of the same model.
const CONFIGURATIONS: &str = "\
version: v1
mig-configs:
  small:
  - {devices: [3], mig-enabled: true, mig-devices: {1g.5gb: 7}}
  whole:
  - {devices: [4], mig-enabled: true, mig-devices: {7g.40gb: 1}}
  disabled:
  - {devices: [3], mig-enabled: false}
  balanced:
  - {devices: [0, 3], mig-enabled: true, mig-devices: {1g.5gb: 2, 2g.10gb: 1, 3g.20gb: 1}}
";

#[test]
fn assert_judges_as_mig_parted_does() {
    let bed = products::with("a100-40");
    let uniform = "version: v1\nmig-configs:\n  all:\n  - {devices: [0], mig-enabled: true, mig-devices: {1g.5gb: 2, \
                   3g.20gb: 1}}\n  - {devices: [1, 2, 3, 4, 5, 6, 7], mig-enabled: false}\n  one:\n  - {devices: [0], \
                   mig-enabled: true, mig-devices: {1g.5gb: 2, 3g.20gb: 1}}\n  both:\n  - {devices: all, mig-enabled: true, \
                   mig-devices: {1g.5gb: 2, 3g.20gb: 1}}\n";
    let config = file(&bed, "config.yaml", uniform);
    let assert = |name: &str, more: &[&str]| parted(&bed, &[&["assert", "-f", &config, "-c", name], more].concat());
    let fails = assert("all", &[]);
    assert_eq!(fails.code, Some(1));
    assert!(
        fails.err.contains("gpu 0: has empty, and not 2x1g.5gb,3g.20gb"),
        "{fails:?}"
    );
    done(&assert("all", &["--mode-only"]));
    // Wherever the instances lie.
    for layout in ["0:1g.5gb@0,1g.5gb@3,3g.20gb@4", "0:1g.5gb@5,1g.5gb@6,3g.20gb@0"] {
        bed.apply(layout);
        done(&assert("all", &[]));
        // A GPU that no entry names fails all but the modes.
        let unnamed = assert("one", &[]);
        assert_eq!(unnamed.code, Some(1));
        assert!(
            unnamed.err.contains("gpu 1: no entry of the configuration names it"),
            "{unnamed:?}"
        );
        done(&assert("one", &["-m"]));
    }
    // A GPU without MIG cannot have it on, although apply skips it.
    let without = assert("both", &["-m"]);
    assert_eq!(without.code, Some(1));
    assert!(without.err.contains("gpu 1: has no MIG"), "{without:?}");
    done(&parted(&bed, &["apply", "-f", &config, "-c", "both"]));
    // No GPU is looked at for the validity of a file, and the variables are those of NVIDIA's program.
    done(&assert("one", &["--valid-config"]));
    let variables = [
        ("MIG_PARTED_CONFIG_FILE", config.as_str()),
        ("MIG_PARTED_SELECTED_CONFIG", "one"),
        ("MIG_PARTED_MODE_CHANGE_ONLY", "true"),
    ];
    done(&parted_with(&bed, &["assert"], &variables));
    assert_eq!(parted_with(&bed, &["assert"], &variables[..2]).code, Some(1));
}

#[test]
fn apply_changes_what_differs_and_nothing_else() {
    let bed = Bed::new("dgx-a100-mig");
    let config = file(&bed, "config.yaml", CONFIGURATIONS);
    let before = bed.layouts();
    let same = parted(&bed, &["apply", "-f", &config, "-c", "whole"]);
    done(&same);
    assert!(same.out.starts_with("nothing to do\n"), "{same:?}");
    assert_eq!(bed.layouts(), before);
    let applied = parted(&bed, &["-d", "apply", "-f", &config, "-c", "balanced"]);
    done(&applied);
    for gpu in [0, 3] {
        let now = bed.layout(gpu);
        assert_eq!(
            (now.matches("1g.5gb@").count(), now.matches("2g.10gb@").count()),
            (2, 1),
            "{now}"
        );
    }
    assert_eq!(bed.layouts()[1..3], before[1..3]);
    assert_eq!(parted(&bed, &["assert", "-f", &config, "-c", "balanced"]).code, Some(1));
    // It is kept for the next boot, and can be undone.
    done(&bed.tranche(&["mig", "undo", "--yes"]));
    assert_eq!(bed.layouts(), before);
}

#[test]
fn apply_changes_modes_and_resets_only_where_it_may() {
    let bed = Bed::new("hgx-h200");
    let text = "version: v1\nmig-configs:\n  a:\n  - {devices: [0, 1], mig-enabled: true, mig-devices: {1g.18gb: 7}}\n";
    let config = file(&bed, "config.yaml", text);
    assert_eq!(parted(&bed, &["assert", "-f", &config, "--mode-only"]).code, Some(1));
    done(&parted(&bed, &["apply", "-f", &config, "--mode-only", "--skip-reset"]));
    assert_eq!(
        (bed.layout(0), bed.layout(1), bed.layout(2)),
        ("empty".into(), "empty".into(), "off".into())
    );
    done(&parted(&bed, &["assert", "-f", &config, "-m"]));
    done(&parted(&bed, &["apply", "-f", &config]));
    assert_eq!(bed.layout(1).matches("1g.18gb@").count(), 7);

    let bed = Bed::new("dgx-a100-mig");
    let config = file(&bed, "config.yaml", CONFIGURATIONS);
    refused(
        &bed,
        &["apply", "-f", &config, "-c", "disabled", "--skip-reset"],
        "gpu 3: changes its MIG mode with a reset only; leave --skip-reset out",
    );
    // Without the option, the GPU is reset; this program of the driver resets it in the fake library's state.
    let smi = bed.host.path("/usr/bin/nvidia-smi");
    let state = bed.at("host/fake-nvml.mig.json");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {}\n/bin/sed -i 's/\"current\":true,\"pending\":false/\"current\":false,\"pending\":false/' {}\n",
        bed.at("resets").display(),
        state.display()
    );
    fs::write(&smi, script).unwrap();
    done(&parted(&bed, &["apply", "-f", &config, "-c", "disabled"]));
    assert_eq!(bed.layout(3), "off");
    assert_eq!(bed.layout(0).matches("1g.5gb").count(), 7);
    let resets = fs::read_to_string(bed.at("resets")).unwrap();
    assert_eq!(resets.lines().count(), 1, "{resets}");
}

#[test]
fn a_driver_that_lists_profiles_in_mig_mode_only_is_no_obstacle() {
    // The A100 of this machine is off, and its driver of 535 lists nothing then.
    let bed = Bed::new("dgx-a100-mig");
    let smi = bed.host.path("/usr/bin/nvidia-smi");
    let state = bed.at("host/fake-nvml.mig.json");
    let script = format!(
        "#!/bin/sh\n/bin/sed -i 's/\"current\":false,\"pending\":true/\"current\":true,\"pending\":true/' {}\n",
        state.display()
    );
    fs::write(&smi, script).unwrap();
    let text = "version: v1\nmig-configs:\n  a:\n  - {devices: [7], mig-enabled: true, mig-devices: {3g.20gb: 2}}\n";
    let config = file(&bed, "config.yaml", text);
    done(&parted(&bed, &["apply", "-f", &config]));
    assert_eq!(bed.layout(7), "3g.20gb@0,3g.20gb@4");
}

#[test]
fn what_is_in_use_is_refused_by_name() {
    let bed = Bed::new("dgx-a100-mig");
    bed.policy("version: v1\nsharing:\n  dedicated:\n    devices: [\"0:0\", \"0:1\"]\n");
    done(&bed.tranche(&["claim", "create", "--name", "train", "--device", "0:1"]));
    let text = "version: v1\nmig-configs: {a: [{devices: [0], mig-enabled: true, mig-devices: {7g.40gb: 1}}]}\n";
    let config = file(&bed, "config.yaml", text);
    refused(&bed, &["apply", "-f", &config], "claim train stands in the way");
}

#[test]
fn a_policy_that_says_something_else_counts() {
    let bed = Bed::new("dgx-a100-mig");
    bed.policy("version: v1\nmig:\n  layout:\n  - 3:7g.40gb\n");
    let config = file(&bed, "config.yaml", CONFIGURATIONS);
    refused(
        &bed,
        &["apply", "-f", &config, "-c", "small"],
        "gives it 7g.40gb, and not 7x1g.5gb; change the policy",
    );
}

#[test]
fn hooks_are_not_run_and_that_is_reported() {
    let bed = Bed::new("dgx-a100-mig");
    let config = file(&bed, "config.yaml", CONFIGURATIONS);
    let hooks = file(
        &bed,
        "hooks.yaml",
        "version: v1\nhooks: {apply-start: [{workdir: /, command: /bin/false}]}\n",
    );
    let said = parted(&bed, &["apply", "-f", &config, "-c", "small", "-k", &hooks]);
    done(&said);
    let lines: Vec<&str> = said.err.lines().filter(|line| line.contains("hooks.yaml")).collect();
    assert!(
        lines.len() == 1 && lines[0].contains("its programs are not run"),
        "{said:?}"
    );
    assert_eq!(bed.layout(3).matches("1g.5gb@").count(), 7);
    refused(
        &bed,
        &["apply", "-f", &config, "-c", "small", "-k", "/nonexistent"],
        "/nonexistent: cannot be read",
    );
}

#[test]
fn export_groups_equal_gpus_and_filters_models_only_where_there_are_several() {
    let bed = products::with("a100-40");
    bed.apply("0:2x1c.3g.20gb,1g.5gb");
    let exported = parted(&bed, &["export", "-o", "json", "-l", "mine"]);
    done(&exported);
    let value: Value = serde_json::from_str(&exported.out).unwrap();
    let entries = &value["mig-configs"]["mine"];
    assert_eq!(value["version"], "v1");
    // The bed's GPUs all have the PCI ids of their host's files.
    assert_eq!(
        *entries,
        json!([
            {"devices": [0], "mig-enabled": true, "mig-devices": {"1c.3g.20gb": 2, "1g.5gb": 1}},
            {"devices": [1, 2, 3, 4, 5, 6, 7], "mig-enabled": false, "mig-devices": {}},
        ])
    );
    // What is exported is what the GPUs have.
    let yaml = parted(&bed, &["export"]);
    let config = file(&bed, "exported.yaml", &yaml.out);
    done(&parted(&bed, &["assert", "-f", &config, "-c", "current"]));
    let same = bed.tranche(&["mig", "export", "--mig-parted"]);
    assert_eq!((same.code, same.out), (Some(0), yaml.out));
    assert_eq!(bed.tranche(&["mig", "plan", "-f", &config]).code, Some(0));
    // A GPU instance without a compute instance is not in the form.
    bed.apply("0:0c.2g.10gb,1g.5gb");
    let bare = parted(&bed, &["export"]);
    assert!(
        bare.out.contains("1g.5gb: 1") && !bare.out.contains("2g.10gb"),
        "{bare:?}"
    );
    assert!(
        bare.err
            .contains("gpu 0: 1 of its GPU instances have no compute instance"),
        "{bare:?}"
    );
    bed.host
        .nvml(|config| config["gpus"][7]["pci_device_id"] = json!(0x1fb0_10de))
        .unwrap();
    let mixed = parted(&bed, &["export", "-o", "json"]);
    let value: Value = serde_json::from_str(&mixed.out).unwrap();
    assert_eq!(value["mig-configs"]["current"][0]["device-filter"], "0x233510DE");
    assert_eq!(
        value["mig-configs"]["current"][1]["device-filter"],
        json!(["0x1FB010DE", "0x233510DE"])
    );
}

#[test]
fn a_checkpoint_is_restored_with_the_least_change() {
    let bed = products::with("a100-40");
    bed.apply("0:3g.20gb@0,2c.3g.20gb@4,1c.3g.20gb@4");
    let checkpoint = bed.at("checkpoint.json");
    let path = checkpoint.to_str().unwrap();
    done(&parted(&bed, &["checkpoint", "-f", path]));
    let written: Value = serde_json::from_slice(&fs::read(&checkpoint).unwrap()).unwrap();
    let instances = &written["MigState"]["Devices"][0]["GpuInstances"];
    assert_eq!(
        (&written["Version"], &written["MigState"]["Devices"][0]["MigMode"]),
        (&json!("v1"), &json!(1))
    );
    // Numbers of NVML's lists: the third profile of GPU instances, and the first three of compute instances.
    assert_eq!(
        *instances,
        json!([
            {"ProfileID": 2, "Placement": {"Start": 0, "Size": 4}, "ComputeInstances": [{"ProfileID": 2, "EngProfileID": 0}]},
            {"ProfileID": 2, "Placement": {"Start": 4, "Size": 4},
             "ComputeInstances": [{"ProfileID": 1, "EngProfileID": 0}, {"ProfileID": 0, "EngProfileID": 0}]},
        ])
    );
    let before = bed.layout(0);
    let uuid = |bed: &Bed| {
        let status: Value = serde_json::from_str(&bed.tranche(&["mig", "status", "--json"]).out).unwrap();
        status[0]["instances"][0]["devices"][0]["uuid"].clone()
    };
    bed.apply("0:3g.20gb@0,2g.10gb@4");
    let kept = uuid(&bed);
    let restored = parted(&bed, &["restore", "-f", path]);
    done(&restored);
    assert_eq!(bed.layout(0), before);
    // The instance that both have was not made anew.
    assert_eq!(uuid(&bed), kept);
    let again = parted(&bed, &["restore", "-f", path]);
    assert!(again.out.starts_with("nothing to do\n"), "{again:?}");
    // NVIDIA's program writes null for an empty list.
    let devices = json!([{"UUID": written["MigState"]["Devices"][0]["UUID"], "MigMode": 1, "GpuInstances": null}]);
    let empty = file(
        &bed,
        "empty.json",
        &json!({"Version": "v1", "MigState": {"Devices": devices}}).to_string(),
    );
    done(&parted(&bed, &["restore", "-f", &empty]));
    assert_eq!(bed.layout(0), "empty");
}

#[test]
fn a_restore_that_fails_puts_everything_back() {
    let mut bed = Bed::without_broker("dgx-a100-mig");
    bed.host
        .nvml(|config| config["gpus"][3]["errors"] = json!({"nvmlDeviceCreateGpuInstanceWithPlacement": "TIMEOUT"}))
        .unwrap();
    bed.start();
    let state: Value = serde_json::from_str(&bed.tranche(&["mig", "status", "--json"]).out).unwrap();
    let device =
        |gpu: usize, instances: Value| json!({"UUID": state[gpu]["uuid"], "MigMode": 1, "GpuInstances": instances});
    let one = json!([{"ProfileID": 4, "Placement": {"Start": 0, "Size": 8}, "ComputeInstances": [{"ProfileID": 4, "EngProfileID": 0}]}]);
    let checkpoint = json!({"Version": "v1", "MigState": {"Devices": [device(0, Value::Null), device(3, one)]}});
    let path = file(&bed, "checkpoint.json", &checkpoint.to_string());
    refused(&bed, &["restore", "-f", &path], "everything was put back as it was");
}

#[test]
fn bad_files_change_nothing() {
    let bed = products::with("a100-40");
    let text = |body: &str| format!("version: v1\nmig-configs: {{a: [{body}]}}\n");
    for (text, expected) in [
        (
            "version: v2\nmig-configs: {}\n".to_owned(),
            "bad.yaml:1:1: version v2 is unknown",
        ),
        (
            text("{devices: all, mig-enabled: false, gpus: 1}"),
            "unknown key \"gpus\"",
        ),
        (
            text("{devices: [9], mig-enabled: false}"),
            "configuration a names no GPU of this machine",
        ),
        (
            text("{devices: all, device-filter: \"0x20B210DE\", mig-enabled: false}"),
            "configuration a names no GPU of this machine; its GPUs: 0 is 0x233510DE",
        ),
        (
            text("{devices: all, device-filter: A100, mig-enabled: false}"),
            "device-filter A100 selects nothing: it is not a PCI id",
        ),
        (
            text("{devices: [1], mig-enabled: true, mig-devices: {1g.5gb: 1}}"),
            "gpu 1: has no MIG, and the configuration turns it on",
        ),
        (
            text("{devices: [0], mig-enabled: true, mig-devices: {9g.90gb: 1}}"),
            "gpu 0: has no profile 9g.90gb",
        ),
        (
            text("{devices: [0], mig-enabled: true, mig-devices: {1g.5gb: 8}}"),
            "gpu 0: cannot have 8x1g.5gb at once",
        ),
    ] {
        let config = file(&bed, "bad.yaml", &text);
        refused(&bed, &["apply", "-f", &config], expected);
    }
    // A selector that looks like a mistake beside others that are none is reported, and the others count.
    let config = file(
        &bed,
        "some.yaml",
        &text("{devices: [0, 9], mig-enabled: true, mig-devices: {1g.5gb: 1}}"),
    );
    let said = parted(&bed, &["apply", "-f", &config]);
    done(&said);
    assert!(
        said.err
            .contains("configuration a names devices that this machine lacks: 9"),
        "{said:?}"
    );
    assert!(bed.layout(0).starts_with("1g.5gb@"));
    for (state, expected) in [
        (
            json!({"Version": "v2", "Other": 1}),
            "version v2 of a checkpoint is unknown",
        ),
        (
            json!({"Version": "v1", "MigState": {"Devices": null}, "Extra": 1}),
            "unknown field `Extra`",
        ),
        (
            json!({"MigState": {"Devices": null}}),
            "is not a checkpoint of mig-parted",
        ),
        (
            json!({"Version": "v1", "MigState": {"Devices": [
                {"UUID": "GPU-00000000-0000-4000-8000-000000000000", "MigMode": 1, "GpuInstances": null}]}}),
            "GPU-00000000-0000-4000-8000-000000000000 is not a GPU with MIG of this machine",
        ),
        (
            json!({"Version": "v1", "MigState": {"Devices": [
                {"UUID": "GPU-00000000-0000-4000-8000-000000000000", "MigMode": 2, "GpuInstances": null}]}}),
            "has MigMode 2, and not 0 or 1",
        ),
    ] {
        let path = file(&bed, "bad.json", &state.to_string());
        refused(&bed, &["restore", "-f", &path], expected);
    }
    for (arguments, expected) in [
        (&["apply"][..], "--config-file <FILE>"),
        (&["assert", "-f", "/nonexistent"], "/nonexistent: cannot be read"),
        (&["export", "-o", "xml"], "invalid value 'xml'"),
        (&["frob"], "unrecognized subcommand 'frob'"),
        (
            &["generate-config", "-f", "x"],
            "generate-config: tranche does not have it; tranche mig profiles",
        ),
    ] {
        refused(&bed, arguments, expected);
    }
    let help = parted(&bed, &[]);
    done(&help);
    assert!(help.out.contains("checkpoint"), "{help:?}");
    done(&parted(&bed, &["apply", "--help"]));
}

#[test]
fn the_config_map_of_the_gpu_operator_is_accepted() {
    let bed = Bed::new("dgx-a100-mig");
    let inner: String = CONFIGURATIONS.lines().map(|line| format!("    {line}\n")).collect();
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: mine}}\ndata:\n  config.yaml: |\n{inner}  other: x\n"
    );
    let config = file(&bed, "map.yaml", &map);
    done(&parted(&bed, &["assert", "-a", "-f", &config, "-c", "small"]));
    assert_eq!(
        bed.tranche(&["mig", "plan", "-f", &config, "-c", "small"]).code,
        Some(4)
    );
    let broken = file(
        &bed,
        "broken.yaml",
        &map.replace("mig-enabled: false", "mig-enabled: 7"),
    );
    refused(
        &bed,
        &["assert", "-a", "-f", &broken, "-c", "small"],
        "broken.yaml:13:37: mig-enabled is 7",
    );
}
