//! Configurations as engines write them (tests/configs), and some that are odder: each passes byte for byte if it
//! requests nothing, and otherwise changes in nothing but what the request means.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::place::{Place, said};

/// What the runtime does to a configuration.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// It requests nothing.
    Nothing,
    /// It gets these GPUs. What else changes than with every GPU is listed, as by [`difference`].
    Gpus(&'static [u32], &'static [&'static str]),
    /// It cannot get what it requests: a part of the message.
    Refused(&'static str),
    /// Its request is not accepted from this engine, and it stays as it is: a part of the remark.
    Ignored(&'static str),
}

use Expected::{Gpus, Ignored, Nothing, Refused};

const ALL: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7];

/// docker adds this hook for `--gpus`; the runtime does its work.
const NVIDIA_HOOK: &[&str] = &["-/hooks/prestart"];

/// Who may use /dev/dri.
const GROUPS: &[&str] = &["+/process/user/additionalGids"];

/// The host has eight GPUs, none of them split, and NVIDIA's settings.
const CONFIGS: &[(&str, Expected)] = &[
    (
        "containerd-1.6.20-annotations",
        Refused("the policy of this host splits no device"),
    ),
    ("containerd-1.6.20-gpus", Nothing),
    ("containerd-1.6.20-odd-environment", Nothing),
    ("containerd-1.6.20-plain", Nothing),
    ("containerd-1.6.20-uidmap", Nothing),
    (
        "containerd-1.7.24-cri-annotations",
        Refused("the policy of this host splits no device"),
    ),
    ("containerd-1.7.24-cri-plain", Nothing),
    ("containerd-1.7.24-cri-sandbox", Nothing),
    ("containerd-1.7.24-cuda-image", Gpus(ALL, &[])),
    ("containerd-1.7.24-plain", Nothing),
    ("containerd-1.7.24-uidmap", Nothing),
    // The author of a pod writes these annotations, and an image those of an old podman.
    (
        "crio-1.33.4-annotations",
        Ignored("CRI-O copies annotations from every pod"),
    ),
    ("crio-1.33.4-plain", Nothing),
    ("crio-1.33.4-sandbox", Nothing),
    // All capabilities, so the nodes of /dev/dri are among what it gets.
    ("crio-1.33.4-visible-devices", Gpus(&[0], GROUPS)),
    ("docker-20.10.24-cuda-image", Gpus(ALL, &[])),
    ("docker-20.10.24-gpus-2", Gpus(&[0, 1], NVIDIA_HOOK)),
    ("docker-20.10.24-gpus-all", Gpus(ALL, NVIDIA_HOOK)),
    ("docker-20.10.24-gpus-device", Refused("GPU-1d2c")),
    ("docker-20.10.24-odd-environment", Nothing),
    ("docker-20.10.24-plain", Nothing),
    ("docker-20.10.24-privileged", Gpus(&[0], &[])),
    ("docker-20.10.24-swarm", Nothing),
    (
        "docker-20.10.24-visible-devices",
        Refused("the policy of this host splits no device"),
    ),
    ("docker-20.10.24-volume-mounts", Nothing),
    ("docker-26.1.5-gpus-all", Gpus(ALL, NVIDIA_HOOK)),
    ("docker-26.1.5-init-read-only", Nothing),
    ("docker-26.1.5-plain", Nothing),
    ("docker-26.1.5-privileged", Gpus(&[0], &[])),
    (
        "podman-4.3.1-annotations",
        Ignored("podman 4.3.1 copies annotations from images"),
    ),
    ("podman-4.3.1-crun-plain", Nothing),
    ("podman-4.3.1-cuda-image", Gpus(ALL, &[])),
    ("podman-4.3.1-many-mounts", Nothing),
    ("podman-4.3.1-mps-of-tenant", Gpus(&[0], &[])),
    ("podman-4.3.1-privileged", Gpus(&[0], &[])),
    ("podman-4.3.1-read-only", Nothing),
    ("podman-4.3.1-rootless", Nothing),
    ("podman-4.3.1-rootless-visible-devices", Gpus(ALL, &[])),
    (
        "podman-4.3.1-share",
        Refused("the policy of this host splits no device"),
    ),
    ("podman-4.3.1-uidmap", Nothing),
    ("podman-4.3.1-visible-devices", Gpus(&[0, 1], &[])),
    ("podman-4.3.1-volume-mounts", Nothing),
    (
        "podman-5.4.2-annotations",
        Refused("the policy of this host splits no device"),
    ),
    ("podman-5.4.2-crun-plain", Nothing),
    ("podman-5.4.2-cuda-image", Gpus(ALL, &[])),
    ("podman-5.4.2-uidmap", Nothing),
];

/// What every container with GPUs gets, as by [`difference`].
const OF_GPUS: [&str; 5] = [
    "+/hooks/createContainer",
    "+/linux/devices",
    "+/linux/resources/devices",
    "+/mounts",
    "+/process/env",
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs")
}

/// The places where `new` has something that `old` has not (`+`), and the reverse (`-`). Lists are compared without
/// regard to their order, because mounts are sorted.
fn difference(old: &Value, new: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    compare(old, new, String::new(), &mut found);
    found
}

fn compare(old: &Value, new: &Value, at: String, found: &mut BTreeSet<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let [old, new] = [old, new].map(|fields| fields.get(name).unwrap_or(&Value::Null));
                compare(old, new, format!("{at}/{name}"), found);
            }
        }
        (Value::Null, Value::Object(_)) => compare(&json!({}), new, at, found),
        (Value::Array(_) | Value::Null, Value::Array(_) | Value::Null) => {
            let [old, new] = [old, new].map(|list| list.as_array().cloned().unwrap_or_default());
            for (sign, items, others) in [("-", &old, &new), ("+", &new, &old)] {
                let count = |list: &[Value], item| list.iter().filter(|other| *other == item).count();
                if items.iter().any(|item| count(items, item) > count(others, item)) {
                    found.insert(format!("{sign}{at}"));
                }
            }
        }
        _ if old == new => {}
        _ => {
            found.insert(format!("-{at}"));
            found.insert(format!("+{at}"));
        }
    }
}

