//! What has to leave a container's configuration before devices are added to it.

use memchr::memmem;
use serde_json::{Map, Value};
use tranche_core::call::ClaimCall;
use tranche_core::ledger::is_start_name;
use tranche_core::types::Subject;
use tranche_plan::cdi::Hook;
use tranche_plan::share::limits_set_by;

/// Names of the prestart hook that docker adds for `--gpus`, and old packages for every container.
const NVIDIA_HOOKS: [&str; 2] = ["nvidia-container-runtime-hook", "nvidia-container-toolkit"];

/// Removes NVIDIA's prestart hook, which would do the work a second time and too late (DESIGN, section 13).
pub(super) fn remove_nvidia_hook(config: &mut Value) {
    retain_hooks(config, |stage, hook| {
        let path = hook.get("path").and_then(Value::as_str).unwrap_or_default();
        stage != "prestart" || !is_nvidia_hook(path)
    });
}

/// Whether the program at `path` is NVIDIA's prestart hook.
pub(super) fn is_nvidia_hook(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| NVIDIA_HOOKS.contains(&name))
}

/// Removes the hooks that take claims which were made for an earlier start from this configuration. Those claims ended
/// with that start.
pub(super) fn remove_start_claims(config: &mut Value) {
    retain_hooks(config, |_, hook| start_claim(hook).is_none());
}

/// The names of the claims that were made for a start from this configuration.
pub(super) fn start_claims(config: &Value) -> Vec<String> {
    hooks(config).filter_map(start_claim).collect()
}

/// The hooks of every stage.
fn hooks(config: &Value) -> impl Iterator<Item = &Value> {
    let stages = config.get("hooks").and_then(Value::as_object);
    let hooks = stages.into_iter().flat_map(Map::values).filter_map(Value::as_array);
    hooks.flatten()
}

/// Removes the mounts at `destinations`, which are requests and not directories.
pub(super) fn remove_mounts(config: &mut Value, destinations: &[String]) {
    remove_mounts_with(config, "destination", |at| {
        destinations.iter().any(|destination| destination == at)
    });
}

/// Removes the mounts whose `field` is one that is `unwanted`.
pub(super) fn remove_mounts_with(config: &mut Value, field: &str, unwanted: impl Fn(&str) -> bool) {
    if let Some(mounts) = config.get_mut("mounts").and_then(Value::as_array_mut) {
        mounts.retain(|mount| !mount.get(field).and_then(Value::as_str).is_some_and(&unwanted));
    }
}

/// The number of rules of the device cgroup.
pub(super) fn count_rules(config: &Value) -> usize {
    let rules = config.pointer("/linux/resources/devices").and_then(Value::as_array);
    rules.map_or(0, Vec::len)
}

/// Keeps each rule of the device cgroup that injection has added behind the first `count` only once, in its last place:
/// the configuration may have it from an earlier start, and several nodes may need the same one. A rule that is
/// repeated later has no effect of its own.
pub(super) fn remove_repeated_rules(config: &mut Value, count: usize) {
    let rules = config
        .pointer_mut("/linux/resources/devices")
        .and_then(Value::as_array_mut);
    if let Some(rules) = rules.filter(|rules| count < rules.len()) {
        let added = rules.split_off(count);
        rules.retain(|rule| !added.contains(rule));
        let is_last = |at: usize, rule: &Value| !added[at + 1..].contains(rule);
        let kept = added.iter().enumerate().filter(|(at, rule)| is_last(*at, rule));
        rules.extend(kept.map(|(_, rule)| rule.clone()));
    }
}

/// Removes every variable by which a tenant or its image could set limits of its own: the share sets those that apply,
/// and for the others the driver's defaults hold.
pub(super) fn remove_every_limit(config: &mut Value) {
    let env = config.pointer_mut("/process/env").and_then(Value::as_array_mut);
    if let Some(env) = env {
        env.retain(|entry| !entry.as_str().is_some_and(is_limit));
    }
}

/// As [`remove_every_limit`], if `config` has the hook of a claim already. The variables that the share of that claim
/// sets stay: the program that added the hook gave them the share's values. Returns whether anything was removed.
pub(super) fn remove_limits(config: &mut Value) -> bool {
    let calls: Vec<ClaimCall> = hooks(config)
        .filter_map(|hook| ClaimCall::of_hook(&words(hook)))
        .collect();
    if calls.is_empty() {
        return false;
    }
    let set: Vec<&str> = calls
        .iter()
        .filter_map(|call| call.subject.promise())
        .flat_map(|promise| limits_set_by(promise).iter().copied())
        .collect();
    let Some(env) = config.pointer_mut("/process/env").and_then(Value::as_array_mut) else {
        return false;
    };
    let before = env.len();
    env.retain(|entry| {
        let entry = entry.as_str().unwrap_or_default();
        let name = entry.split_once('=').map_or(entry, |(name, _)| name);
        !is_limit(entry) || set.contains(&name)
    });
    env.len() != before
}

/// Whether the bytes of a configuration may have the hook of a claim. If not, it has none.
pub(super) fn may_have_claim(config: &[u8]) -> bool {
    may_have_hook(config, ClaimCall::VERB)
}

