//! What a CDI specification does, as sorted lines: one fact on each, without what two generators may write differently
//! and mean the same (order, node numbers, one hook or several).
//!
//! ```text
//! spec kind nvidia.com/gpu            spec version 0.5.0
//! common mount HOST [-> CONTAINER]    common env NAME=VALUE
//! common link LINK -> TARGET          common ldcache DIRECTORY     common cuda-compat DRIVER
//! common hook NAME                    (one whose work is none of these)
//! device 0 node PATH [from HOST]      device 0 owner PATH gid=44
//! device 0 group 44                   device GPU-… is 0            (it does the same)
//! all node PATH                       (the device `all`)
//! ```
//!
//! Options of hooks are compared by what they do. `--folder` of NVIDIA's hooks and `--ldcache-dir` of tranche's are one
//! fact. So are a link that NVIDIA's hook of one device makes and tranche's `--by-path`, which applies to the devices
//! that have that node.

use serde_json::Value;
use std::collections::BTreeMap;

/// The options of a mount that go without saying.
const USUAL: [&str; 5] = ["nodev", "nosuid", "rbind", "ro", "rprivate"];

/// The facts of a specification, sorted, none twice.
pub fn facts(spec: &Value) -> Vec<String> {
    let mut facts = Vec::new();
    facts.push(format!("spec kind {}", text(&spec["kind"])));
    facts.push(format!("spec version {}", text(&spec["cdiVersion"])));
    let (by_path, common): (Vec<String>, Vec<String>) = edits(&spec["containerEdits"])
        .into_iter()
        .partition(|f| f.starts_with("by-path "));
    facts.extend(common.into_iter().map(|f| format!("common {f}")));
    let mut devices: Vec<(&str, Vec<String>)> = each(&spec["devices"])
        .map(|d| {
            let own = [annotations(&d["annotations"]), edits(&d["containerEdits"])].concat();
            let mut own = [links_of_nodes(&by_path, &own), own].concat();
            own.sort();
            (text(&d["name"]), own)
        })
        .collect();
    // Shorter names first: `0` stands for what `GPU-…` is, not the reverse.
    devices.sort_by_key(|(name, _)| (name.len(), *name));
    let mut known: BTreeMap<Vec<String>, &str> = BTreeMap::new();
    for (name, edits) in devices {
        if name == "all" {
            facts.extend(edits.iter().map(|f| format!("all {f}")));
        } else if let Some(other) = known.get(&edits) {
            facts.push(format!("device {name} is {other}"));
        } else {
            facts.extend(edits.iter().map(|f| format!("device {name} {f}")));
            known.insert(edits, name);
        }
    }
    facts.sort();
    facts.dedup();
    facts
}

/// The links that a common hook makes for the nodes of a device: `by-path NAME::NODE`.
fn links_of_nodes(by_path: &[String], device: &[String]) -> Vec<String> {
    let parts = by_path
        .iter()
        .filter_map(|fact| fact.strip_prefix("by-path ")?.split_once("::"));
    parts
        .filter(|(_, node)| device.contains(&format!("node {node}")))
        .map(|(name, node)| {
            format!(
                "link /dev/dri/by-path/{name} -> ../{}",
                node.rsplit('/').next().unwrap_or(node)
            )
        })
        .collect()
}

fn edits(edits: &Value) -> Vec<String> {
    let mut facts = Vec::new();
    for entry in each(&edits["env"]) {
        facts.push(format!("env {}", text(entry)));
    }
    for node in each(&edits["deviceNodes"]) {
        let path = text(&node["path"]);
        let from = node["hostPath"]
            .as_str()
            .filter(|h| *h != path)
            .map(|h| format!(" from {h}"))
            .unwrap_or_default();
        let may = node["permissions"]
            .as_str()
            .filter(|p| *p != "rwm")
            .map(|p| format!(" {p}"))
            .unwrap_or_default();
        facts.push(format!("node {path}{from}{may}"));
        if let Some(gid) = node["gid"].as_u64().filter(|g| *g != 0) {
            facts.push(format!("owner {path} gid={gid}"));
        }
    }
    for mount in each(&edits["mounts"]) {
        let (host, container) = (text(&mount["hostPath"]), text(&mount["containerPath"]));
        let to = if host == container {
            String::new()
        } else {
            format!(" -> {container}")
        };
        let mut options: Vec<&str> = each(&mount["options"]).map(text).collect();
        options.sort_unstable();
        let how = if options == USUAL {
            String::new()
        } else {
            format!(" options={}", options.join(","))
        };
        facts.push(format!("mount {host}{to}{how}"));
    }
    for hook in each(&edits["hooks"]) {
        facts.extend(hook_facts(hook));
    }
    for gid in each(&edits["additionalGids"]) {
        facts.push(format!("group {gid}"));
    }
    facts.sort();
    facts.dedup();
    facts
}

/// What a hook does. The program is left out: it is where somebody installed it.
fn hook_facts(hook: &Value) -> Vec<String> {
    let mut arguments = each(&hook["args"])
        .map(text)
        .skip(1)
        .filter(|a| *a != "hook")
        .peekable();
    let name = arguments.next().unwrap_or_default();
    let stage = hook["hookName"].as_str().filter(|s| *s != "createContainer");
    let stage = stage.map(|s| format!(" at {s}")).unwrap_or_default();
    let mut facts = Vec::new();
    // These do what their options say and nothing else.
    if !["create-symlinks", "update-ldcache", "enable-cuda-compat"].contains(&name) || !stage.is_empty() {
        facts.push(format!("hook {name}{stage}"));
    }
    while let Some(argument) = arguments.next() {
        let Some(option) = argument.strip_prefix("--") else {
            facts.push(format!("argument {argument}"));
            continue;
        };
        let (option, value) = match option.split_once('=') {
            Some((option, value)) => (option, value),
            None => (option, arguments.next_if(|a| !a.starts_with("--")).unwrap_or_default()),
        };
        // What our one hook leaves out is a hook that others do not have: in both cases nothing is done. What it is
        // told about a library is what other hooks read from the file.
        if matches!(option, "skip" | "library") {
            continue;
        }
        facts.push(match (option, value.split_once("::")) {
            ("link", Some((target, link))) => format!("link {link} -> {target}"),
            ("folder" | "ldcache-dir", _) => format!("ldcache {value}"),
            ("host-driver-version" | "driver-version", _) => format!("cuda-compat {value}"),
            _ => format!("{option} {value}").trim_end().to_owned(),
        });
    }
    facts
}

fn annotations(annotations: &Value) -> Vec<String> {
    let entries = annotations.as_object().into_iter().flatten();
    entries
        .map(|(key, value)| format!("annotation {key}={}", text(value)))
        .collect()
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
