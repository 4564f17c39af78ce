//! A state and a config.json that are not what they should be: they are the engine's, and still nothing is believed that
//! can be looked at.

use serde_json::{Value, json};

use crate::both_ways;
use crate::stage::Stage;
use crate::verb::{VERBS, Verb};

/// Where the two words about the root differ nothing is done; crun gives both.
#[test]
fn a_config_that_lies_about_the_root() {
    both_ways("bundles::a_config_that_lies_about_the_root", |tally, how| {
        for verb in VERBS {
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
                let ended = stage.attack(&format!("{} with the root {root}, {how}", verb.name), tally);
                assert_eq!(ended.code, 1, "{}", ended.stderr);
            }
        }
    });
}

/// runc does not say where the root is. Then config.json alone does, and still it cannot be the host's own.
#[test]
fn the_hosts_own_root() {
    both_ways("bundles::the_hosts_own_root", |tally, how| {
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
            let ended = stage.attack(&format!("the root {root}, {how}"), tally);
            assert_eq!(ended.code, 1, "{root}: {}", ended.stderr);
        }
    });
}

#[test]
fn states_that_are_none() {
    let deep = "[".repeat(200_000);
    let large = format!("{{\"bundle\":\"/{}\"}}", "x".repeat(2 << 20));
    both_ways("bundles::states_that_are_none", |tally, how| {
        for verb in VERBS {
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
                "\u{0}\u{0}\u{0}",
                &deep,
                &large,
            ] {
                let mut stage = Stage::new(verb);
                state.clone_into(&mut stage.state);
                stage.keeps_image = true;
                let name = format!("{} with {:.40}, {how}", verb.name, state.escape_debug().to_string());
                let ended = stage.attack(&name, tally);
                assert_eq!(ended.code, 1, "{name}: {}", ended.stderr);
                assert_eq!(ended.stderr.lines().count(), 1, "{name}: {}", ended.stderr);
            }
        }
    });
}

#[test]
fn configs_that_are_none() {
    both_ways("bundles::configs_that_are_none", |tally, how| {
        for verb in VERBS {
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
                let ended = stage.attack(&format!("{} with {text}, {how}", verb.name), tally);
                assert_eq!(
                    (ended.code, ended.stderr.lines().count()),
                    (1, 1),
                    "{text}: {}",
                    ended.stderr
                );
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
    both_ways("bundles::nodes_and_mounts_that_cannot_be", |tally, how| {
        for verb in VERBS {
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
                    let name = format!("{} with {:.40}, {as_mounts}, {how}", verb.name, devices.to_string());
                    stage.attack(&name, tally);
                }
            }
        }
    });
}
