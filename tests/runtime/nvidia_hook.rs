//! The prestart hook that docker before 29.2 adds for `--gpus`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::{Value, json};
use tranche_specs::nvidia_config;

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
    let first = "NVIDIA Container Runtime Hook version 1.20.0\ncommit: tranche-runtime 0.";
    assert_eq!(
        (version.code, version.stdout.starts_with(first)),
        (0, true),
        "{}",
        version.stdout
    );
    let help = hook(&place, &["-help"]);
    assert_eq!(
        (help.code, help.stdout.contains("prestart")),
        (0, true),
        "{}",
        help.stdout
    );
    assert_eq!(hook(&place, &["-unheard-of", "poststop"]).code, 2);
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

/// A container, NVIDIA's settings, and the arguments that NVIDIA's hook gave `nvidia-container-cli` for them.
#[derive(serde::Deserialize)]
struct Recorded {
    what: String,
    env: Vec<String>,
    #[serde(default)]
    privileged: bool,
    #[serde(default)]
    mounts: Vec<String>,
    #[serde(default)]
    config: String,
    #[serde(default)]
    flags: Vec<String>,
    /// `None` if it did nothing, or failed.
    arguments: Option<Vec<String>>,
    #[serde(default)]
    fails: bool,
}

/// Where tranche does something else on purpose: it starts the container where NVIDIA's hook fails, or passes a device
/// once.
const OTHERWISE: [(&str, Option<&[&str]>); 5] = [
    // NVIDIA's hook passes `--device=,0`.
    ("twice the same device", Some(&["--device=0", "--compute", "--utility"])),
    // `/` is the default of `--root`.
    ("root, /", Some(&["--device=0", "--compute", "--utility"])),
    // A version that cannot be compared is reported, and the container starts.
    ("legacy image, four numbers", Some(&LEGACY)),
    ("legacy image, a word", Some(&LEGACY)),
    ("legacy image, a space", Some(&LEGACY)),
];

const LEGACY: [&str; 8] = [
    "--device=all",
    "--compat32",
    "--compute",
    "--display",
    "--graphics",
    "--ngx",
    "--utility",
    "--video",
];

/// Recorded with version 1.20.0 of NVIDIA's hook, with an `nvidia-container-cli` that prints its arguments. Without
/// `--ldconfig`, `--pid` and the root, which depend on the machine.
#[test]
fn the_program_gets_the_arguments_that_nvidia_s_hook_gives_it() {
    let place = Place::new();
    let recorded = include_str!("../data/nvidia-hook.jsonl");
    let mut wrong = Vec::new();
    for line in recorded.lines() {
        let recorded: Recorded = serde_json::from_str(line).unwrap();
        fs::write(place.at("config.toml"), &recorded.config).unwrap();
        let mut settings = nvidia_config::read(&place.at("config.toml")).unwrap().settings;
        settings.nvidia_cli.path = Some(place.at("bin/runc"));
        let mut host = place.host(&[]);
        host["runtime"] = serde_json::to_value(settings).unwrap();
        fs::write(place.at("state/host.json"), host.to_string()).unwrap();
        let mut config = plain();
        let capability = if recorded.privileged {
            "CAP_SYS_ADMIN"
        } else {
            "CAP_CHOWN"
        };
        config["process"] = json!({"env": recorded.env, "capabilities": {"bounding": [capability]}});
        let mount = |path: &String| json!({"source": "/dev/null", "destination": path});
        config["mounts"] = recorded.mounts.iter().map(mount).collect();
        place.configure(&config);

        let words: Vec<&str> = recorded.flags.iter().map(String::as_str).chain(["prestart"]).collect();
        let ended = hook(&place, &words);
        let got = match ended.code {
            EXECUTED => {
                let mut arguments = place.start().arguments;
                let machine = ["--ldconfig=", "--pid="];
                arguments.retain(|word| !machine.iter().any(|own| word.starts_with(own)));
                arguments.pop();
                Ok(Some(arguments))
            }
            0 => Ok(None),
            _ => Err(()),
        };
        let theirs = if recorded.fails {
            Err(())
        } else {
            Ok(recorded.arguments)
        };
        let other = OTHERWISE.iter().find(|(what, _)| *what == recorded.what);
        let expected = other.map_or(theirs.clone(), |(_, rest)| {
            let first = ["--load-kmods", "configure", "--cuda-compat-mode=ldconfig"];
            Ok(rest.map(|rest| [&first[..], rest].concat().into_iter().map(str::to_owned).collect()))
        });
        assert!(
            other.is_none() || expected != theirs,
            "{}: no difference",
            recorded.what
        );
        if got != expected {
            wrong.push(format!(
                "{}\n got      {got:?}\n expected {expected:?}\n {}",
                recorded.what, ended.stderr
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
