//! How often the start of a container takes the lock of the ledger, for which all starts wait.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::place::{Place, plain, said};
use crate::support::{init::Init, programs::script, rights, skip, until::until};

/// GPU 0 in ten turns, GPU 1 whole.
const POLICY: &str = "\
version: v1
sharing:
  timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [0], replicas: 10}]}
  dedicated: {devices: [1, 2]}
";

/// A low-level runtime that lives until the hooks have run, as each does: with it, a start ends.
const LOW_LEVEL: &str = "cd \"${0%/*}\"\n: >started\nwhile [ ! -e go ]; do sleep 0.02; done\n";

/// `command` with a log of the locks that it and its children take.
fn traced(place: &Place, command: &Command, log: &str) -> Command {
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-y", "-e", "trace=flock", "-o"])
        .arg(place.at(log));
    strace.arg(command.get_program()).args(command.get_args());
    strace
        .current_dir(place.at(""))
        .env_clear()
        .env("PATH", "/usr/bin:/bin");
    strace
}

/// How often the lock of the ledger was taken by this log.
fn taken(place: &Place, log: &str) -> usize {
    let log = fs::read_to_string(place.at(log)).unwrap();
    let of_ledger = log
        .lines()
        .filter(|line| line.contains("/ledger/lock>, LOCK_EX") && line.ends_with("= 0"));
    of_ledger.count()
}

/// Starts a container with `device` as an engine does: the runtime first, and then the hooks that it has added. Returns
/// how often the lock was taken.
fn start(place: &Place, device: &str, id: &str, init: &Init) -> usize {
    let mut config = plain();
    config["annotations"] = json!({"cdi.k8s.io/x": device});
    place.configure(&config);
    let [started, go] = ["started", "go"].map(|name| place.at("bin").join(name));
    for file in [&started, &go] {
        let _ = fs::remove_file(file);
    }
    let create = place.command(&["create", "--bundle", "bundle", id]);
    let mut runtime = traced(place, &create, "runtime.trace")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    until("the low-level runtime runs", || {
        started.exists() || runtime.try_wait().unwrap().is_some()
    });
    let config: Value = serde_json::from_slice(&fs::read(place.config()).unwrap()).unwrap();
    let bundle = place.at("bundle");
    let state = json!({"ociVersion": "1.0.2", "id": id, "status": "creating", "bundle": bundle, "pid": init.pid()});
    let input = place.at("state.json");
    fs::write(&input, state.to_string()).unwrap();
    let none = Vec::new();
    let hooks = config["hooks"]["createRuntime"].as_array().unwrap_or(&none);
    let mut of_hooks = Vec::new();
    for hook in hooks.iter().filter(|hook| hook["args"][2] == "claim") {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche-oci"));
        let words = hook["args"].as_array().unwrap().iter().skip(1);
        command.args(words.map(|word| word.as_str().unwrap()));
        let mut command = traced(place, &command, "hook.trace");
        let output = command.stdin(File::open(&input).unwrap()).output().unwrap();
        of_hooks.push((output, taken(place, "hook.trace")));
    }
    fs::write(go, "").unwrap();
    let ended = runtime.wait().unwrap();
    assert!(ended.success() && !of_hooks.is_empty(), "{device}: {ended}: {config}");
    let mut all = taken(place, "runtime.trace");
    for (output, taken) in of_hooks {
        assert!(output.status.success(), "{device}: {}", said(&output));
        all += taken;
    }
    all
}

#[test]
fn a_start_takes_the_lock_of_the_ledger_at_most_twice() {
    let test = "locks::a_start_takes_the_lock_of_the_ledger_at_most_twice";
    if !rights::owns_machine(test) {
        return;
    }
    let is_traced = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    if !is_traced.is_ok_and(|output| output.status.success()) {
        return skip::not_run(test, "strace cannot be run");
    }
    let place = Place::new();
    script(place.at("bin/runc"), LOW_LEVEL);
    place.plan(POLICY);
    fs::write(place.at("policy.yaml"), POLICY).unwrap();
    // Its nodes are such as this machine has.
    let host: Value = serde_json::from_slice(&fs::read(place.at("state/host.json")).unwrap()).unwrap();
    fs::write(place.at("inventory.json"), host["inventory"].to_string()).unwrap();
    let mut claim = Command::new(env!("CARGO_BIN_EXE_tranche"));
    claim.args(["claim", "create", "--name=mine", "--device=2"]);
    for (option, path) in [
        ("state-dir", "state"),
        ("spec-dir", "specs"),
        ("config", "policy.yaml"),
        ("inventory", "inventory.json"),
    ] {
        claim.arg(format!("--{option}={}", place.at(path).display()));
    }
    let created = claim.env_clear().output().unwrap();
    assert!(created.status.success(), "{}", said(&created));
    let devices = ["gpu=0.3", "gpu=0.any", "gpu=1", "claim=mine"];
    let taken = devices.map(|device| {
        let init = Init::new();
        let taken = start(
            &place,
            &format!("nvidia.com/{device}"),
            &device.replace(['=', '.'], "-"),
            &init,
        );
        (device, taken)
    });
    assert!(taken.iter().all(|(_, taken)| (1..=2).contains(taken)), "{taken:?}");
}
