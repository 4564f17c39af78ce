//! `tranche claim` and `tranche status` of users other than root.

use crate::scene::{ANN, BOB, Scene};
use serde_json::Value;
use std::process::Output;

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

/// A claim as `--json` shows it, without the only value that changes from one second to the next.
fn without_the_clock(claim: &Value) -> Value {
    let mut claim = claim.clone();
    assert!(
        claim["seconds_left"].as_u64().is_some_and(|left| left <= 500),
        "{claim}"
    );
    claim.as_object_mut().unwrap().remove("seconds_left");
    claim
}

#[test]
fn a_user_creates_lists_shows_and_releases_claims() {
    let Some(mut scene) = Scene::new("a_user_creates_lists_shows_and_releases_claims") else {
        return;
    };
    let created = scene.tranche(
        ANN,
        &["claim", "create", "--name=train", "--shares=2", "--of=0", "--ttl=500"],
    );
    assert_eq!(out(&created), "nvidia.com/claim=65534.train\n");
    assert!(String::from_utf8_lossy(&created.stderr).contains("gpu 0: shares 0, 1"));
    let spec = std::fs::read_to_string(scene.at("cdi/nvidia.com-claim_65534.train.yaml")).unwrap();
    assert!(
        spec.contains("--claim=65534.train") && spec.contains("\"65534.train\""),
        "{spec}"
    );
    let json = |uid, arguments: &[&str]| -> Value {
        serde_json::from_str(&out(&scene.tranche(uid, &[arguments, &["--json"]].concat()))).unwrap()
    };
    let list = json(ANN, &["claim", "list"]);
    assert_eq!(list[0]["name"], "65534.train");
    assert_eq!(
        (list[0]["ttl"].as_u64(), list[0]["device"].as_str()),
        (Some(500), Some("nvidia.com/gpu=0"))
    );
    assert_eq!(json(BOB, &["claim", "list"]), serde_json::json!([]));
    for name in ["train", "65534.train", "nvidia.com/claim=65534.train"] {
        let shown = json(ANN, &["claim", "show", name]);
        assert_eq!(without_the_clock(&shown), without_the_clock(&list[0]));
        let line = refused(&scene.tranche(BOB, &["claim", "show", name]));
        assert!(line.contains("not found among yours"), "{line}");
    }
    assert!(out(&scene.tranche(ANN, &["claim", "show", "train"])).contains("65534.train"));
    let status = json(ANN, &["status", "--no-gpu"]);
    assert_eq!(status["claims"][0]["name"], "65534.train");
    let status = json(BOB, &["status", "--no-gpu"]);
    assert_eq!(status["claims"], serde_json::json!([]));
    assert_eq!(
        status["devices"][0]["held"].as_array().map(Vec::len),
        Some(2),
        "{status}"
    );
    let line = refused(&scene.tranche(BOB, &["claim", "release", "65534.train"]));
    assert!(line.contains("not found"), "{line}");
    let released = scene.tranche(ANN, &["claim", "release", "train"]);
    assert!(released.status.success());
    assert!(String::from_utf8_lossy(&released.stderr).contains("released nvidia.com/claim=65534.train"));
    assert_eq!((scene.claims().len(), scene.specs()), (0, Vec::new()));
    scene.stop(nix::sys::signal::Signal::SIGTERM);
    let line = refused(&scene.tranche(ANN, &["claim", "list"]));
    assert!(
        line.contains("broker: does not run") && line.contains("root starts it: systemctl start"),
        "{line}"
    );
}