/// Whether the device cgroup of `config` has the rule that the nodes need. In this place, all of them are /dev/full.
fn allows_every_node(config: &Value) -> bool {
    let rule = json!({"allow": true, "type": "c", "major": 1, "minor": 7, "access": "rwm"});
    let rules = config.pointer("/linux/resources/devices").and_then(Value::as_array);
    rules.is_some_and(|rules| rules.contains(&rule))
}

/// The GPUs whose device nodes `new` has and `old` has not.
fn gpus(new: &Value) -> Vec<u32> {
    let nodes = new.pointer("/linux/devices").and_then(Value::as_array);
    let paths = nodes.into_iter().flatten().filter_map(|node| node["path"].as_str());
    let mut gpus: Vec<u32> = paths
        .filter_map(|path| path.strip_prefix("/dev/nvidia")?.parse().ok())
        .collect();
    gpus.sort_unstable();
    gpus
}

/// How an engine calls its low-level runtime.
struct Call {
    root: &'static str,
    bundle: &'static str,
}

impl Call {
    /// As no engine does it.
    const BY_HAND: Call = Call {
        root: "root",
        bundle: "bundle",
    };

    /// As the engine does it that wrote the configuration `name`.
    fn of(name: &str) -> Call {
        let (root, bundle) = match name.split('-').next().unwrap() {
            "docker" => ("docker/runtime-tranche/moby", "io.containerd.runtime.v2.task/moby/ID"),
            "containerd" if name.contains("-cri-") => ("runc/k8s.io", "io.containerd.runtime.v2.task/k8s.io/ID"),
            "containerd" => ("runc/default", "io.containerd.runtime.v2.task/default/ID"),
            "podman" => ("runc", "overlay-containers/ID/userdata"),
            "crio" => ("runc", "vfs-containers/ID/userdata"),
            other => panic!("{other}"),
        };
        Call { root, bundle }
    }
}

