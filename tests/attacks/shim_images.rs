//! What an image writes into a container's configuration by each engine that copies something of it: annotations with podman
//! before 4.5.1, labels with nerdctl. With CRI-O, the author of a pod writes them.

use std::fs;

use serde_json::{Value, json};

use crate::shim::{EXECUTED, Shim, asking};
use crate::shim_ended::twin;
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
