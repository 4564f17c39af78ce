//! The prestart hook that docker before 29.2 adds for `--gpus`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::place::{EXECUTED, Place, plain};
use crate::support::scene::{Ended, run};

/// A configuration that requests all devices.
fn request() -> Value {
    let mut config = plain();
    config["process"]["env"] = json!(["NVIDIA_VISIBLE_DEVICES=all"]);
    config
}

fn hook(place: &Place, words: &[&str]) -> Ended {
    let state =
        json!({"ociVersion": "1.0.2", "id": "ID", "status": "created", "pid": 42, "bundle": place.at("bundle")});
    let mut command = Command::new(place.runtime());
    command
        .arg0("/usr/bin/nvidia-container-runtime-hook")
        .arg("--state-dir")
        .arg(place.at("state"));
    command.args(words).env_clear();
    run(command, state.to_string().as_bytes())
}

/// The place's host.json, with this program as `nvidia-container-cli`.
fn with_cli(place: &Place, path: &str) {
    let mut host = place.host(&[]);
    host["runtime"]["nvidia_cli"]["path"] = place.at(path).display().to_string().into();
    host["runtime"]["nvidia_cli"]["ldconfig"] = "@/sbin/ldconfig".into();
    fs::write(place.at("state/host.json"), host.to_string()).unwrap();
}

#[test]
fn a_container_that_needs_nothing_starts() {
    let place = Place::new();
    with_cli(&place, "bin/none");
    place.configure(&plain());
    hook(&place, &["prestart"]).silent();
    // tranche's runtime was here already.
    let mut config = request();
    config["hooks"] =
        json!({"prestart": null, "createContainer": [{"path": "/x", "args": ["tranche-oci", "hook", "prepare"]}]});
    place.configure(&config);
    hook(&place, &["prestart"]).silent();
    place.configure(&request());
    for words in [
        &["poststart"][..],
        &["poststop"],
        &["-config", "/x", "-debug", "poststop"],
    ] {
        hook(&place, words).silent();
    }
    let version = hook(&place, &["-version"]);
    assert_eq!(
        (version.code, version.stdout.starts_with("tranche-runtime 0.")),
        (0, true)
    );
}

#[test]
fn without_the_program_it_fails_and_says_what_to_do() {
    let place = Place::new();
    with_cli(&place, "bin/none");
    place.configure(&request());
    let ended = hook(&place, &["-debug", "prestart"]);
    assert_eq!((ended.code, ended.stderr.lines().count()), (1, 1), "{}", ended.stderr);
    let what = "tranche-runtime: nvidia-container-runtime-hook prestart: nvidia-container-cli: not found; run tranche runtime \
                configure --runtime docker --set-as-default";
    assert!(ended.stderr.starts_with(what), "{}", ended.stderr);
    assert_eq!(hook(&place, &["other"]).code, 2);
    assert_eq!(hook(&place, &[]).code, 2);
}

#[test]
fn the_program_gets_what_the_container_requests() {
    let place = Place::new();
    with_cli(&place, "bin/runc");
    let arguments = |env: &Value| {
        let mut config = plain();
        config["process"]["env"] = env.clone();
        place.configure(&config);
        let ended = hook(&place, &["prestart"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (EXECUTED, ""));
        place.start().arguments
    };
    let root = place.at("bundle/rootfs").display().to_string();
    let seen = arguments(&json!([
        "NVIDIA_VISIBLE_DEVICES=0,1",
        "NVIDIA_DRIVER_CAPABILITIES=compute,video",
        "NVIDIA_REQUIRE_CUDA=cuda>=12.0 driver>=400",
    ]));
    let before = [
        "--load-kmods",
        "configure",
        "--cuda-compat-mode=ldconfig",
        "--ldconfig=@/sbin/ldconfig",
    ];
    let rest = [
        "--device=0,1",
        "--compute",
        "--video",
        "--require=cuda>=12.0 driver>=400",
        "--pid=42",
        &root,
    ];
    assert_eq!(seen, [&before[..], &rest].concat());
    assert!(arguments(&json!(["NVIDIA_VISIBLE_DEVICES=all"])).contains(&"--device=all".to_owned()));
    let none = arguments(&json!(["NVIDIA_VISIBLE_DEVICES=none"]));
    assert!(!none.iter().any(|word| word.starts_with("--device")), "{none:?}");

    // A share is tranche's, and the program knows only whole devices.
    let mut config = plain();
    config["process"]["env"] = json!(["NVIDIA_VISIBLE_DEVICES=0.big"]);
    place.configure(&config);
    let ended = hook(&place, &["prestart"]);
    assert_eq!(ended.code, 1);
    assert!(
        ended.stderr.contains("a share of device 0: cannot be given"),
        "{}",
        ended.stderr
    );
}
