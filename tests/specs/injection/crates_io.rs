//! The crate container-device-interface, whose known differences from the reference library are put right here.

use super::cases::case;
use super::{Case, Outcome, Place, ours, same, texts};
use container_device_interface::cache::{Cache, new_cache};
use container_device_interface::spec::read_spec;
use container_device_interface::spec_dirs::with_spec_dirs;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tranche_plan::cdi::inject::host_node;

/// How a difference is put right.
enum Fix {
    /// By a change of the case, for both sides.
    Case(fn(&mut Case)),
    /// By a change of each device node before the crate sees it.
    Node(fn(&mut Map<String, Value>)),
    /// By a change of each file before the crate sees it.
    File(fn(&Path)),
    /// By a change of what the crate has read.
    Cache(fn(&mut Cache)),
    /// By a change of its result; the configuration that it was given comes second.
    Result(fn(&mut Value, &Value)),
}

/// What the crate does, unlike the reference library.
const DIFFERENCES: [(&str, Fix); 10] = [
    (
        "fills an absent part of the configuration with oci-spec's defaults",
        Fix::Case(complete),
    ),
    (
        "takes paths that differ in slashes only as the same",
        Fix::Case(one_spelling),
    ),
    (
        "takes enableMonitoring: false as a use of CDI 1.1",
        Fix::Case(without_false),
    ),
    (
        "takes an empty type and the major number 0 as given",
        Fix::Node(without_empty),
    ),
    ("follows a link to a device node", Fix::Node(without_link)),
    (
        "does not take over the permissions of the host's node",
        Fix::Node(with_mode),
    ),
    ("reads no file if one is broken", Fix::File(without_broken_file)),
    (
        "finds a device that two files of one directory define",
        Fix::Cache(without_conflicts),
    ),
    (
        "adds a variable that the container has already",
        Fix::Result(replace_variables),
    ),
    ("does not sort mounts", Fix::Result(sort_mounts)),
];

fn complete(case: &mut Case) {
    let user = json!({"uid": 0, "gid": 0});
    for (name, empty) in [
        ("process", json!({"user": user, "cwd": "/"})),
        ("mounts", json!([])),
        ("linux", json!({"devices": [], "resources": {"devices": []}})),
    ] {
        case.config.as_object_mut().unwrap().entry(name).or_insert(empty);
    }
}

fn one_spelling(case: &mut Case) {
    let respell = |value: &Value| texts(value, &|text| text.replace("/a/b/", "/a/d"));
    case.config = respell(&case.config);
    for file in &mut case.files {
        file.spec = respell(&file.spec);
    }
}

fn without_false(case: &mut Case) {
    fn remove(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, value| !(name == "enableMonitoring" && *value == false));
                fields.values_mut().for_each(remove);
            }
            Value::Array(items) => items.iter_mut().for_each(remove),
            _ => {}
        }
    }
    case.files.iter_mut().for_each(|file| remove(&mut file.spec));
}

fn without_empty(node: &mut Map<String, Value>) {
    node.retain(|name, value| !(name == "type" && value == "" || name == "major" && *value == 0));
}

/// The path of the node on the host.
fn on_host(node: &Map<String, Value>) -> String {
    node.get("hostPath")
        .unwrap_or(&node["path"])
        .as_str()
        .unwrap()
        .to_owned()
}

fn without_link(node: &mut Map<String, Value>) {
    if Path::new(&on_host(node)).is_symlink() {
        node.insert("hostPath".into(), json!("/dev/missing"));
    }
}

fn with_mode(node: &mut Map<String, Value>) {
    if let Some(host) = host_node(&on_host(node)) {
        node.entry("fileMode").or_insert(json!(host.mode));
    }
}

fn without_broken_file(path: &Path) {
    if read_spec(&path.to_owned(), 0).is_err() {
        std::fs::remove_file(path).unwrap();
    }
}

