//! How much each user may hold by the policy.

use crate::scene::{ANN, BOB, Scene};
use serde_json::json;
use std::fs;

/// GPU 0 in ten turns, GPU 1 whole, and these rules for users.
fn scene(test: &str, users: &str) -> Option<Scene> {
    let mut scene = Scene::without_broker(&format!("limits::{test}"))?;
    let policy = format!(
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {{name: nvidia.com/gpu, devices: [0], replicas: 10}}\n  \
         dedicated: {{devices: [1]}}\n  quota: {{shares: 3, all: 20}}\n  users:\n{users}"
    );
    fs::write(scene.at("policy.yaml"), policy).unwrap();
    scene.start();
    Some(scene)
}

/// The name of the user [`ANN`], whom every system has.
fn ann() -> String {
    nix::unistd::User::from_uid(ANN.into()).unwrap().unwrap().name
}

#[test]
fn a_user_holds_what_the_entry_for_the_user_or_the_group_says_and_the_refusal_names_it() {
    let group = nix::unistd::Group::from_gid(ANN.into()).unwrap().unwrap().name;
    let rules = format!(
        "    groups:\n      {group}: {{maxShares: 5}}\n    default: {{maxDevices: 0}}\n    users:\n      {}: {{maxDevices: 1}}\n",
        ann()
    );
    let test = "a_user_holds_what_the_entry_for_the_user_or_the_group_says_and_the_refusal_names_it";
    let Some(scene) = scene(test, &rules) else { return };
    let claim = |uid, name: &str, device: &str, shares: u32| {
        let fields = match shares {
            0 => json!({"name": name, "device": device}),
            shares => json!({"name": name, "device": device, "shares": shares}),
        };
        scene.ask(uid, "claim", fields)
    };
    // More than sharing.quota lets others hold.
    claim(ANN, "a", "0", 4).unwrap();
    assert_eq!(
        claim(ANN, "b", "0", 2).unwrap_err(),
        format!(
            "user {ANN}: may hold 5 shares, holds 4 and asks for 2 more; release some; \
             tranche claim list shows them; root sets sharing.users.groups.{group} in the policy"
        )
    );
    let refused = claim(BOB, "c", "1", 0).unwrap_err();
    let expected = "may hold 0 whole devices, holds 0 and asks for 1 more";
    assert!(
        refused.contains(expected) && refused.contains("sharing.users.default"),
        "{refused}"
    );
    let refused = claim(BOB, "c", "0", 4).unwrap_err();
    assert!(
        refused.contains("may hold 3 shares, holds 0") && refused.contains("root sets sharing.quota in"),
        "{refused}"
    );
    claim(BOB, "c", "0", 3).unwrap();
    // A whole device counts as one share.
    claim(ANN, "d", "1", 0).unwrap();
    assert!(claim(ANN, "e", "0", 1).unwrap_err().contains("holds 5 and asks for 1"));
    // Root is never limited.
    let root = scene.tranche_of_root(&["claim", "create", "--name=r", "--device=0", "--shares=3"]);
    assert!(root.status.success(), "{root:?}");
}
