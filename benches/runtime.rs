//! What a container's start pays for the runtime: `tranche-runtime create` in front of a low-level runtime that does
//! nothing, against that low-level runtime alone and against a program that only executes it.
//!
//! ```text
//! make bench
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark fails by a panic"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "support/runner.rs"]
mod runner;

use runner::Runner;

/// A host with eight GPUs, of which the first is split.
const HOST: &str = "hgx-h200";

fn main() {
    // `cargo test --all-targets` runs this too, and wants no benchmark.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let Some(runtime) = std::env::var_os("TRANCHE_RUNTIME_STATIC").map(PathBuf::from) else {
        println!("not run: benches/runtime: TRANCHE_RUNTIME_STATIC is not set: run `make bench`");
        return;
    };
    let scene = runner::scene();
    let at = |name: &str| scene.path().join(name);
    let empty = runner::empty(scene.path());
    let passing = passing(scene.path(), &empty);
    refresh(scene.path(), "state", MPS, &empty);
    let configuration = |environment: &str| {
        let text = include_str!("../tests/configs/podman-4.3.1-crun-plain.json");
        let mut config: serde_json::Value = serde_json::from_str(text).unwrap();
        let list = config["process"]["env"].as_array_mut().unwrap();
        list.retain(|entry| !entry.as_str().unwrap().starts_with("NVIDIA_"));
        list.push(environment.into());
        serde_json::to_vec(&config).unwrap()
    };
    let create = |name: &str, program: &Path, before: &[&str], environment: &str| {
        let bundle = at(name);
        fs::create_dir_all(&bundle).unwrap();
        let mut words: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
        words.extend(["create", "--bundle", bundle.to_str().unwrap(), name].map(str::to_owned));
        let runner = Runner::new(name, program, words, "");
        (runner, bundle.join("config.json"), configuration(environment))
    };
    let state = at("state");
    let state = ["--state-dir", state.to_str().unwrap()];
    let rows = [
        create("the low-level runtime alone", &empty, &[], "A=b"),
        create("a program that only executes it", &passing, &[], "A=b"),
        create("nothing requested", &runtime, &state, "A=b"),
        create(
            "NVIDIA_VISIBLE_DEVICES=void",
            &runtime,
            &state,
            "NVIDIA_VISIBLE_DEVICES=void",
        ),
        create(
            "seven whole GPUs of eight",
            &runtime,
            &state,
            "NVIDIA_VISIBLE_DEVICES=all",
        ),
        create(
            "two shares of a GPU",
            &runtime,
            &state,
            "NVIDIA_VISIBLE_DEVICES=0.1,0.2",
        ),
    ];
    let (mut runners, files): (Vec<Runner>, Vec<_>) = rows.into_iter().map(|(r, at, text)| (r, (at, text))).unzip();
    for _ in 0..runner::rounds(300) {
        for (runner, (config, text)) in runners.iter_mut().zip(&files) {
            fs::write(config, text).unwrap();
            runner.round();
        }
    }
    let changed = |row: usize| fs::read(&files[row].0).unwrap() != files[row].1;
    assert_eq!([2, 3, 4, 5].map(changed), [false, false, true, true]);
    runner::table(&mut runners);
    plans(scene.path(), &runtime, &empty, configuration);
}

/// The sharing section of the rows above.
const MPS: &str =
    "{mps: {daemon: external, computeMode: keep, resources: [{name: nvidia.com/gpu, devices: [0], replicas: 10}]}}";

