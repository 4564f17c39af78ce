//! `tranche cdi …` as people and scripts call it: results, exit codes, files.

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
    command.arg("cdi").args(arguments).env_clear();
    command
}

fn said(mut command: Command) -> Said {
    let output = command.output().unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn cdi(arguments: &[&str]) -> Said {
    said(command(arguments))
}

/// `generate` for a machine that everybody has.
fn generate(more: &[&str]) -> Said {
    cdi(&[&["generate", "--inventory=sim:dgx-a100-mig"], more].concat())
}

#[test]
fn devices_are_chosen_and_named_as_asked() {
    let names = |more: &[&str]| {
        let said = generate(&[&["--format=json"], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        let spec: Value = serde_json::from_str(&said.out).unwrap();
        let names = spec["devices"].as_array().unwrap();
        let names: Vec<String> = names.iter().map(|d| d["name"].as_str().unwrap().to_owned()).collect();
        names.join(" ")
    };
    let index = "--device-name-strategy=index";
    assert_eq!(names(&["--device-id=0", "--devices=1", index]), "0 1 all");
    assert_eq!(names(&["--device=0", index, "--no-all-device"]), "0");
    assert_eq!(names(&["--device-id=none"]), "none");
    assert!(names(&[index]).ends_with(" all none"));
    assert_eq!(
        names(&["--device-id=0,1", "--device-name-strategy=index,type-index"]),
        "0 1 gpu0 gpu1 all"
    );
    let kind = generate(&["--vendor=x.org", "--cdi-class=card"]).out;
    assert!(kind.contains("kind: x.org/card\n"), "{kind}");
    // It would end dockerd at its start.
    for option in ["--vendor=x", "--cdi-class=y"] {
        let said = generate(&[option]);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{}", said.err);
        assert!(said.err.contains("engines crash"), "{}", said.err);
    }
}

#[test]
fn variables_of_nvidia_s_tool_hold_lists_and_may_be_empty() {
    let names = |variables: &[(&str, &str)]| {
        let mut command = command(&["generate", "--inventory=sim:t4x2"]);
        command.envs(variables.iter().copied());
        let said = said(command);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let names = said.out.lines().filter_map(|line| line.strip_prefix("- name: "));
        names.collect::<Vec<_>>().join(" ")
    };
    let strategy = ("NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES", "index,type-index");
    assert_eq!(
        names(&[("NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS", "1"), strategy]),
        r#""1" "gpu1" "all""#
    );
    let empty = [
        "MODE",
        "OUTPUT_FORMAT",
        "VENDOR",
        "CLASS",
        "DEVICE_IDS",
        "DEVICE_NAME_STRATEGIES",
        "FEATURE_FLAGS",
        "DISABLED_HOOKS",
        "ENABLED_HOOKS",
        "NO_ALL_DEVICE",
        "LDCONFIG_PATH",
    ];
    let empty: Vec<String> = empty
        .iter()
        .map(|name| format!("NVIDIA_CTK_CDI_GENERATE_{name}"))
        .collect();
    let empty: Vec<(&str, &str)> = empty.iter().map(|name| (name.as_str(), "")).collect();
    assert_eq!(names(&empty), names(&[]));
}

#[test]
fn options_have_their_other_names_in_nvidia_s_tool() {
    for (ours, theirs) in [
        ("--vendor=x.org", "--cdi-vendor=x.org"),
        ("--class=card", "--cdi-class=card"),
        ("--mode=management", "--discovery-mode=management"),
        ("--device-id=0", "--device-ids=0"),
        ("--device-id=0", "--device=0"),
        ("--device-id=0", "--devices=0"),
        (
            "--feature-flag=disable-ipc-discoverer",
            "--feature-flags=disable-ipc-discoverer",
        ),
        ("--hook-path=/x/nvidia-ctk", "--nvidia-ctk-path=/x/nvidia-ctk"),
        ("--hook-path=/x/nvidia-ctk", "--nvidia-cdi-hook-path=/x/nvidia-ctk"),
        ("--disable-hook=update-ldcache", "--disable-hooks=update-ldcache"),
        ("--enable-hook=chmod", "--enable-hooks=chmod"),
    ] {
        let (expected, said) = (generate(&[ours]), generate(&[theirs]));
        assert!(
            said.code == Some(0) && said.out == expected.out,
            "{theirs}: {}",
            said.err
        );
        assert!(expected.out != generate(&[]).out, "{ours}");
    }
    for ignored in [
        "--csv.file=/x",
        "--csv.ignore-pattern=x",
        "--csv.compat-container-root=/x",
    ] {
        assert!(generate(&[ignored]).out == generate(&[]).out, "{ignored}");
    }
}

#[test]
fn coherent_gpus_get_a_kind_of_their_own_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let write = |inventory: &str, name: &str| {
        let output = file(name);
        let output = output.to_str().unwrap();
        cdi(&[
            "generate",
            "--inventory",
            inventory,
            "--feature-flags=enable-coherent-annotations",
            "--output",
            output,
        ])
    };
    let said = write("sim:gb200", "nvidia.json");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let read = |name: &str| serde_json::from_slice::<Value>(&fs::read(file(name)).unwrap()).unwrap();
    let (all, coherent) = (read("nvidia.json"), read("nvidia.coherent.json"));
    assert_eq!(
        (&all["kind"], &all["cdiVersion"]),
        (&json!("nvidia.com/gpu"), &json!("0.5.0"))
    );
    let kind = (&coherent["kind"], &coherent["cdiVersion"]);
    assert_eq!(kind, (&json!("nvidia.com/gpu.coherent"), &json!("0.6.0")));
    assert_eq!(coherent["containerEdits"], all["containerEdits"]);
    // The same devices, but `none`, which is none of either.
    let with_name = |spec: &Value, name: &Value| {
        let devices = spec["devices"].as_array().unwrap();
        devices.iter().find(|device| device["name"] == *name).cloned()
    };
    for device in coherent["devices"].as_array().unwrap() {
        assert_eq!(with_name(&all, &device["name"]).as_ref(), Some(device));
    }
    assert_eq!(coherent["devices"].as_array().unwrap().len(), 9);
    assert!(!file("nvidia.noncoherent.json").exists());
}

#[test]
fn wrong_requests_are_one_line_and_code_two() {
    for (arguments, part) in [
        (&["--device-id=99"][..], "device 99: not found; this host has 0"),
        (&["--device-id=../x"], "\"../x\": not a valid device; expected 0, 0:1, "),
        (&["--mode=vfio"], "expected one of auto, nvml"),
        (&["--mode=csv"], "Tegra is not supported yet"),
        (
            &["--mode=gds", "--device-id=0"],
            "device 0: not found; this mode has only the device all",
        ),
        (&["--no-hooks", "--hook-path=/x"], "cannot be used with"),
        (&["--format=toml"], "use yaml or json"),
        (&["--cdi-version=0.2"], "too old"),
        (&["--class=a b"], "not a valid CDI class"),
        (&["--root=/"], "cannot be used with"),
    ] {
        let said = generate(arguments);
        assert_eq!(
            (said.code, said.out.as_str()),
            (Some(2), ""),
            "{arguments:?}: {}",
            said.err
        );
        assert!(said.err.contains(part), "{arguments:?}: {}", said.err);
    }
    let said = cdi(&["generate", "--inventory=sim:t4x2", "--mode=gds"]);
    assert_eq!((said.code, said.out.as_str()), (Some(3), ""), "{}", said.err);
}

#[test]
fn files_are_written_whole_with_the_right_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let write = |name: &str, more: &[&str]| generate(&[&["--output", path(name).to_str().unwrap()], more].concat());
    for (name, more, real) in [
        ("a/b/nvidia.yaml", &[][..], "a/b/nvidia.yaml"),
        ("x.json", &[], "x.json"),
        ("y.yml", &[], "y.yml.yaml"),
        ("z", &["--format=json"], "z.json"),
    ] {
        let said = write(name, more);
        assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{}", said.err);
        let meta = fs::metadata(path(real)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o644);
    }
    assert!(fs::read_to_string(path("x.json")).unwrap().starts_with('{'));
    let said = write("w.yaml", &["--format=json"]);
    assert!(said.err.contains("written as yaml, as its name says"), "{}", said.err);
    assert!(fs::read_to_string(path("w.yaml")).unwrap().starts_with("---\n"));

    // A script that knows NVIDIA's names.
    let mut theirs = command(&["generate", "--inventory=sim:t4x2"]);
    theirs.env("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", path("env.yaml"));
    theirs.env("NVIDIA_CTK_CDI_HOOK_PATH", "/opt/hook");
    assert_eq!(said_code(theirs), Some(0));
    assert!(
        fs::read_to_string(path("env.yaml"))
            .unwrap()
            .contains("path: /opt/hook\n")
    );

    let before = fs::read_dir(dir.path()).unwrap().count();
    let said = write("x.json/y.yaml", &[]);
    assert_eq!(said.code, Some(1));
    let complaints = said.err.lines().filter(|l| l.starts_with("tranche: ")).count();
    assert_eq!(complaints, 1, "{}", said.err);
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        before,
        "nothing half-written"
    );
}

