//! `tranche cdi …` as people and scripts call it: results, exit codes, files.

use crate::{Said, program, said};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// `tranche cdi ARGUMENTS` with no environment.
pub(crate) fn command(arguments: &[&str]) -> Command {
    program(&[&["cdi"], arguments].concat())
}

pub(crate) fn cdi(arguments: &[&str]) -> Said {
    said(command(arguments))
}

/// `generate` for a machine that everybody has.
pub(crate) fn generate(more: &[&str]) -> Said {
    cdi(&[&["generate", "--inventory=sim:dgx-a100-mig"], more].concat())
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
    assert_eq!(crate::said(theirs).code, Some(0));
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

/// A new option of a hook needs a decision here: whether its value is a path of the host, which moves with the host's
/// root (`OPTIONS_OF_HOST` in src/plan/cdi/transform.rs).
#[test]
fn every_path_in_the_arguments_of_our_hooks_has_a_side() {
    const OF_HOST: [&str; 4] = ["daemon", "state-dir", "spec-file", "ldconfig-path"];
    const OF_CONTAINER: [&str; 6] = ["link", "by-path", "ldcache-dir", "library", "folder", "path"];
    const OF_BOTH: [&str; 2] = ["node", "socket"];
    const NO_PATH: [&str; 16] = [
        "as",
        "size",
        "capacity",
        "device",
        "label",
        "share",
        "of",
        "whole",
        "alone",
        "prepare",
        "wait",
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
        let known = [&OF_HOST[..], &OF_CONTAINER, &OF_BOTH, &NO_PATH];
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

/// Engines of other users read the directories too, whatever the umask of the one who makes them.
#[test]
fn the_umask_does_not_close_the_directories_that_engines_read() {
    let top = tempfile::tempdir().unwrap();
    let mode = |path: &str| top.path().join(path).metadata().unwrap().permissions().mode() & 0o7777;
    let run = |arguments: &str| {
        let line = format!("umask 077; exec '{}' {arguments}", env!("CARGO_BIN_EXE_tranche"));
        let output = Command::new("/bin/sh")
            .args(["-c", &line])
            .current_dir(top.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run("cdi generate --inventory=sim:t4x2 --output=etc/cdi/nvidia.yaml");
    assert_eq!(
        (mode("etc"), mode("etc/cdi"), mode("etc/cdi/nvidia.yaml")),
        (0o755, 0o755, 0o644)
    );
    fs::create_dir(top.path().join("own")).unwrap();
    fs::set_permissions(top.path().join("own"), PermissionsExt::from_mode(0o700)).unwrap();
    run("cdi generate --inventory=sim:t4x2 --output=own/cdi/nvidia.yaml");
    assert_eq!(
        (mode("own"), mode("own/cdi")),
        (0o700, 0o755),
        "a directory that exists keeps its mode"
    );
}

/// `all` has the devices that need no claim.
#[test]
fn inspect_says_why_there_is_no_device_all() {
    let top = tempfile::tempdir().unwrap();
    let dir = format!("--spec-dir={}", top.path().display());
    let inspected = |sharing: &str| {
        let config = top.path().join("config.yaml");
        fs::write(&config, format!("sharing:\n{sharing}")).unwrap();
        let output = format!("--output={}", top.path().join("nvidia.yaml").display());
        let config = format!("--config={}", config.display());
        let made = cdi(&["generate", "--inventory=sim:t4x2", &config, &output]);
        assert_eq!(made.code, Some(0), "{}", made.err);
        cdi(&["inspect", "nvidia.com/gpu=all", &dir])
    };
    for sharing in [
        "  dedicated: {devices: all}\n",
        "  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n",
    ] {
        let said = inspected(sharing);
        assert_eq!(said.code, Some(2), "{}", said.err);
        let says = "nvidia.com/gpu=all: has no device: it would have those that need no claim, and the policy splits or dedicates \
                    every device; name a device or a share: nvidia.com/gpu=0";
        assert!(said.err.contains(says), "{}", said.err);
    }
    assert_eq!(inspected("  dedicated: {devices: [0]}\n").code, Some(0));
}
