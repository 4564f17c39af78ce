//! The configuration files of engines, of another machine: doctor reads them below its root.

use crate::support::{fake_host, programs};
use crate::{Said, tranche};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

struct OtherMachine {
    top: tempfile::TempDir,
}

impl OtherMachine {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        fake_host::build("hgx-h200", &top.path().join("host")).unwrap();
        Self { top }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.path().join("host").join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), text).unwrap();
    }

    fn doctor(&self) -> Said {
        let engines = format!("--engine-dir={}", self.top.path().join("engines").display());
        tranche(&[
            "doctor",
            "--json",
            &engines,
            &format!("--root={}", self.at("").display()),
        ])
    }

    /// An engine that is installed, and prints this as its version.
    fn engine(&self, program: &str, version: &str) {
        programs::script(
            self.top.path().join("engines").join(program),
            &format!("echo {version}"),
        );
    }

    /// The found text and the fix of each result about `finding`.
    fn found(&self, finding: &str) -> Vec<(String, String)> {
        let said = self.doctor();
        let report: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        let checks = report["checks"].as_array().unwrap().iter();
        let of_finding = checks.filter(|one| one["finding"] == finding);
        let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
        of_finding.map(|one| (text(one, "found"), text(one, "fix"))).collect()
    }

    /// Runs the command of a fix for the file of this machine, without the restart of the engine.
    fn fix(&self, fix: &str, file: &str) {
        let command = fix.split(" && ").next().unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "tranche", "{fix}");
        let config = format!("--config={}", self.at(file).display());
        let said = tranche(&[&words[1..], &[&config, "--drop-in-config="]].concat());
        assert_eq!(said.code, Some(0), "{fix}: {said:?}");
    }
}

const DOCKER: &str = "etc/docker/daemon.json";
const CONTAINERD: &str = "etc/containerd/config.toml";