/// The policy of two replicas, with shares of a kind of their own where `rename` says so.
fn replicas(file: &Path, rename: &str) {
    let resource = format!("{{name: nvidia.com/gpu, replicas: 2{rename}}}");
    let policy = format!("version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {resource}\n");
    fs::write(file, policy).unwrap();
}

#[test]
fn a_file_that_an_earlier_run_wrote_beside_the_output_goes_with_its_rename() {
    for extension in ["yaml", "json"] {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let config = format!("--config={}", at("policy").display());
        let output = |name: &str| format!("--output={}", at(name).display());
        let run = |more: &[&str]| {
            let said = cdi(&[&["generate", "--inventory=sim:t4x2", &config], more].concat());
            assert_eq!(said.code, Some(0), "{}", said.err);
            said.err
        };
        let first = output(&format!("nvidia.{extension}"));
        replicas(&at("policy"), ", rename: nvidia.com/slice");
        run(&[&first]);
        let slice = at(&format!("nvidia-slice.{extension}"));
        let text = fs::read_to_string(&slice).unwrap();
        assert!(text.contains("nvidia.com/slice"), "{text}");
        run(&[&first]);
        assert!(slice.exists(), "a file that this run writes too stays");

        // Files with such names that `generate --output nvidia.…` did not write.
        let others = [
            (format!("nvidia-copy.{extension}"), text.clone()),
            (format!("nvidiax.{extension}"), text.clone()),
            (format!("other-slice.{extension}"), text),
            ("nvidia-slice.txt".to_owned(), "x".to_owned()),
            ("nvidia-note.yaml".to_owned(), "?".to_owned()),
        ];
        for (name, text) in &others {
            fs::write(at(name), text).unwrap();
        }
        fs::write(at("no-policy"), "version: v1\n").unwrap();
        let class = ["--class=gds", &output(&format!("nvidia-gds.{extension}"))];
        let own = cdi(&[&["generate", "--inventory=sim:t4x2"], &class[..]].concat());
        assert_eq!(own.code, Some(0), "{}", own.err);

        replicas(&at("policy"), "");
        let err = run(&[&first]);
        assert!(!slice.exists(), "{extension}: its shares could still be started");
        assert!(err.contains(&format!("{}: removed", slice.display())), "{err}");
        for (name, text) in &others {
            assert_eq!(&fs::read_to_string(at(name)).unwrap(), text, "{name}");
        }
        assert!(
            at(&format!("nvidia-gds.{extension}")).exists(),
            "an --output of its own"
        );
        assert!(!run(&[&first]).contains("removed"));
    }
}

