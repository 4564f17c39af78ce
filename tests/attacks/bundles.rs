//! A state and a config.json that are not what they should be: they are the engine's, and still nothing is believed
//! that can be looked at.

use serde_json::{Value, json};

use crate::run::Ended;
use crate::stage::Stage;
use crate::trial::Attack;
use crate::verb::{VERBS, Verb};

/// Refused in one line.
fn refused(ended: &Ended) -> Vec<String> {
    let seen = (ended.code, ended.stderr.lines().count());
    if seen == (1, 1) {
        Vec::new()
    } else {
        vec![format!("not refused in one line: {seen:?} {}", ended.stderr)]
    }
}

/// Where the two words about the root differ nothing is done; crun gives both.
#[test]
fn a_config_that_lies_about_the_root() {
    Attack::new(
        "bundles::a_config_that_lies_about_the_root",
        "config.json names another directory as the root than the runtime does, so that the hook works there",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for root in [
                "outside",
                "..",
                ".",
                "../outside/host",
                "link",
                "/",
                "loop",
                "absent",
                "config.json",
                "rootfs/../..",
            ] {
                let mut stage = Stage::new(verb);
                let bundle = stage.scene.at("bundle");
                std::os::unix::fs::symlink("../outside/host", bundle.join("link")).unwrap();
                std::os::unix::fs::symlink("loop", bundle.join("loop")).unwrap();
                let mut config = stage.config();
                config["root"]["path"] = json!(root);
                stage.scene.configure(config);
                stage.state = json!({"id": "c", "bundle": bundle, "root": bundle.join("rootfs")}).to_string();
                stage.keeps_image = true;
                trial.attack_and(&format!("{} with the root {root}", verb.name), &stage, refused);
            }
        }
    });
}

/// runc does not say where the root is. Then config.json alone does, and still it cannot be the host's own.
#[test]
fn the_hosts_own_root() {
    Attack::new(
        "bundles::the_hosts_own_root",
        "config.json names the host's own root directory as the container's",
    )
    .run(|trial| {
        trial.twin(&Stage::new(Verb::named("create-symlinks")));
        // This step alone, on a path that exists in the scene alone: should it get through, nothing is lost.
        for root in [
            "/",
            "/proc/self/root",
            "/proc/1/root",
            "/../..",
            "../../../../../../../../../..",
        ] {
            let mut stage = Stage::new(Verb::named("create-symlinks"));
            stage.verb.arguments = &[];
            let at = stage.scene.at("outside/host/written");
            stage.more = vec!["--link".into(), format!("x::{}", at.display()).into()];
            stage.scene.configure(json!({"root": {"path": root}}));
            trial.attack_and(&format!("the root {root}"), &stage, refused);
        }
    });
}

#[test]
fn broken_states() {
    let deep = "[".repeat(200_000);
    let large = format!("{{\"bundle\":\"/{}\"}}", "x".repeat(2 << 20));
    Attack::new(
        "bundles::broken_states",
        "the state on standard input is no state: truncated, nested without end, huge, or naming a device as the bundle",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for state in [
                "",
                "\n",
                "{",
                "null",
                "[]",
                "0",
                "\"\"",
                "{}",
                r#"{"bundle":null}"#,
                r#"{"bundle":""}"#,
                r#"{"bundle":"."}"#,
                r#"{"bundle":"/"}"#,
                r#"{"bundle":"/proc/self/cwd"}"#,
                r#"{"bundle":"/dev/zero"}"#,
                r#"{"bundle":"/\u0000"}"#,
                r#"{"bundle":"/etc","root":"/etc"}"#,
                "{\"bundle\":\"/\u{1b}[2J\"}",
                "{\"bundle\":\"/\\u001b[2J\\u202e\"}",
                "\u{0}\u{0}\u{0}",
                &deep,
                &large,
            ] {
                let mut stage = Stage::new(verb);
                state.clone_into(&mut stage.state);
                stage.keeps_image = true;
                let name = format!("{} with {:.40}", verb.name, state.escape_debug().to_string());
                trial.attack_and(&name, &stage, refused);
            }
        }
    });
}

#[test]
fn broken_configurations() {
    Attack::new(
        "bundles::broken_configurations",
        "config.json is cut off, has other types than it should, or is a FIFO, a device or a link to one",
    )
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for text in [
                "",
                "{",
                "[]",
                "{}",
                r#"{"root":[]}"#,
                r#"{"root":{"path":"rootfs"},"mounts":{}}"#,
                r#"{"root":{"path":1}}"#,
                "\u{feff}{}",
            ] {
                let mut stage = Stage::new(verb);
                std::fs::write(stage.scene.at("bundle/config.json"), text).unwrap();
                stage.keeps_image = true;
                trial.attack_and(&format!("{} with {text}", verb.name), &stage, refused);
            }
            let file = |stage: &Stage| stage.scene.at("bundle/config.json");
            type Put = fn(&std::path::Path);
            let others: [(&str, Put); 3] = [
                ("a FIFO", |at| {
                    nix::unistd::mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap()
                }),
                ("a link to a device", |at| {
                    std::os::unix::fs::symlink("/dev/zero", at).unwrap()
                }),
                ("a directory", |at| std::fs::create_dir(at).unwrap()),
            ];
            for (what, put) in others {
                let mut stage = Stage::new(verb);
                std::fs::remove_file(file(&stage)).unwrap();
                put(&file(&stage));
                stage.keeps_image = true;
                trial.attack_and(&format!("{} with {what}", verb.name), &stage, refused);
            }
        }
    });
}

/// Lists of nodes and mounts that no engine makes.
#[test]
fn nodes_and_mounts_that_cannot_be() {
    let odd: [Value; 6] = [
        json!([{"path": "/dev/nvidia99999999999999999999"}, {"path": "/dev/nvidia-1"}, {"path": "/dev/nvidia"}]),
        json!([{"path": "../../../outside/host"}, {"path": ""}, {"path": "/dev/nvidia0/../../etc"}]),
        json!([{"path": "/dev/nvidia\n0"}, {"path": "/dev/nvidia0\u{0}"}]),
        Value::Array(
            (0..20_000)
                .map(|n| json!({"path": format!("/dev/nvidia{n}")}))
                .collect(),
        ),
        json!([{"path": "/dev/nvidia+1"}, {"path": "/dev/nvidia٣"}]),
        json!(null),
    ];
    Attack::new(
        "bundles::nodes_and_mounts_that_cannot_be",
        "device nodes and mounts in config.json have paths that climb, do not end, or come in tens of thousands",
    )
    .naive_passes("it compares these paths with those of its arguments and uses them for nothing else")
    .run(|trial| {
        for verb in VERBS {
            trial.twin(&Stage::new(verb));
            for devices in &odd {
                for as_mounts in [false, true] {
                    let stage = Stage::new(verb);
                    let mut config = stage.config();
                    if as_mounts {
                        let mounts = devices.as_array().into_iter().flatten();
                        config["mounts"] = mounts
                            .map(|d| json!({"destination": d["path"], "options": ["bind"]}))
                            .collect();
                    } else {
                        config["linux"]["devices"] = devices.clone();
                    }
                    stage.scene.configure(config);
                    trial.attack(
                        &format!("{} with {:.40}, {as_mounts}", verb.name, devices.to_string()),
                        &stage,
                    );
                }
            }
        }
    });
}