/// Makes `place` one in which the engine decides about annotations: podman has the version of the configuration `name`.
fn with_engine(place: &Place, name: &str) {
    let version = name.strip_prefix("podman-").map(|rest| rest.split('-').next().unwrap());
    let mut host = place.host(&[&place.at("bin/runc")]);
    host["runtime"]["accept_annotations"] = Value::Null;
    host["runtime"]["oldest_podman"] = version.unwrap_or("5.0.0").into();
    fs::write(place.at("state/host.json"), host.to_string()).unwrap();
}

/// What was made of a configuration, and the remarks about it.
struct Made {
    config: Vec<u8>,
    said: String,
}

/// Creates a container with the configuration `bytes`. Returns the configuration that the low-level runtime finds; the
/// message if it is not executed.
fn create(place: &Place, bytes: &[u8]) -> Result<Vec<u8>, String> {
    create_by(place, &Call::BY_HAND, bytes).map(|made| made.config)
}

/// As [`create`], by an engine.
fn create_by(place: &Place, call: &Call, bytes: &[u8]) -> Result<Made, String> {
    let _ = fs::remove_file(place.at("bin/arguments"));
    let bundle = place.at(call.bundle);
    fs::create_dir_all(&bundle).unwrap();
    fs::write(bundle.join("config.json"), bytes).unwrap();
    let bundle_text = bundle.to_str().unwrap();
    let output = place.run(&["--root", call.root, "create", "--bundle", bundle_text, "ID"]);
    let config = fs::read(bundle.join("config.json")).unwrap();
    let said = said(&output);
    if place.at("bin/arguments").exists() {
        return Ok(Made { config, said });
    }
    assert_eq!(config, bytes, "a refused configuration stays as it is");
    Err(said)
}

/// The same by podman's precreate hook.
fn precreate(place: &Place, bytes: &[u8]) -> Result<Made, String> {
    let mut command = std::process::Command::new(place.runtime());
    command
        .args(["hook", "precreate", "--state-dir"])
        .arg(place.at("state"))
        .env_clear();
    // A file, because a pipe does not hold ten megabytes.
    fs::write(place.at("input"), bytes).unwrap();
    let output = command
        .stdin(fs::File::open(place.at("input")).unwrap())
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(Made {
            said: said(&output),
            config: output.stdout,
        }),
        false => Err(said(&output)),
    }
}

#[test]
fn each_configuration_changes_as_it_requests() {
    let listed: BTreeMap<&str, Expected> = CONFIGS.iter().copied().collect();
    let place = Place::new();
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(directory()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let bytes = fs::read(&path).unwrap();
        with_engine(&place, &name);
        for (way, result) in [
            ("create", create_by(&place, &Call::of(&name), &bytes)),
            ("precreate", precreate(&place, &bytes)),
        ] {
            let expected = listed
                .get(name.as_str())
                .unwrap_or_else(|| panic!("{name} is not listed"));
            let remarks = result.as_ref().map_or("", |made| &made.said).to_owned();
            match expected {
                Ignored(part) => assert!(
                    remarks.contains(part) && remarks.lines().count() == 1,
                    "{way} {name}: {remarks}"
                ),
                // A pod's annotation reaches its containers without a request, too.
                _ => assert!(
                    remarks
                        .lines()
                        .all(|line| line.contains("tranche.dev/wait has no effect")),
                    "{way} {name}: {remarks}"
                ),
            }
            match (expected, result.map(|made| made.config)) {
                (Nothing | Ignored(_), Ok(after)) => assert!(after == bytes, "{way} {name} has changed"),
                (Gpus(wanted, more), Ok(after)) => {
                    let [old, new]: [Value; 2] = [&bytes, &after].map(|bytes| serde_json::from_slice(bytes).unwrap());
                    let mut expected: BTreeSet<String> = OF_GPUS.map(str::to_owned).into();
                    expected.extend(more.iter().map(|place| (*place).to_owned()));
                    if allows_every_node(&old) {
                        expected.remove("+/linux/resources/devices");
                    }
                    assert_eq!(difference(&old, &new), expected, "{way} {name}");
                    assert_eq!(gpus(&new), *wanted, "{way} {name}");
                    // A later start from the same file, as by `podman start`, changes nothing more.
                    if way == "create" {
                        assert!(
                            create_by(&place, &Call::of(&name), &after).unwrap().config == after,
                            "{name} changes twice"
                        );
                    }
                }
                (Refused(part), Err(line)) => {
                    assert!(line.contains(part) && line.lines().count() == 1, "{way} {name}: {line}");
                }
                (expected, result) => panic!(
                    "{way} {name}: expected {expected:?}, and it was {:?}",
                    result.map(|_| "accepted")
                ),
            }
        }
        names.insert(name);
    }
    assert_eq!(names, listed.keys().map(|name| (*name).to_owned()).collect());
}

