//! What an image writes into a container's configuration by each engine that copies something of it: annotations with
//! podman before 4.5.1, labels with nerdctl. With CRI-O, the author of a pod writes them.

use std::fs;

use serde_json::{Value, json};

use crate::run::Ended;
use crate::shim::{EXECUTED, Shim, asking};
use crate::shim_ended::twin;
use crate::shim_starts::{Ends, is_made_for};
use crate::support::until;
use crate::trial::Attack;

/// How an engine calls the runtime, and the annotations that it writes itself.
struct Calling {
    name: &'static str,
    root: &'static str,
    bundle: &'static str,
    /// The podman that is installed.
    podman: Option<&'static str>,
    own: &'static [&'static str],
}

const ENGINES: [Calling; 8] = [
    podman("podman 3.4.4", Some("3.4.4")),
    podman("podman 4.3.1", Some("4.3.1")),
    podman("podman 4.5.0", Some("4.5.0")),
    podman("podman of an unknown version", None),
    Calling {
        name: "CRI-O",
        root: "/run/runc",
        bundle: "overlay-containers/ID/userdata",
        podman: Some("5.4.2"),
        own: &["io.container.manager", "io.kubernetes.cri-o.ContainerID"],
    },
    Calling {
        name: "nerdctl",
        root: "/run/containerd/runc/default",
        bundle: "io.containerd.runtime.v2.task/default/ID",
        podman: Some("5.4.2"),
        own: &["nerdctl/name", "nerdctl/namespace"],
    },
    Calling {
        name: "nerdctl in docker's namespace",
        root: "/run/containerd/runc/moby",
        bundle: "io.containerd.runtime.v2.task/moby/ID",
        podman: Some("5.4.2"),
        own: &["nerdctl/name"],
    },
    Calling {
        name: "an unknown engine",
        root: "/run/x",
        bundle: "bundle",
        podman: Some("5.4.2"),
        own: &[],
    },
];

const fn podman(name: &'static str, podman: Option<&'static str>) -> Calling {
    Calling {
        name,
        root: "/run/crun",
        bundle: "vfs-containers/ID/userdata",
        podman,
        own: &["io.container.manager", "io.podman.annotations.autoremove"],
    }
}

/// Annotations of an image, and the environment beside them.
fn images() -> Vec<(Value, &'static [&'static str])> {
    let long = "x".repeat(1 << 20);
    vec![
        (json!({"cdi.k8s.io/x": "nvidia.com/gpu=0.any"}), &[]),
        (
            json!({"cdi.k8s.io/x": "nvidia.com/gpu=1", "tranche.dev/wait": "1h"}),
            &[],
        ),
        (json!({"cdi.k8s.io/x": "nvidia.com/claim=payroll"}), &[]),
        (json!({"tranche.dev/shares": "4", "tranche.dev/wait": "167h"}), &[]),
        (json!({"tranche.dev/memory": "8Gi", "tranche.dev/compute": "30"}), &[]),
        // What the user says counts.
        (
            json!({"cdi.k8s.io/x": "nvidia.com/gpu=0.any"}),
            &["NVIDIA_VISIBLE_DEVICES=void"],
        ),
        // It looks like the annotations of an engine that is accepted.
        (
            json!({"cdi.k8s.io/x": "nvidia.com/gpu=0.any", "io.container.manager": "docker",
                   "io.kubernetes.cri.container-type": "container", "io.podman.annotations.version": "5.4.2"}),
            &[],
        ),
        (json!({"cdi.k8s.io/nerdctl/x": "nvidia.com/gpu=0.any"}), &[]),
        // It cannot make a start fail either, nor print what moves a cursor.
        (
            json!({"tranche.dev/memory": "\u{1b}[2J", "cdi.k8s.io/\u{202e}": "../../x"}),
            &[],
        ),
        (json!({format!("cdi.k8s.io/{long}"): long}), &[]),
    ]
}

#[test]
fn annotations_of_an_image() {
    Attack::new(
        "shim_images::annotations_of_an_image",
        "an image, a label or a pod writes annotations that ask for a GPU, a share, a size, a claim or a long wait",
    )
    .run_one_way(|trial| {
        twin(trial);
        for engine in ENGINES {
            for (annotations, env) in images() {
                let shim = Shim::new();
                let mut host = shim.host();
                host["runtime"]["accept_annotations"] = Value::Null;
                host["runtime"]["oldest_podman"] = json!(engine.podman);
                shim.write_host(&host);
                let mut config = asking(env);
                let shown = annotations.to_string().chars().take(80).collect::<String>();
                config["annotations"] = annotations;
                for key in engine.own {
                    config["annotations"][*key] = "x".into();
                }
                let bundle = shim.at(engine.bundle);
                fs::create_dir_all(&bundle).unwrap();
                let before = config.to_string();
                fs::write(bundle.join("config.json"), &before).unwrap();
                let bundle_text = bundle.to_str().unwrap();
                let mut ended = shim.run(&["--root", engine.root, "create", "--bundle", bundle_text, "ID"]);
                let said = ended.stderr.lines().count();
                if ended.code != EXECUTED || said != 1 || !ended.stderr.contains("acceptAnnotations") {
                    ended
                        .wrong
                        .push(format!("{} and {said} lines: {:.300}", ended.code, ended.stderr));
                }
                if fs::read_to_string(bundle.join("config.json")).unwrap() != before {
                    ended.wrong.push("config.json was changed".to_owned());
                }
                if shim.subject.is_real() && !shim.held().is_empty() {
                    ended.wrong.push(format!("something is held: {:?}", shim.held()));
                }
                trial.record(&format!("{}: {shown}", engine.name), &ended);
            }
        }
    });
}