fn without_conflicts(cache: &mut Cache) {
    let mut files: BTreeMap<(String, i32), usize> = BTreeMap::new();
    for spec in cache.specs.values().flatten() {
        for device in spec.get_devices().values() {
            *files
                .entry((device.get_qualified_name(), spec.get_priority()))
                .or_default() += 1;
        }
    }
    for ((name, _), _) in files.iter().filter(|(_, count)| **count > 1) {
        cache.devices.remove(name);
    }
}

fn replace_variables(result: &mut Value, before: &Value) {
    let name = |entry: &Value| entry.as_str().unwrap().split('=').next().unwrap().to_owned();
    let Some(after) = result["process"]["env"].as_array() else {
        return;
    };
    let mut env = before["process"]["env"].as_array().cloned().unwrap_or_default();
    for entry in &after[env.len()..] {
        match env.iter_mut().rfind(|old| name(old) == name(entry)) {
            Some(old) => *old = entry.clone(),
            None => env.push(entry.clone()),
        }
    }
    result["process"]["env"] = json!(env);
}

fn sort_mounts(result: &mut Value, before: &Value) {
    // Without a new mount, the order stays.
    let sources = |config: &Value| -> Vec<Value> {
        let mounts = config["mounts"].as_array().into_iter().flatten();
        mounts.map(|mount| mount["source"].clone()).collect()
    };
    if sources(result) == sources(before) {
        return;
    }
    let slashes = |mount: &Value| {
        let path = mount["destination"].as_str().unwrap();
        let mut parts = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                _ => parts.push(part),
            }
        }
        if path.starts_with('/') {
            parts.len().max(1)
        } else {
            parts.len().saturating_sub(1)
        }
    };
    if let Some(mounts) = result["mounts"].as_array_mut() {
        mounts.sort_by_key(slashes);
    }
}

/// Changes each device node of a specification.
fn change_nodes(spec: &mut Value, change: fn(&mut Map<String, Value>)) {
    let change_in = |edits: &mut Value| {
        for node in edits
            .pointer_mut("/deviceNodes")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            change(node.as_object_mut().unwrap());
        }
    };
    for device in spec["devices"].as_array_mut().into_iter().flatten() {
        change_in(&mut device["containerEdits"]);
    }
    spec.pointer_mut("/containerEdits").map(change_in);
}

/// What the crate makes of `case`, put right.
fn theirs(case: &Case) -> Outcome {
    let place = Place::of(case);
    for (file, path) in case.files.iter().zip(place.paths(case)) {
        let mut spec = place.enter(&file.spec);
        for (_, fix) in &DIFFERENCES {
            if let Fix::Node(change) = fix {
                change_nodes(&mut spec, *change);
            }
        }
        std::fs::write(&path, spec.to_string()).unwrap();
        for (_, fix) in &DIFFERENCES {
            if let Fix::File(change) = fix {
                change(&path);
            }
        }
    }
    let dirs = place.dirs();
    let dirs: Vec<&str> = dirs.iter().map(|dir| dir.to_str().unwrap()).collect();
    let cache = new_cache(vec![with_spec_dirs(&dirs)]);
    let mut cache = cache.lock().unwrap();
    for (_, fix) in &DIFFERENCES {
        if let Fix::Cache(change) = fix {
            change(&mut cache);
        }
    }
    let found: BTreeSet<String> = cache.devices.keys().cloned().collect();
    let mut typed: oci_spec::runtime::Spec = serde_json::from_value(case.config.clone()).unwrap();
    let done = cache.inject_devices(Some(&mut typed), case.devices.clone());
    let config = done.ok().map(|_| {
        let mut config = place.leave(&serde_json::to_value(typed).unwrap());
        for (_, fix) in &DIFFERENCES {
            if let Fix::Result(change) = fix {
                change(&mut config, &case.config);
            }
        }
        config
    });
    Outcome { found, config }
}

proptest! {
    #[test]
    fn injection_equals_that_of_the_crate(mut case in case()) {
        for (_, fix) in &DIFFERENCES {
            if let Fix::Case(change) = fix {
                change(&mut case);
            }
        }
        let difference = same(&case, ours(&case), theirs(&case)).err();
        prop_assert_eq!(difference, None);
    }
}
