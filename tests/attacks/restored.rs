//! A checkpoint that was made elsewhere: its author wrote the whole configuration of the container (containerd's
//! CVE-2026-53492; podman from 4.4 on restores an image that carries an annotation for it).

use std::fs;

use serde_json::{Value, json};

use crate::shim::{EXECUTED, Shim, asking};
use crate::shim_ended::{refused, twin};
use crate::trial::Attack;

/// A device node of a GPU, under any name.
fn node(minor: u32) -> Value {
    json!({"path": "/dev/any-name", "type": "c", "major": 195, "minor": minor})
}

/// Configurations that give the first GPU, which the policy splits.
fn hostile() -> Vec<(&'static str, Value)> {
    let with = |pointer: &str, value: Value| {
        let mut config = asking(&["NVIDIA_VISIBLE_DEVICES=0.any", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"]);
        config["linux"]["devices"] = json!([node(0)]);
        config[pointer] = value;
        config
    };
    let hook = |program: &str| {
        let device = "--device=GPU-00000000-0000-0000-0000-000000000000";
        let arguments = [
            "tranche-oci",
            "hook",
            "claim",
            device,
            "--share=0",
            "--of=4",
            "--size=1/4",
        ];
        json!({"createRuntime": [{"path": program, "args": arguments}]})
    };
    vec![
        ("a node", with("hostname", json!("x"))),
        (
            "a node and annotations",
            with("annotations", json!({"cdi.k8s.io/x": "nvidia.com/gpu=0.any"})),
        ),
        ("a node and a hook of its own", with("hooks", hook("/bin/true"))),
        (
            "a node and the hook of a claim",
            with("hooks", hook("/usr/bin/tranche-oci")),
        ),
        ("a node behind others", {
            let mut config = with("hostname", json!("x"));
            config["linux"]["devices"] = json!([node(1), node(255), node(0)]);
            config
        }),
    ]
}

#[test]
fn a_checkpoint_with_devices() {
    Attack::new(
        "restored::a_checkpoint_with_devices",
        "a checkpoint that is restored has the node of a split GPU, annotations that ask for one, or hooks that seem to claim it",
    )
    .run_one_way(|trial| {
        twin(trial);
        for (name, config) in hostile() {
            for arguments in [
                &["restore", "--bundle", "bundle", "--image-path", "/checkpoint", "ID"][..],
                &["--root", "/run/crun", "restore", "--detach", "--bundle=bundle", "ID"],
                &["restore", "-b", "bundle", "ID"],
            ] {
                let shim = Shim::new();
                shim.configure(&config);
                let before = fs::read(shim.config()).unwrap();
                let mut ended = shim.run(arguments);
                ended.wrong.extend(refused(&ended));
                if fs::read(shim.config()).unwrap() != before {
                    ended.wrong.push("config.json was changed".to_owned());
                }
                trial.record(&format!("{name}, {}", arguments.join(" ")), &ended);
            }
        }
        // What asks for a device and has none is restored as it is, and gets none.
        let shim = Shim::new();
        let config = asking(&["NVIDIA_VISIBLE_DEVICES=0.any"]);
        shim.configure(&config);
        let mut ended = shim.run(&["restore", "--bundle", "bundle", "ID"]);
        if shim.subject.is_real() && (ended.code != EXECUTED || shim.seen() != Some(config)) {
            ended.wrong.push(format!("not restored as it is: {} {}", ended.code, ended.stderr));
        }
        trial.record("a request alone", &ended);
    });
}
