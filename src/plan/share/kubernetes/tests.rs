//! What the kubelet is offered of the built-in hosts.

use super::*;
use crate::policy::read;
use crate::share::plan;
use crate::sim;
use std::collections::{BTreeMap, HashSet};

/// What is offered of a built-in host: resource, the first id without the number of the device, and how many ids.
fn offered(host: &str, policy: &str) -> Vec<(String, String, usize)> {
    let (inventory, plan) = planned(host, policy);
    let all: Vec<Offer> = offers(&inventory, &plan).into_iter().map(|(_, offer)| offer).collect();
    let ids: Vec<String> = all.iter().flat_map(Offer::ids).collect();
    let different: HashSet<&String> = ids.iter().collect();
    assert_eq!(different.len(), ids.len(), "an id is twice on the node");
    let row = |offer: &Offer| {
        let first = offer.ids().next().unwrap();
        let name = offer.cdi_name(&first).replace(&offer.device, "UUID");
        (offer.resource.clone(), name, offer.count())
    };
    all.iter().map(row).collect()
}

fn planned(host: &str, policy: &str) -> (Inventory, Plan) {
    let inventory = sim::open(host).unwrap();
    let policy = read::parse("c.yaml", policy).unwrap().policy;
    let plan = plan(&policy, &inventory).unwrap();
    (inventory, plan)
}

fn row(resource: &str, name: &str, ids: usize) -> (String, String, usize) {
    (resource.to_owned(), name.to_owned(), ids)
}

#[test]
fn without_a_policy_each_device_is_offered_whole() {
    let whole = row("nvidia.com/gpu", "nvidia.com/gpu=UUID", 1);
    assert_eq!(offered("t4x2", "version: v1"), [whole.clone(), whole]);
    let mig = offered("dgx-a100-mig", "version: v1");
    assert!(
        mig.iter().any(|(resource, ..)| resource == "nvidia.com/mig-1g.5gb"),
        "{mig:?}"
    );
    assert!(
        mig.iter()
            .all(|(resource, name, _)| resource.starts_with("nvidia.com/") && name == "nvidia.com/gpu=UUID")
    );
}

#[test]
fn a_configuration_of_nvidias_plugin_gives_its_resources() {
    let shared = |more: &str| {
        format!(
            "version: v1\nsharing:\n  timeSlicing:\n{more}    resources:\n    - {{name: nvidia.com/gpu, replicas: 10}}\n"
        )
    };
    let ten = row("nvidia.com/gpu", "nvidia.com/gpu=UUID.0", 10);
    assert_eq!(offered("t4x2", &shared("")), [ten.clone(), ten]);
    let renamed = row("nvidia.com/gpu.shared", "nvidia.com/gpu.shared=UUID.0", 10);
    assert_eq!(
        offered("t4x2", &shared("    renameByDefault: true\n")),
        [renamed.clone(), renamed]
    );
    let many = shared("").replace("10", "100");
    let any = row("nvidia.com/gpu", "nvidia.com/gpu=UUID.any", 100);
    assert_eq!(offered("t4x2", &many), [any.clone(), any], "so many have one name");
}

#[test]
fn unequal_shares_are_resources_of_their_own() {
    let policy = "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      devices: [0]\n      \
                  shares:\n      - {name: big, compute: 80%, memory: 80%}\n      - {name: small, compute: 20%, memory: 20%}\n  \
                  dedicated: {devices: [1]}\n";
    assert_eq!(
        offered("t4x2", policy),
        [
            row("nvidia.com/gpu.big", "nvidia.com/gpu=UUID.big", 1),
            row("nvidia.com/gpu.small", "nvidia.com/gpu=UUID.small", 1),
            row("nvidia.com/gpu", "nvidia.com/gpu=UUID", 1),
        ]
    );
    let (inventory, plan) = planned("t4x2", policy);
    let one: Vec<bool> = offers(&inventory, &plan).iter().map(|(_, o)| o.one_share).collect();
    assert_eq!(one, [true, true, false], "a process can use one MPS daemon");
}

#[test]
fn a_device_has_the_door_and_the_name_that_the_policy_gives_it() {
    let policy = |text: &str| format!("version: v1\nkubernetes: {text}\n");
    let whole = row("nvidia.com/gpu", "nvidia.com/gpu=UUID", 1);
    assert_eq!(offered("t4x2", &policy("{door: none}")), []);
    assert_eq!(
        offered("t4x2", &policy("{devices: [{devices: [1], door: none}]}")),
        std::slice::from_ref(&whole)
    );
    assert_eq!(
        offered(
            "t4x2",
            &policy("{door: none, devices: [{devices: [0], door: device-plugin, resource: example.com/t4}]}")
        ),
        [row("example.com/t4", "nvidia.com/gpu=UUID", 1)]
    );
    let first = "{devices: [{devices: [0], door: none}, {devices: all, resource: example.com/t4}]}";
    assert_eq!(
        offered("t4x2", &policy(first)),
        [row("example.com/t4", "nvidia.com/gpu=UUID", 1)],
        "the first entry counts"
    );
    let (_, plan) = planned("t4x2", &policy("{devices: [{devices: [7], door: none}]}"));
    assert_eq!(
        plan.absent[0].to_string(),
        "c.yaml:2:35: device 7: not found; this host has 0, 1"
    );
}