/// `create` of a container that asks for nothing or for one share, and `state`, with plans of different sizes. The last
/// plans are the largest that a policy may make of eight GPUs.
fn plans(scene: &Path, runtime: &Path, empty: &Path, config: impl Fn(&str) -> Vec<u8>) {
    let bundle = scene.join("plans");
    fs::create_dir_all(&bundle).unwrap();
    let file = bundle.join("config.json");
    let nothing = config("A=b");
    let equal = |devices: &str, count: usize| {
        format!("{{timeSlicing: {{resources: [{{name: nvidia.com/gpu, devices: {devices}, replicas: {count}}}]}}}}")
    };
    let names: Vec<String> = (0..1024).map(|number| format!("{{name: s{number}}}")).collect();
    let named = format!(
        "{{timeSlicing: {{resources: [{{name: nvidia.com/gpu, devices: all, shares: [{}]}}]}}}}",
        names.join(", ")
    );
    let policies = [
        ("no share", "{}".to_owned(), None),
        ("10 shares", equal("[0]", 10), Some("0.9")),
        ("8,192 equal shares", equal("all", 1024), Some("0.1000")),
        ("8,192 named shares", named, Some("0.s1000")),
    ];
    let mut rows = vec![(
        Runner::new("the low-level runtime alone", empty, Vec::new(), ""),
        nothing.clone(),
        false,
    )];
    for (number, (plan, sharing, share)) in policies.iter().enumerate() {
        let state = format!("state-{number}");
        refresh(scene, &state, sharing, empty);
        let state = scene.join(state).to_str().unwrap().to_owned();
        let bytes = fs::metadata(Path::new(&state).join("host.json")).unwrap().len();
        println!("{plan}: host.json has {bytes} bytes");
        let create = ["create", "--bundle", bundle.to_str().unwrap(), "c"];
        let mut add = |what: &str, words: &[&str], text: Vec<u8>, changes: bool| {
            let all = ["--state-dir", &state].into_iter().chain(words.iter().copied());
            let name = format!("{what}, {plan}");
            let runner = Runner::new(&name, runtime, all.map(str::to_owned).collect(), "");
            rows.push((runner, text, changes));
        };
        add("create, nothing requested", &create, nothing.clone(), false);
        add("state", &["state", "c"], nothing.clone(), false);
        if let Some(share) = share {
            let text = config(&format!("NVIDIA_VISIBLE_DEVICES={share}"));
            add("create, one share", &create, text, true);
        }
    }
    for _ in 0..runner::rounds(300) {
        for (runner, text, changes) in &mut rows {
            fs::write(&file, &text).unwrap();
            runner.round();
            assert_eq!(fs::read(&file).unwrap() != *text, *changes);
        }
    }
    let mut runners: Vec<Runner> = rows.into_iter().map(|(runner, ..)| runner).collect();
    runner::table(&mut runners);
}

/// Compiles a static program that executes `target` with its own arguments.
fn passing(directory: &Path, target: &Path) -> PathBuf {
    let (program, source) = (directory.join("passing"), directory.join("passing.c"));
    let text = format!(
        "#include <unistd.h>\nint main(int n, char **words, char **env) {{ (void)n; return execve({target:?}, words, env); }}\n"
    );
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-static", "-o"]).arg(&program).arg(&source);
    assert!(
        compiler.status().unwrap().success(),
        "cannot compile the passing program"
    );
    program
}

/// Writes host.json for [`HOST`], whose device nodes this machine need not have, into the directory `state`. `sharing`
/// is that section of the policy, and `low_level` the only low-level runtime.
fn refresh(scene: &Path, state: &str, sharing: &str, low_level: &Path) {
    let tranche = env!("CARGO_BIN_EXE_tranche");
    let output = Command::new(tranche)
        .args(["inventory", "--inventory"])
        .arg(format!("sim:{HOST}"))
        .output()
        .unwrap();
    assert!(output.status.success());
    let mut host: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    absent(&mut host);
    fs::write(scene.join("host"), host.to_string()).unwrap();
    let policy = format!("version: v1\nsharing: {sharing}\nruntime: {{runtimes: [{low_level:?}]}}\n");
    // A policy and specifications of its own: host.json is out of date when they change.
    let [policy_file, specifications] = ["policy", "cdi"].map(|name| format!("{name}-{state}"));
    fs::write(scene.join(&policy_file), policy).unwrap();
    let mut refresh = Command::new(tranche);
    refresh.args(["cdi", "refresh", "--inventory"]).arg(scene.join("host"));
    for (option, name) in [
        ("--config", policy_file.as_str()),
        ("--state-dir", state),
        ("--output-dir", &specifications),
    ] {
        refresh.arg(option).arg(scene.join(name));
    }
    refresh.args(["--hook-path", "/usr/bin/tranche-oci"]);
    let output = refresh.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Says of every device node that it does not exist, so that its numbers are in the plan.
fn absent(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(object) => {
            if let Some(present) = object.get_mut("present") {
                *present = false.into();
            }
            object.values_mut().for_each(absent);
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(absent),
        _ => {}
    }
}