#[test]
fn cdi_that_is_off_in_docker() {
    let machine = OtherMachine::new();
    machine.write(DOCKER, r#"{"features": {"cdi": false}}"#);
    let found = machine.found("engine-cdi-off");
    assert!(
        found[0].0.contains("/etc/docker/daemon.json: features.cdi is false"),
        "{found:?}"
    );
    machine.fix(&found[0].1, DOCKER);
    assert_eq!(machine.found("engine-cdi-off"), []);
    let text = fs::read_to_string(machine.at(DOCKER)).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(file["features"]["cdi"], true, "{text}");
}

#[test]
fn cdi_that_is_off_in_containerd() {
    let machine = OtherMachine::new();
    machine.write(
        CONTAINERD,
        "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nenable_cdi = false\n",
    );
    let found = machine.found("engine-cdi-off");
    assert!(found[0].0.contains("enable_cdi is false"), "{found:?}");
    machine.fix(&found[0].1, CONTAINERD);
    assert_eq!(machine.found("engine-cdi-off"), []);
}

/// What the real dockerd prints about `file`, if it ends with an error at once.
fn dockerd(machine: &OtherMachine) -> Option<String> {
    let program = ["/usr/sbin/dockerd", "/usr/bin/dockerd"]
        .into_iter()
        .find(|path| Path::new(path).exists())?;
    let place = |name: &str| format!("--{name}={}", machine.top.path().join(name).display());
    let output = Command::new("timeout")
        .args([
            "20",
            program,
            &format!("--config-file={}", machine.at(DOCKER).display()),
        ])
        .args([place("data-root"), place("exec-root"), place("pidfile")])
        .arg(format!(
            "--host=unix://{}",
            machine.top.path().join("docker.sock").display()
        ))
        .args(["--iptables=false", "--bridge=none"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_file_of_docker_that_is_invalid_or_names_a_runtime_that_does_not_exist() {
    let machine = OtherMachine::new();
    for (text, finding, says) in [
        ("{\"features\": ", "engine-config-invalid", "unable to configure"),
        (r#"{"default-runtime": "nvidia"}"#, "engine-runtime-missing", "nvidia"),
    ] {
        machine.write(DOCKER, text);
        if let Some(printed) = dockerd(&machine) {
            assert!(printed.contains(says), "{printed}");
        }
        let found = machine.found(finding);
        assert!(
            matches!(&found[..], [(found, _)] if found.contains("/etc/docker/daemon.json")),
            "{finding}: {found:?}"
        );
        machine.write(DOCKER, "{}");
        assert_eq!(machine.found(finding), []);
    }
    machine.write(
        DOCKER,
        r#"{"runtimes": {"tranche": {"path": "/usr/bin/tranche-runtime"}}}"#,
    );
    assert_eq!(machine.found("engine-runtime-missing").len(), 1);
    machine.write("usr/bin/tranche-runtime", "");
    assert_eq!(machine.found("engine-runtime-missing"), []);
}

#[test]
fn specifications_in_directories_that_engines_do_not_read() {
    let machine = OtherMachine::new();
    let spec = r#"{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {"env": ["A=B"]}}]}"#;
    machine.write("etc/cdi/nvidia.json", spec);
    let files = [
        (DOCKER, r#"{"cdi-spec-dirs": ["/opt/cdi"]}"#),
        (
            CONTAINERD,
            "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = ['/opt/cdi']\n",
        ),
        (
            "etc/crio/crio.conf.d/10.conf",
            "[crio.runtime]\ncdi_spec_dirs = ['/opt/cdi']\n",
        ),
        (
            "etc/containers/containers.conf",
            "[engine]\ncdi_spec_dirs = ['/opt/cdi']\n",
        ),
    ];
    for (file, text) in files {
        machine.write(file, text);
        let found = machine.found("engine-directories");
        assert!(
            matches!(&found[..], [(found, _)] if found.contains("etc/cdi")),
            "{file}: {found:?}"
        );
        machine.write(file, &text.replace("/opt/cdi", "/etc/cdi"));
        assert_eq!(machine.found("engine-directories"), [], "{file}");
        fs::remove_file(machine.at(file)).unwrap();
    }
}

#[test]
fn what_is_left_of_an_mps_daemon() {
    let machine = OtherMachine::new();
    machine.write("tmp/nvidia-mps/control", "");
    let found = machine.found("mps-left-over");
    let fix = found[0]
        .1
        .replace("/tmp/", &format!("{}/", machine.at("tmp").display()));
    assert!(Command::new("sh").args(["-c", &fix]).status().unwrap().success());
    assert_eq!(machine.found("mps-left-over"), []);
}

/// What NVIDIA's toolkit wrote stays when it is removed; tranche did not write it, and cannot take it back.
#[test]
fn a_runtime_that_nvidia_s_toolkit_left() {
    let machine = OtherMachine::new();
    let text =
        r#"{"default-runtime": "nvidia", "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}}"#;
    machine.write(DOCKER, text);
    let found = machine.found("engine-runtime-missing");
    let [(found, fix)] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(
        found.contains("nvidia-container-runtime, the program of the runtime nvidia"),
        "{found}"
    );
    let command = fix.split_once("runtime: ").unwrap().1.split(';').next().unwrap();
    machine.write(env!("CARGO_BIN_EXE_tranche-runtime").trim_start_matches('/'), "");
    machine.fix(command, DOCKER);
    assert_eq!(machine.found("engine-runtime-missing"), []);
    // Its program is there again.
    machine.write(DOCKER, text);
    machine.write("usr/bin/nvidia-container-runtime", "");
    assert_eq!(machine.found("engine-runtime-missing"), []);
}

#[test]
fn a_default_runtime_that_cannot_be_executed() {
    let machine = OtherMachine::new();
    let runtime = r#""runtimes": {"tranche": {"path": "/usr/bin/tranche-runtime"}}"#;
    machine.write(DOCKER, &format!(r#"{{"default-runtime": "tranche", {runtime}}}"#));
    machine.write("usr/bin/tranche-runtime", "");
    let program = machine.at("usr/bin/tranche-runtime");
    fs::set_permissions(&program, PermissionsExt::from_mode(0o644)).unwrap();
    let found = machine.found("program-not-executable");
    let [(found, fix)] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        found,
        "/usr/bin/tranche-runtime has mode 0644, and /etc/docker/daemon.json executes it"
    );
    let fix = fix.replace("/usr/bin/tranche-runtime", &program.display().to_string());
    assert!(Command::new("sh").args(["-c", &fix]).status().unwrap().success());
    assert_eq!(machine.found("program-not-executable"), []);
    // One that podman runs for each container.
    machine.write("etc/containers/containers.conf", "");
    let hook =
        r#"{"version": "1.0.0", "hook": {"path": "/opt/hook"}, "when": {"always": true}, "stages": ["prestart"]}"#;
    machine.write("usr/share/containers/oci/hooks.d/other.json", hook);
    machine.write("opt/hook", "");
    fs::set_permissions(machine.at("opt/hook"), PermissionsExt::from_mode(0o644)).unwrap();
    let found = machine.found("program-not-executable");
    assert!(
        matches!(&found[..], [(found, _)] if found.starts_with("/opt/hook has mode 0644")),
        "{found:?}"
    );
    fs::set_permissions(machine.at("opt/hook"), PermissionsExt::from_mode(0o777)).unwrap();
    assert_eq!(machine.found("program-not-executable"), []);
    let found = machine.found("others-can-write");
    assert!(
        matches!(&found[..], [(found, _)] if found.contains("opt/hook has mode 0777")),
        "{found:?}"
    );
}

#[test]
fn the_hook_of_nvidia_s_toolkit() {
    let machine = OtherMachine::new();
    let file = "usr/share/containers/oci/hooks.d/oci-nvidia-hook.json";
    let hook = r#"{"version": "1.0.0", "hook": {"path": "/usr/bin/nvidia-container-toolkit", "args": ["x", "prestart"]},
                   "when": {"always": true}, "stages": ["prestart"]}"#;
    machine.write(file, hook);
    let found = machine.found("nvidia-hook");
    let [(found, fix)] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(
        found.contains("/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"),
        "{found}"
    );
    let fix = fix.replace("/usr/", &format!("{}/", machine.at("usr").display()));
    assert!(Command::new("sh").args(["-c", &fix]).status().unwrap().success());
    assert_eq!(machine.found("nvidia-hook"), []);
}

/// A version with a fault that is known. Where tranche has NVIDIA's names, its own version says nothing of them.
#[test]
fn a_toolkit_with_a_known_fault() {
    let machine = OtherMachine::new();
    machine.engine("nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.4");
    let found = machine.found("known-fault");
    let [(found, fix)] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(
        found.starts_with("nvidia-ctk 1.17.4: ") && found.ends_with("(CVE-2025-23266)"),
        "{found}"
    );
    assert!(fix.starts_with("update nvidia-container-toolkit to 1.19.1"), "{fix}");
    machine.engine("nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.20.1");
    assert_eq!(machine.found("known-fault"), []);
    let engines = machine.top.path().join("engines");
    fs::remove_file(engines.join("nvidia-ctk")).unwrap();
    programs::install(env!("CARGO_BIN_EXE_tranche"), engines.join("tranche"));
    std::os::unix::fs::symlink("tranche", engines.join("nvidia-ctk")).unwrap();
    assert_eq!(machine.found("known-fault"), []);
}

#[test]
fn docker_from_a_snap() {
    let machine = OtherMachine::new();
    assert_eq!(machine.found("engine-in-snap"), []);
    machine.write("snap/docker/3265/meta/snap.yaml", "name: docker\n");
    std::os::unix::fs::symlink("3265", machine.at("snap/docker/current")).unwrap();
    assert_eq!(machine.found("engine-in-snap").len(), 1);
}

/// A file that containerd 1 does not read, which no command of tranche makes readable.
#[test]
fn a_file_of_containerd_2_before_containerd_1() {
    let machine = OtherMachine::new();
    machine.write(
        CONTAINERD,
        "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = false\n",
    );
    machine.engine("containerd", "containerd github.com/containerd/containerd v1.7.24 x");
    let found = machine.found("engine-config-invalid");
    let [(found, fix)] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(
        found.contains("is of version 3, and containerd 1.7.24 reads version 2"),
        "{found}"
    );
    assert!(
        fix.starts_with("install containerd 2, or write the file again"),
        "{fix}"
    );
    assert_eq!(machine.found("engine-cdi-off"), [], "the command for that would fail");
    machine.engine("containerd", "containerd github.com/containerd/containerd v2.1.9 x");
    assert_eq!(machine.found("engine-config-invalid"), []);
    assert!(
        machine.found("engine-cdi-off")[0]
            .1
            .starts_with("tranche runtime configure --runtime containerd")
    );
    // docker's containerd, whose file turns off what CDI is for.
    machine.engine("containerd", "containerd containerd.io 1.7.24 x");
    machine.write(CONTAINERD, "disabled_plugins = [\"cri\"]\n");
    assert_eq!(machine.found("engine-cdi-off"), []);
    // One that has to be converted first.
    machine.write(CONTAINERD, "root = \"/var/lib/containerd\"\n");
    let found = machine.found("engine-cdi-off");
    assert!(found[0].1.starts_with("run containerd config migrate"), "{found:?}");
}

/// The specifications, the policy and the state of this machine say nothing about another one.
#[test]
fn nothing_of_this_machine_is_read_for_another() {
    let machine = OtherMachine::new();
    let said = machine.doctor();
    for text in ["no specification has a device of NVIDIA", "another machine is examined"] {
        assert!(said.out.contains(text), "{text}: {}", said.out);
    }
    machine.write("run/cdi/nvidia.json", "{");
    assert_eq!(machine.found("spec-invalid").len(), 1, "its own are read");
    machine.write("etc/tranche/config.yaml", "version: v1\nsharing:\n  msp: {}\n");
    assert_eq!(machine.found("policy-invalid").len(), 1);
    let said = tranche(&["doctor", "--json", "--inventory=sim:hgx-h200"]);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let text = report.to_string();
    assert!(!text.contains("/var/run/cdi") && !text.contains("/etc/cdi"), "{text}");
}