/// Specifications of another program: the plain names, the management of all devices, and devices of a vendor, each
/// with the node of a GPU that the policy splits, by its number and by a mount.
fn foreign_specifications(shim: &Shim) {
    let split = json!({"deviceNodes": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]});
    let node = json!({"deviceNodes": [{"path": "/dev/any-name", "type": "c", "major": 195, "minor": 0}]});
    for (file, kind, name, edits) in [
        ("nvidia.json", "nvidia.com/gpu", "all", &split),
        ("own.json", "nvidia.com/gpu", "0.any", &split),
        ("management.json", "management.nvidia.com/gpu", "all", &split),
        ("other.json", "other.example/gpu", "x", &node),
    ] {
        let devices = json!([{"name": name, "containerEdits": edits}]);
        let spec = json!({"cdiVersion": "0.5.0", "kind": kind, "devices": devices});
        fs::write(shim.at("cdi").join(file), spec.to_string()).unwrap();
    }
}

/// The environment is the image's word with every engine. It asks for shares, if the owner accepts that, and for
/// nothing that another user holds or waits for.
#[test]
fn variables_of_an_image() {
    Attack::new(
        "shim_images::variables_of_an_image",
        "the environment of an image asks for a claim, for split devices by another program's names, or for a long wait",
    )
    .run_one_way(|trial| {
        twin(trial);
        for (env, says) in [
            (&["NVIDIA_VISIBLE_DEVICES=nvidia.com/claim=payroll"][..], "claimsFromEnvironment"),
            (&["NVIDIA_VISIBLE_DEVICES=1,nvidia.com/claim=1000.payroll"], "claimsFromEnvironment"),
            (&["NVIDIA_VISIBLE_DEVICES=nvidia.com/claim=start-0000000000000000"], "claimsFromEnvironment"),
            (&["NVIDIA_VISIBLE_DEVICES=management.nvidia.com/gpu=all"], "gpu 0"),
            (&["NVIDIA_VISIBLE_DEVICES=other.example/gpu=x"], "gpu 0"),
            (&["NVIDIA_VISIBLE_DEVICES=other.example/gpu=x", "NVIDIA_DRIVER_CAPABILITIES=all"], "gpu 0"),
            (&["NVIDIA_VISIBLE_DEVICES=1,other.example/gpu=x"], "gpu 0"),
            // All four are held, or another start waits for them.
            (&["NVIDIA_VISIBLE_DEVICES=0", "TRANCHE_SHARES=4", "TRANCHE_WAIT=167h"], "gpu 0"),
        ] {
            let shim = Shim::new();
            foreign_specifications(&shim);
            let holder = holder(&shim);
            shim.configure(&asking(env));
            let before = fs::read(shim.config()).unwrap();
            let mut ended = shim.create();
            ended.wrong.extend(refused_after_remarks(&ended, says));
            if fs::read(shim.config()).unwrap() != before {
                ended.wrong.push("config.json was changed".to_owned());
            }
            drop(holder);
            trial.record(&env.join(" "), &ended);
        }
        // By tranche's own names, even if other files define them: every device that is not split, and a share with its
        // claim.
        for (name, has) in [("nvidia.com/gpu=all", "/dev/nvidia1"), ("nvidia.com/gpu=0.any", "/dev/nvidia0")] {
            let shim = Shim::new();
            foreign_specifications(&shim);
            shim.configure(&asking(&[&format!("NVIDIA_VISIBLE_DEVICES={name}")]));
            let mut ended = shim.create();
            let seen = shim.seen().unwrap_or_default().to_string();
            let is_claimed = seen.contains("\"claim\"") && seen.contains("/dev/nvidia0");
            if shim.subject.is_real() && (!seen.contains(has) || seen.contains("/dev/nvidia0") != is_claimed) {
                ended.wrong.push(format!("{name}: {seen:.400} {}", ended.stderr));
            }
            trial.record(name, &ended);
        }
    });
}

/// A process that holds one share of the first GPU until it is dropped.
fn holder(shim: &Shim) -> Option<Ends> {
    if !shim.subject.is_real() {
        return None;
    }
    shim.program("bin/hold", "#!/bin/sh\nexec sleep 1000\n");
    let mut host = shim.host();
    host["runtime"]["runtimes"] = json!([shim.at("bin/hold")]);
    shim.write_host(&host);
    let holder = shim
        .command(&["create", "--bundle", "bundle", "FIRST"])
        .spawn()
        .unwrap();
    let holder = Ends(holder);
    until("the first one holds a share", || is_made_for(shim, "FIRST"));
    shim.write_host(&shim.host());
    Some(holder)
}

/// What is wrong with an end, if it is not a refusal whose last line has `says`.
fn refused_after_remarks(ended: &Ended, says: &str) -> Option<String> {
    let last = ended.stderr.lines().last().unwrap_or_default();
    let is_refused = ended.code != EXECUTED && last.contains(says);
    (!is_refused).then(|| format!("not refused because of {says}: {} {:.400}", ended.code, ended.stderr))
}
