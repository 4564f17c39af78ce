//! `tranche policy diff`: what it says would change, while something is held.

use super::*;

/// Shares of GPU 0 by MPS, and GPU 1 as in [`POLICY`].
const BY_MPS: &str = "\
version: v1
sharing:
  mps:
    daemon: external
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 4}
    - name: nvidia.com/gpu
      devices: [1]
      shares:
      - {name: big, compute: 60%, memory: 8Gi}
      - {name: small, compute: 20%, memory: 2Gi}
";

/// GPU 0 whole for one container, and GPU 1 for everybody.
const DEDICATED: &str = "version: v1\nsharing:\n  dedicated: {devices: [0]}\n";

fn diff(scene: &Scene, new: &str, more: &[&str]) -> Said {
    fs::write(scene.at("new.yaml"), new).unwrap();
    let file = scene.at("new.yaml").display().to_string();
    scene.at_host(&[&["policy", "diff", &file], more].concat()).run()
}

#[track_caller]
fn has(said: &Said, line: &str) {
    assert!(
        said.out.lines().any(|one| one == line),
        "{line}\nis not in\n{}{}",
        said.out,
        said.err
    );
}

#[test]
fn an_equal_policy_changes_nothing_although_something_is_held() {
    let Some(scene) = Scene::new("policy_diff::an_equal_policy_changes_nothing") else {
        return;
    };
    let _init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    let same = format!("# in other words\n{}", POLICY.replace("replicas: 4", "replicas:   4"));
    assert_eq!(diff(&scene, &same, &[]).ok(), "nothing changes\n");
    let said = diff(&scene, &same, &["--json"]).ok();
    let json: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&json["appear"], &json["refused"]), (&json!([]), &json!([])));
}

#[test]
fn names_holders_and_refusals_are_named() {
    let Some(scene) = Scene::new("policy_diff::names_holders_and_refusals_are_named") else {
        return;
    };
    scene.name_containers(&[("0123456789abcdef", "train")]);
    let init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    scene.create(&["--name=train1", "--of=1", "--memory=8Gi"]).run().ok();
    let said = diff(&scene, DEDICATED, &[]);
    assert_eq!((said.code, said.err.as_str()), (Some(4), ""), "{}", said.out);
    // While GPU 1 is held, `all` does not contain it.
    assert!(!said.out.contains("nvidia.com/gpu=all"), "{}", said.out);
    let vanish = "vanishes: nvidia.com/gpu=0.any, nvidia.com/gpu=0.0, nvidia.com/gpu=0.1, nvidia.com/gpu=0.2, \
                  nvidia.com/gpu=0.3: 1 of 4 turns (time-slicing)";
    has(&said, vanish);
    has(
        &said,
        "vanishes: nvidia.com/gpu=1.big: 8.0 GiB of memory, 60% of compute (mps)",
    );
    let until =
        "gpu 0: the whole device is refused until container train (0123456789ab) on nvidia.com/gpu=0.3 has ended";
    has(&said, until);
    has(
        &said,
        "gpu 1: the whole device is refused until claim train1 on nvidia.com/gpu=1.big has ended",
    );
    // What it says is refused is refused, and is granted when what it names has ended.
    scene.policy(DEDICATED);
    scene.refresh();
    let other = Init::new();
    let hook = |device: &str| scene.hook("createRuntime", device, "second", other.pid()).run();
    for device in ["nvidia.com/gpu=0", "nvidia.com/gpu=1"] {
        hook(device).failed(1);
    }
    drop(init);
    hook("nvidia.com/gpu=0").ok();
    hook("nvidia.com/gpu=1").failed(1);
    // The policy that was compared is the present one now.
    assert_eq!(diff(&scene, DEDICATED, &[]).ok(), "nothing changes\n");
    scene.tranche(&["claim", "release", "train1"]).run().ok();
    scene.policy(POLICY);
    let said = diff(&scene, DEDICATED, &[]);
    has(&said, "appears: nvidia.com/gpu=all: /dev/nvidia1 without a claim");
    has(
        &said,
        "changes: nvidia.com/gpu=1: whole, for one container at a time -> /dev/nvidia1 without a claim",
    );
}