fn said_code(command: Command) -> Option<i32> {
    said(command).code
}

#[test]
fn a_closed_stdout_is_no_failure() {
    let mut child = command(&["generate", "--inventory=sim:dgx-a100-mig"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Two directories as an engine reads them, with a broken file of somebody else.
fn directories() -> (tempfile::TempDir, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    for (inventory, output, more) in [
        ("sim:t4x2", "etc/nvidia.yaml", &["--no-hooks"][..]),
        ("sim:t4x2", "run/one.yaml", &["--device-id=0"]),
        (
            "sim:rtx4090",
            "run/old.json",
            &["--cdi-version=0.5", "--vendor=old.org"],
        ),
    ] {
        let output = at(output);
        let said = cdi(&[&["generate", "--inventory", inventory, "--output", &output], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
    }
    fs::write(
        dir.path().join("etc/other.yaml"),
        "cdiVersion: 0.5.0\nkind: other.org/nic\ndevices:\n- name: eth\n  containerEdit: {}\n",
    )
    .unwrap();
    let dirs = vec!["--spec-dir".to_owned(), at("etc"), "--spec-dir".to_owned(), at("run")];
    (dir, dirs)
}

fn with<'a>(first: &[&'a str], dirs: &'a [String]) -> Vec<&'a str> {
    first.iter().copied().chain(dirs.iter().map(String::as_str)).collect()
}

#[test]
fn directories_are_read_as_engines_read_them() {
    let (_dir, dirs) = directories();
    let list = cdi(&with(&["list"], &dirs));
    assert_eq!(list.code, Some(0));
    assert!(
        list.out.contains("nvidia.com/gpu=0\n") && list.out.contains("old.org/gpu=all\n"),
        "{}",
        list.out
    );
    assert!(
        list.err.contains("other.yaml:5:3: ") && list.err.contains("lost: other.org/nic=eth"),
        "{}",
        list.err
    );
    let rows: Value = serde_json::from_str(&cdi(&with(&["list", "--json"], &dirs)).out).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), list.out.lines().count());

    let check = cdi(&with(&["validate", "--for-other-host"], &dirs));
    assert_eq!(check.code, Some(4));
    assert_eq!(check.out.lines().count(), 1, "{}", check.out);
    assert!(check.err.contains("nvidia.com/gpu=0 is ignored"), "{}", check.err);
    let report: Value =
        serde_json::from_str(&cdi(&with(&["validate", "--for-other-host", "--json"], &dirs)).out).unwrap();
    assert_eq!(report["problems"][0]["at"], json!({"line": 5, "column": 3}));
    let etc = Path::new(&dirs[1]);
    assert_eq!(
        cdi(&[
            "validate",
            "--for-other-host",
            etc.join("nvidia.yaml").to_str().unwrap()
        ])
        .code,
        Some(0)
    );
    assert_eq!(cdi(&["validate", etc.join("missing").to_str().unwrap()]).code, Some(2));
}

#[test]
fn a_name_without_its_kind_is_completed() {
    let (_dir, dirs) = directories();
    for (name, wanted) in [
        (
            "0",
            "0: is not a complete CDI name; there are nvidia.com/gpu=0, old.org/gpu=0\n",
        ),
        (
            "77",
            "77: is not a complete CDI name; write it as KIND=NAME, for example nvidia.com/gpu=0\n",
        ),
    ] {
        let said = cdi(&with(&["inspect", name], &dirs));
        assert_eq!((said.code, said.err), (Some(2), format!("tranche: {wanted}")));
    }
}

#[test]
fn inspect_tells_what_a_container_would_get() {
    let (dir, dirs) = directories();
    let zero = cdi(&with(&["inspect", "nvidia.com/gpu=0"], &dirs));
    assert_eq!(zero.code, Some(0), "{}", zero.err);
    for part in [
        "device    nvidia.com/gpu=0\n",
        "run/one.yaml (declares CDI 0.5.0, needs 0.5.0)",
        "env       NVIDIA_VISIBLE_DEVICES=void\n",
        "node      /dev/nvidia0 ",
        "hook      createContainer ",
        "            --driver-version\n",
        "MISSING ON THE HOST",
    ] {
        assert!(zero.out.contains(part), "{part}\n{}", zero.out);
    }
    let json: Value = serde_json::from_str(&cdi(&with(&["inspect", "--json", "nvidia.com/gpu=0"], &dirs)).out).unwrap();
    assert_eq!(json["devices"][0]["minimumVersion"], "0.5.0");

    // What a cap left out stands in the file; JSON has no place for it.
    let yaml = dir.path().join("run/old2.yaml").display().to_string();
    let capped = [
        "generate",
        "--inventory=sim:rtx4090",
        "--cdi-version=0.5",
        "--class=capped",
        "--output",
        &yaml,
    ];
    assert_eq!(cdi(&capped).code, Some(0));
    let capped = cdi(&with(&["inspect", "nvidia.com/capped=0"], &dirs)).out;
    assert!(capped.contains("left out  additional groups"), "{capped}");

    for (name, part) in [
        ("nvidia.com/gpu=7", "there are nvidia.com/gpu=0, "),
        ("no.org/x=1", "no file in "),
        ("other.org/nic=eth", "is lost; "),
    ] {
        let said = cdi(&with(&["inspect", name], &dirs));
        assert_eq!(said.code, Some(2));
        assert!(said.err.contains(part), "{}", said.err);
    }
}

#[test]
fn a_container_specification_is_edited_as_an_engine_does() {
    let dir = tempfile::tempdir().unwrap();
    let spec = "cdiVersion: 0.3.0\nkind: a.org/box\ndevices:\n- name: null-device\n  containerEdits:\n    deviceNodes:\n    - path: /dev/null\n";
    fs::write(dir.path().join("a.yaml"), spec).unwrap();
    let config = dir.path().join("config.json");
    fs::write(
        &config,
        json!({"ociVersion": "1.0.2", "x": 1.10, "process": {"env": []}}).to_string(),
    )
    .unwrap();
    let (dirs, config) = (dir.path().to_str().unwrap(), config.to_str().unwrap());
    let said = cdi(&["inspect", "a.org/box=null-device", "--spec-dir", dirs, "--oci", config]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let edited: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(edited["linux"]["devices"][0]["major"], 1);
    assert_eq!(edited["linux"]["devices"][0]["minor"], 3);
    assert_eq!(edited["ociVersion"], "1.0.2");
}

/// Whoever gives a hook a new option decides here whether its value is a path of the host, and so moves with the host's root
/// (`OPTIONS_OF_HOST` in src/cdi/transform.rs).
#[test]
fn every_path_in_the_arguments_of_our_hooks_has_a_side() {
    const OF_HOST: [&str; 4] = ["daemon", "state-dir", "spec-file", "ldconfig-path"];
    const OF_CONTAINER: [&str; 7] = ["link", "by-path", "ldcache-dir", "library", "folder", "path", "node"];
    const NO_PATH: [&str; 14] = [
        "as",
        "size",
        "capacity",
        "device",
        "label",
        "share",
        "of",
        "whole",
        "alone",
        "skip",
        "driver-version",
        "host-driver-version",
        "mode",
        "claim",
    ];
    let dir = tempfile::tempdir().unwrap();
    let mut texts = Vec::new();
    for (name, more) in [
        (
            "shares",
            &["--config=docs/examples/config.yaml", "--state-dir=/run/other"][..],
        ),
        (
            "theirs",
            &["--hook-path=/usr/bin/nvidia-cdi-hook", "--ldconfig-path=/sbin/ldconfig"],
        ),
        ("chmod", &["--enable-hook=chmod", "--hook-path=/usr/bin/tranche-oci"]),
    ] {
        let output = dir.path().join(format!("{name}.json")).display().to_string();
        let inventory = if name == "shares" { "sim:t4x2" } else { "sim:rtx4090" };
        let said = cdi(&[&["generate", "--inventory", inventory, "--output", &output], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        texts.push(fs::read_to_string(output).unwrap());
    }
    let mut seen = std::collections::BTreeSet::new();
    for text in texts {
        let spec: Value = serde_json::from_str(&text).unwrap();
        let devices = spec["devices"].as_array().unwrap().iter().map(|d| &d["containerEdits"]);
        for edits in devices.chain([&spec["containerEdits"]]) {
            for hook in edits["hooks"].as_array().into_iter().flatten() {
                for argument in hook["args"].as_array().unwrap() {
                    let Some(option) = argument.as_str().unwrap().strip_prefix("--") else {
                        continue;
                    };
                    seen.insert(option.split('=').next().unwrap().to_owned());
                }
            }
        }
    }
    for option in &seen {
        let known = [&OF_HOST[..], &OF_CONTAINER, &NO_PATH];
        assert!(
            known.iter().any(|list| list.contains(&option.as_str())),
            "--{option}: decide"
        );
    }
    assert!(
        seen.contains("state-dir") && seen.contains("ldconfig-path") && seen.contains("path"),
        "{seen:?}"
    );
}

#[test]
fn a_root_is_moved() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("a.yaml"), dir.path().join("b"));
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    assert_eq!(generate(&["--output", from]).code, Some(0));
    let said = cdi(&[
        "transform",
        "root",
        "--from=/usr",
        "--to=/host/usr",
        "--input",
        from,
        "--output",
        to,
    ]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let text = fs::read_to_string(format!("{to}.yaml")).unwrap();
    assert!(
        text.contains("hostPath: /host/usr/bin/nvidia-smi\n    containerPath: /usr/bin/nvidia-smi\n"),
        "{text}"
    );
    let back = cdi(&[
        "transform",
        "root",
        "--from=/host",
        "--to=/",
        "--input",
        &format!("{to}.yaml"),
    ]);
    // The header too: it says who made the file, and what was left out of it. The digests are of another host's paths.
    let original = fs::read_to_string(from).unwrap();
    let without_digests = original.lines().filter(|line| !line.starts_with("# Digest"));
    assert_eq!(
        back.out.lines().collect::<Vec<_>>(),
        without_digests.collect::<Vec<_>>()
    );
    let capped = generate(&["--output", from, "--cdi-version=0.3", "--class=capped"]);
    assert_eq!(capped.code, Some(0), "{}", capped.err);
    let head = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter(|line| line.starts_with('#') && !line.starts_with("# Digest"));
        lines.map(str::to_owned).collect()
    };
    let before = head(&fs::read_to_string(from).unwrap());
    assert!(before.len() > 1, "{before:?}");
    assert_eq!(
        head(&cdi(&["transform", "root", "--to=/host", "--input", from]).out),
        before
    );
    assert_eq!(cdi(&["transform", "root", "--from=usr", "--input", from]).code, Some(2));
}

#[test]
fn a_hint_names_what_an_old_engine_cannot_read() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("x.yaml").display().to_string();
    for more in [&[][..], &["--output", &output]] {
        let said = cdi(&[&["generate", "--inventory=sim:rtx4090"], more].concat());
        let hint = said.err.lines().find(|line| line.contains("--cdi-version 0.5"));
        let hint = hint.unwrap_or_else(|| panic!("{more:?}: {}", said.err));
        assert!(
            hint.contains("0.7.0") && hint.contains("additional groups 44"),
            "{hint}"
        );
    }
    // Nothing to say where an old engine reads it, or where somebody chose a version.
    for said in [
        cdi(&["generate", "--inventory=sim:t4x2"]),
        cdi(&["generate", "--inventory=sim:rtx4090", "--cdi-version=0.7"]),
        cdi(&["generate", "--inventory=sim:rtx4090", "--cdi-version=0.5"]),
    ] {
        assert!(!said.err.contains("--cdi-version"), "{}", said.err);
    }
}

#[test]
fn a_directory_that_did_not_exist_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let write = || generate(&["--output", &path("a/b/nvidia.yaml")]).err;
    let first = write();
    let line = format!("{}: created, because it did not exist\n", path("a"));
    assert!(first.contains(&line), "{first}");
    assert!(!write().contains(": created"));
}