/// podman's configuration without a request, as text.
fn plain() -> String {
    fs::read_to_string(directory().join("podman-4.3.1-crun-plain.json")).unwrap()
}

/// `text` with a request of GPU 0.
fn with_request(text: &str) -> String {
    let new = text.replacen("\"env\":[", "\"env\":[\"NVIDIA_VISIBLE_DEVICES=0\",", 1);
    assert_ne!(new, text);
    new
}

/// `text` with `part` at the beginning of each of its objects.
fn in_each_object(text: &str, part: &str) -> String {
    text.replace('{', &format!("{{{part},"))
}

#[test]
fn odd_configurations_keep_what_is_odd() {
    let place = Place::new();
    let plain = plain();
    // What is odd, and whether the configuration can still be edited.
    let odd: [(&str, String, bool); 8] = [
        (
            "unknown fields at each level",
            in_each_object(&plain, "\"x-unknown\":{\"b\":[null,1.10]}"),
            true,
        ),
        (
            "null lists",
            plain.replacen("\"linux\":{", "\"linux\":{\"devices\":null,\"netDevices\":null,", 1),
            true,
        ),
        (
            "a number that no float holds",
            in_each_object(&plain, "\"x-number\":1e400"),
            true,
        ),
        (
            "an integer that no float holds",
            in_each_object(&plain, "\"x-number\":9007199254740993123"),
            true,
        ),
        (
            "ten megabytes",
            plain.replacen("\"env\":[", &format!("\"env\":[\"LARGE={}\",", "x".repeat(10 << 20)), 1),
            true,
        ),
        ("white space", format!("\n\t{}\n\n", plain.replace(',', " ,\r\n")), true),
        ("keys twice", in_each_object(&plain, "\"x\":1,\"x\":2"), false),
        ("a byte order mark", format!("\u{feff}{plain}"), false),
    ];
    for (what, text, can_be_edited) in &odd {
        assert!(
            create(&place, text.as_bytes()).is_ok_and(|after| after == text.as_bytes()),
            "{what}"
        );
        assert!(
            precreate(&place, text.as_bytes()).is_ok_and(|made| made.config == text.as_bytes()),
            "{what}"
        );
        let request = with_request(text);
        let after = create(&place, request.as_bytes());
        if !can_be_edited {
            let line = after.unwrap_err();
            assert_eq!(line.lines().count(), 1, "{what}: {line}");
            continue;
        }
        let [old, new]: [Value; 2] = [request.as_bytes(), &after.unwrap()].map(|b| serde_json::from_slice(b).unwrap());
        assert_eq!(difference(&old, &new), OF_GPUS.map(str::to_owned).into(), "{what}");
        assert_eq!(gpus(&new), [0], "{what}");
    }
}

#[test]
fn a_configuration_without_a_process_passes() {
    let place = Place::new();
    for text in [
        "{}",
        "{\"process\":null}",
        "{\"process\":{}}",
        "{\"process\":{\"env\":null}}",
        "{\"linux\":null,\"mounts\":null}",
    ] {
        assert_eq!(create(&place, text.as_bytes()).unwrap(), text.as_bytes());
    }
}