#[test]
fn a_wrong_section_is_refused_with_its_place() {
    for (text, says) in [
        ("{door: window}", "c.yaml:2:20"),
        ("{doors: none}", "did you mean door"),
        ("{devices: [{door: none}]}", "devices is missing"),
        (
            "{devices: [{devices: [0], resource: gpu}]}",
            "not a name of an extended resource",
        ),
        (
            "{devices: [{devices: [0], resource: kubernetes.io/gpu}]}",
            "not a name of an extended resource",
        ),
    ] {
        let error = read::parse("c.yaml", &format!("version: v1\nkubernetes: {text}\n")).unwrap_err();
        let line = tranche_core::error::line(&error);
        assert!(line.contains(says), "{text}: {line}");
    }
}

/// The examples of the README of NVIDIA's plugin. Where it splits GPUs, it has a number of devices that each replica
/// multiplies.
#[test]
fn the_public_examples_of_nvidias_plugin_give_its_resources() {
    let flags = |strategy: &str| {
        format!(
            "version: v1\nflags:\n  migStrategy: \"{strategy}\"\n  failOnInitError: true\n  nvidiaDriverRoot: \"/\"\n  plugin:\n    \
             passDeviceSpecs: false\n    deviceListStrategy: envvar\n    deviceIDStrategy: uuid\n"
        )
    };
    let split = |way: &str, rename: bool, resource: &str| {
        format!(
            "version: v1\nsharing:\n  {way}:\n    renameByDefault: {rename}\n    resources:\n    - name: {resource}\n      replicas: 10\n"
        )
    };
    let gpu = "nvidia.com/gpu";
    let shared = "nvidia.com/gpu.shared";
    for (host, text, resources) in [
        ("t4x2", flags("none"), &[(gpu, 2)][..]),
        ("t4x2", flags("single"), &[(gpu, 2)]),
        ("hgx-h200", flags("none"), &[(gpu, 8)]),
        ("hgx-h200", split("timeSlicing", false, gpu), &[(gpu, 80)]),
        ("hgx-h200", split("timeSlicing", true, gpu), &[(shared, 80)]),
        ("hgx-h200", split("mps", false, gpu), &[(gpu, 80)]),
        ("hgx-h200", split("mps", true, gpu), &[(shared, 80)]),
    ] {
        assert_eq!(counted(host, &text), counts(resources), "{host}: {text}");
    }
    // MIG devices keep their names with `mixed`, and each profile may have replicas of its own.
    let mixed = counted("dgx-a100-mig", &flags("mixed"));
    let one = "nvidia.com/mig-1g.5gb";
    assert!(mixed.contains_key(one) && mixed.len() > 1, "{mixed:?}");
    let tenths = counted("dgx-a100-mig", &split("timeSlicing", false, one));
    assert_eq!(tenths[one], 10 * mixed[one]);
    // Several profiles cannot be one resource: NVIDIA's plugin does not start then.
    assert_eq!(counted("dgx-a100-mig", &flags("single")), mixed);
    let (_, plan) = planned("dgx-a100-mig", &flags("single"));
    assert!(
        plan.warnings[0].contains("migStrategy: single: the devices of this host differ"),
        "{:?}",
        plan.warnings
    );
}

#[test]
fn mig_devices_of_one_profile_have_the_resource_of_whole_gpus_if_the_strategy_is_single() {
    let mut inventory = sim::open("dgx-a100-mig").unwrap();
    for gpu in &mut inventory.gpus {
        gpu.mig_devices.retain(|mig| {
            mig.profile
                .as_ref()
                .is_some_and(|profile| profile.to_string() == "1g.5gb")
        });
    }
    inventory.gpus.retain(|gpu| !gpu.mig_devices.is_empty());
    let names = |text: &str| -> HashSet<String> {
        let plan = plan(&read::parse("c.yaml", text).unwrap().policy, &inventory).unwrap();
        offers(&inventory, &plan)
            .into_iter()
            .map(|(_, offer)| offer.resource)
            .collect()
    };
    assert_eq!(
        names("flags: {migStrategy: single}"),
        HashSet::from(["nvidia.com/gpu".to_owned()])
    );
    assert_eq!(
        names("flags: {migStrategy: mixed}"),
        HashSet::from(["nvidia.com/mig-1g.5gb".to_owned()])
    );
    let shared = "flags: {migStrategy: single}\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}}";
    assert_eq!(names(shared), HashSet::from(["nvidia.com/gpu.shared".to_owned()]));
}

/// How many devices each resource has.
fn counted(host: &str, policy: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (resource, _, ids) in offered(host, policy) {
        *counts.entry(resource).or_default() += ids;
    }
    counts
}

fn counts(rows: &[(&str, usize)]) -> BTreeMap<String, usize> {
    rows.iter()
        .map(|(resource, count)| ((*resource).to_owned(), *count))
        .collect()
}
