//! The policy that a cluster gives this node, by the device plugin of Kubernetes.

use crate::scene::{ANN, Scene};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use tranche_protocol::Offers;

/// As NVIDIA's documentation has it.
const TENTHS: &str = "\
version: v1
flags:
  migStrategy: none
sharing:
  timeSlicing:
    renameByDefault: false
    failRequestsGreaterThanOne: false
    resources:
    - name: nvidia.com/gpu
      replicas: 10
";

/// `tranche` on a host without a policy of its own, whatever this machine has.
fn without_policy(scene: &Scene, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-c"]);
    command.arg("[ ! -d /etc/tranche ] || mount -t tmpfs none /etc/tranche || exit 9; exec \"$@\"");
    command.arg("sh").arg(scene.at("tranche")).args(arguments);
    command
        .arg("--inventory=sim:t4x2")
        .arg(scene.option("state-dir", "state"));
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

fn start(scene: &mut Scene) {
    let mut broker = without_policy(scene, &["broker"]);
    broker.arg(scene.option("spec-dir", "cdi"));
    scene.watch(broker.spawn().unwrap());
}

fn give(scene: &Scene, text: Option<&str>) -> Result<Value, String> {
    scene.ask(0, "policy", json!({"text": text}))
}

/// How many devices the kubelet is offered.
fn offered(scene: &Scene) -> usize {
    let offers: Offers = serde_json::from_value(scene.ask(0, "offers", json!({})).unwrap()).unwrap();
    offers.offers.iter().map(|offer| offer.count()).sum()
}

#[test]
fn the_policy_of_the_cluster_counts_until_it_is_taken_away() {
    let Some(mut scene) = Scene::without_broker("the_policy_of_the_cluster_counts_until_it_is_taken_away") else {
        return;
    };
    start(&mut scene);
    assert_eq!(offered(&scene), 2);
    assert_eq!(give(&scene, None).unwrap()["changed"], json!(false));
    let taken = give(&scene, Some(TENTHS)).unwrap();
    assert_eq!(taken["changed"], json!(true), "{taken}");
    assert_eq!(offered(&scene), 20);
    assert_eq!(give(&scene, Some(TENTHS)).unwrap()["changed"], json!(false));
    // One that splits nothing has an effect too.
    give(&scene, Some("kubernetes: {door: none}")).unwrap();
    assert_eq!(offered(&scene), 0);
    give(&scene, Some(TENTHS)).unwrap();
    // Every other command reads it too.
    let plan = without_policy(&scene, &["plan"]).output().unwrap();
    let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert!(plan.contains("gpu 0") && plan.contains("10 equal shares"), "{plan}");

    for (text, part) in [
        ("sharing: {timeSlicing: {resource: []}}", "unknown"),
        ("sharing: [", "the cluster's policy"),
        ("version: v7", "version: \"v7\" is unknown"),
        (
            "runtime: {runtimes: [/tmp/own]}",
            "has a section runtime, which only the policy of a node may have",
        ),
    ] {
        let why = give(&scene, Some(text)).unwrap_err();
        assert!(why.contains(part), "{text}: {why}");
        assert_eq!(offered(&scene), 20, "{text}");
    }
    let why = scene.ask(ANN, "policy", json!({"text": null})).unwrap_err();
    assert!(why.contains("only root may ask"), "{why}");

    // A boot: nothing of the state directory is left but what is kept.
    scene.stop(Signal::SIGTERM);
    fs::remove_dir_all(scene.at("state/ledger")).ok();
    start(&mut scene);
    assert_eq!(offered(&scene), 20);
    assert_eq!(give(&scene, None).unwrap()["changed"], json!(true));
    assert_eq!(offered(&scene), 2);
}

#[test]
fn the_policy_of_the_node_comes_before_that_of_the_cluster() {
    let Some(scene) = Scene::new("the_policy_of_the_node_comes_before_that_of_the_cluster") else {
        return;
    };
    let why = give(&scene, Some(TENTHS)).unwrap_err();
    let own = scene.at("policy.yaml").display().to_string();
    assert!(
        why.contains(&format!(
            "has no effect, because this node has a policy of its own: {own}"
        )),
        "{why}"
    );
    assert_eq!(offered(&scene), 12);
    assert_eq!(give(&scene, None).unwrap()["changed"], json!(false));
}