#[test]
fn another_strategy_is_refused_while_shares_of_the_first_are_held() {
    let Some(scene) = Scene::new("policy_diff::another_strategy_is_refused") else {
        return;
    };
    let _first = scene.start("nvidia.com/gpu=0.3", "aaaaaaaaaaaaaaaa");
    let _second = scene.start("nvidia.com/gpu=0.1", "bbbbbbbbbbbbbbbb");
    let said = diff(&scene, BY_MPS, &[]);
    assert_eq!(said.code, Some(4), "{}", said.err);
    let changes = said
        .out
        .lines()
        .find(|line| line.starts_with("changes: nvidia.com/gpu=0.any, "));
    let changes = changes.unwrap_or_else(|| panic!("{}", said.out));
    assert!(changes.contains(": 1 of 4 turns (time-slicing) -> "), "{changes}");
    assert!(changes.contains("25% of compute (mps); "), "{changes}");
    assert!(changes.contains("memory guaranteed none"), "{changes}");
    let refused = said
        .out
        .lines()
        .find(|line| line.starts_with("gpu 0: the whole device, any share, share 0"));
    let refused = refused.unwrap_or_else(|| panic!("{}", said.out));
    assert!(refused.contains("share 3 are refused until "), "{refused}");
    assert!(
        refused.contains("container aaaaaaaaaaaa on nvidia.com/gpu=0.3"),
        "{refused}"
    );
    assert!(
        refused.contains("container bbbbbbbbbbbb on nvidia.com/gpu=0.1"),
        "{refused}"
    );
    assert!(!said.out.contains("gpu 1:"), "nothing changes there: {}", said.out);
    let json: Value = serde_json::from_str(&diff(&scene, BY_MPS, &["--json"]).out).unwrap();
    let any = json["refused"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "nvidia.com/gpu=0.any");
    assert_eq!(any.unwrap()["until_ended"].as_array().unwrap().len(), 2, "{json}");
    assert_eq!(json["not_offered"].as_array().unwrap().len(), 2, "{json}");
}

#[test]
fn sums_that_do_not_fit_say_of_which_claims_enough_must_end() {
    let Some(scene) = Scene::new("policy_diff::sums_that_do_not_fit") else {
        return;
    };
    let _first = scene.start("nvidia.com/gpu=0.0", "aaaaaaaaaaaaaaaa");
    let _second = scene.start("nvidia.com/gpu=0.1", "bbbbbbbbbbbbbbbb");
    let _third = scene.start("nvidia.com/gpu=0.2", "cccccccccccccccc");
    let said = diff(&scene, &POLICY.replace("replicas: 4", "replicas: 2"), &[]);
    let refused = said
        .out
        .lines()
        .find(|line| line.starts_with("gpu 0: any share, share 0, share 1 are refused"));
    let refused = refused.unwrap_or_else(|| panic!("{}", said.out));
    assert!(refused.contains(" until enough of container "), "{refused}");
}

#[test]
fn settings_that_no_name_shows_are_listed() {
    let Some(scene) = Scene::new("policy_diff::settings_that_no_name_shows") else {
        return;
    };
    let new = POLICY.replace("sharing:\n", "sharing:\n  wait: 5s\n  quota: {shares: 2}\n") + "runtime: {}\n";
    let said = diff(&scene, &new, &[]);
    assert_eq!(said.code, Some(4), "{}", said.err);
    let lines = ["sharing.wait", "sharing.quota", "runtime"].map(|key| format!("changes: {key}: other settings\n"));
    assert_eq!(said.out, lines.concat());
}

#[test]
fn a_policy_that_cannot_be_read_is_one_line() {
    let Some(scene) = Scene::new("policy_diff::a_policy_that_cannot_be_read") else {
        return;
    };
    let line = diff(&scene, "version: v1\nsharing:\n  timeSlice: {}\n", &[]).failed(2);
    assert!(
        line.contains("new.yaml:3:3: \"timeSlice\" is unknown in sharing"),
        "{line}"
    );
    let missing = scene.at("missing.yaml").display().to_string();
    let line = scene.at_host(&["policy", "diff", &missing]).run().failed(1);
    assert!(line.contains("missing.yaml"), "{line}");
    // The present policy is named where that one is invalid.
    scene.policy("version: v1\nsharing: 3\n");
    let line = diff(&scene, POLICY, &[]).failed(2);
    assert!(line.contains("policy.yaml:2:"), "{line}");
}

#[test]
fn a_refusal_that_an_earlier_policy_causes_names_what_the_comparison_named() {
    let Some(scene) = Scene::new("policy_diff::a_refusal_names_what_the_comparison_named") else {
        return;
    };
    scene.name_containers(&[("0123456789abcdef", "train")]);
    let init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    let said = diff(&scene, DEDICATED, &[]);
    let until = "is refused until container train (0123456789ab) on nvidia.com/gpu=0.3 has ended";
    assert!(said.out.contains(until), "{}", said.out);
    scene.policy(DEDICATED);
    scene.refresh();
    let other = Init::new();
    let start = scene.hook("createRuntime", "nvidia.com/gpu=0", "second", other.pid());
    let line = start.run().failed(1);
    let until = "refused until container 0123456789ab on share 3 has ended";
    assert!(line.contains(until), "{line}");
    drop(init);
    start.run().ok();
}

#[test]
fn rules_for_users_never_bind_root() {
    let Some(scene) = Scene::new("policy_diff::rules_for_users_never_bind_root") else {
        return;
    };
    let nothing = "sharing:\n  quota: {shares: 0, all: 0}\n  users:\n    default: {maxShares: 0, maxDevices: 0, served: last}\n    \
                   users: {root: {maxShares: 0, maxDevices: 0, served: last, maxHold: 1s, atLimit: end}}\n";
    scene.policy(&POLICY.replacen("sharing:\n", nothing, 1));
    scene.refresh();
    let init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    scene.create(&["--name=mine", "--shares=2", "--of=0"]).run().ok();
    drop(init);
}