/// Whether the bytes of a configuration may have the hook `verb` of tranche. If not, it has none.
pub(super) fn may_have_hook(config: &[u8], verb: &str) -> bool {
    memmem::find(config, verb.as_bytes()).is_some() && memmem::find(config, b"tranche-oci").is_some()
}

/// Whether an entry of an environment sets a limit of a share.
pub fn is_limit(entry: &str) -> bool {
    let name = entry.split_once('=').map_or(entry, |(name, _)| name);
    name.starts_with("CUDA_MPS_") || name.starts_with("NVIDIA_GPU_MEMORY_") || name == "CUDA_VISIBLE_DEVICES"
}

/// Whether `config` runs `hook` already, with the same arguments.
pub(super) fn has_hook(config: &Value, hook: &Hook) -> bool {
    let stages = config.get("hooks").and_then(|stages| stages.get(&hook.hook_name));
    let same = |there: &Value| {
        let path = there.get("path").and_then(Value::as_str);
        path == Some(hook.path.as_str()) && arguments(there).eq(hook.args.iter().map(String::as_str))
    };
    stages
        .and_then(Value::as_array)
        .is_some_and(|hooks| hooks.iter().any(same))
}

/// The claim for a start that `hook` takes.
fn start_claim(hook: &Value) -> Option<String> {
    match ClaimCall::of_hook(&words(hook))?.subject {
        Subject::Claim(name, _) if is_start_name(&name) => Some(name),
        _ => None,
    }
}

fn words(hook: &Value) -> Vec<String> {
    arguments(hook).map(str::to_owned).collect()
}

fn arguments(hook: &Value) -> impl Iterator<Item = &str> {
    let list = hook.get("args").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

/// Keeps the hooks for which `keep` (given the stage) is true. A stage that loses its last hook is removed.
fn retain_hooks(config: &mut Value, keep: impl Fn(&str, &Value) -> bool) {
    let Some(stages) = config.get_mut("hooks").and_then(Value::as_object_mut) else {
        return;
    };
    stages.retain(|stage, hooks| {
        let Some(hooks) = hooks.as_array_mut() else {
            return true;
        };
        let before = hooks.len();
        hooks.retain(|hook| keep(stage, hook));
        hooks.len() == before || !hooks.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_nvidias_prestart_hook_leaves() {
        let mut config = json!({"hooks": {
            "prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook", "args": ["x", "prestart"]}, {"path": "/bin/other"}],
            "poststop": [{"path": "/usr/bin/nvidia-container-toolkit"}],
            "createRuntime": null,
        }});
        remove_nvidia_hook(&mut config);
        let expected = json!({"hooks": {
            "prestart": [{"path": "/bin/other"}],
            "poststop": [{"path": "/usr/bin/nvidia-container-toolkit"}],
            "createRuntime": null,
        }});
        assert_eq!(config, expected);
        let mut config = json!({"hooks": {"prestart": [{"path": "/opt/nvidia-container-toolkit"}]}});
        remove_nvidia_hook(&mut config);
        assert_eq!(config, json!({"hooks": {}}));
    }

    #[test]
    fn claims_of_an_earlier_start_are_found_and_leave_and_others_stay() {
        let device = "--device=GPU-da1435d3-36d6-f363-f134-290ab6a9a640";
        let hook = |name: &str| json!({"path": "/usr/bin/tranche-oci", "args": ["tranche-oci", "hook", "claim", device, format!("--claim={name}")]});
        let start = "start-142aca30b84aecb3";
        let mut config = json!({"hooks": {
            "createRuntime": [hook(start), hook("train1"), {"path": "/bin/x", "args": ["--claim", start]}],
            "poststop": [{"path": "/usr/bin/tranche-oci", "args": ["tranche-oci", "hook", "release"]}],
        }});
        let mut expected = config.clone();
        expected["hooks"]["createRuntime"].as_array_mut().unwrap().remove(0);
        assert_eq!(start_claims(&config), [start]);
        remove_start_claims(&mut config);
        assert_eq!(config, expected);
        assert!(start_claims(&config).is_empty());
    }

    #[test]
    fn limits_of_a_tenant_leave() {
        let mut config = json!({"process": {"env": [
            "PATH=/bin", "CUDA_MPS_PIPE_DIRECTORY=/x", "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING=1",
            "CUDA_VISIBLE_DEVICES=1", "NVIDIA_GPU_MEMORY_LIMIT", "CUDA_VERSION=12.4", "NVIDIA_VISIBLE_DEVICES=0.big", 7,
        ]}});
        remove_every_limit(&mut config);
        let expected = json!({"process": {"env": [
            "PATH=/bin", "CUDA_VERSION=12.4", "NVIDIA_VISIBLE_DEVICES=0.big", 7,
        ]}});
        assert_eq!(config, expected);
    }

    #[test]
    fn mounts_that_are_requests_leave() {
        let mut config =
            json!({"mounts": [{"destination": "/a"}, {"destination": "/var/run/nvidia-container-devices/0"}]});
        remove_mounts(&mut config, &["/var/run/nvidia-container-devices/0".to_owned()]);
        assert_eq!(config, json!({"mounts": [{"destination": "/a"}]}));
        remove_mounts(&mut json!({}), &[]);
    }
}
