//! What `cdi generate`, `plan` and `policy check` say about shares that are held under an earlier policy.

use super::*;

/// What each of the three says, with its exit code.
fn said(scene: &Scene) -> [(Option<i32>, String); 3] {
    let output = scene.option("output", "cdi/nvidia.yaml");
    [&["cdi", "generate", &output][..], &["plan"], &["policy", "check"]].map(|verb| {
        let said = scene.at_host(verb).run();
        (said.code, said.out + &said.err)
    })
}

#[test]
fn shares_that_the_new_policy_does_not_have() {
    let Some(scene) = Scene::new("policy_changed::shares_that_the_new_policy_does_not_have") else {
        return;
    };
    scene.name_containers(&[("0123456789abcdef", "train")]);
    let init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    for (code, err) in said(&scene) {
        assert_eq!(code, Some(0), "{err}");
        assert!(!err.contains("held by"), "the policy has it: {err}");
    }
    scene.policy(&POLICY.replace("replicas: 4", "replicas: 2"));
    let [generate, plan, check] = said(&scene);
    assert_eq!((generate.0, plan.0, check.0), (Some(0), Some(0), Some(4)));
    for (_, err) in [generate, plan, check] {
        let line = err
            .lines()
            .find(|l| l.starts_with("nvidia.com/gpu=0.3: "))
            .unwrap_or_else(|| panic!("{err}"));
        assert!(
            line.contains("held by container train (0123456789ab) since 20"),
            "{line}"
        );
        assert!(line.contains("the policy does not have this share"), "{line}");
        assert!(
            err.contains("gpu 0: the shares of the policy do not fit beside what is held"),
            "{err}"
        );
    }
    drop(init);
    for (code, err) in said(&scene) {
        assert_eq!(code, Some(0), "{err}");
        assert!(!err.contains("held by"), "it is given back: {err}");
    }
}

#[test]
fn a_device_that_the_new_policy_does_not_share() {
    let Some(scene) = Scene::new("policy_changed::a_device_that_the_new_policy_does_not_share") else {
        return;
    };
    let _init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    scene.create(&["--name=later", "--memory=1Gi"]).run().ok();
    scene.policy("version: v1\n");
    let [generate, plan, check] = said(&scene);
    assert_eq!((generate.0, plan.0, check.0), (Some(0), Some(3), Some(4)));
    for (_, err) in [generate, check] {
        for (name, by) in [
            ("nvidia.com/gpu=0.3", "container 0123456789ab"),
            ("nvidia.com/claim=later", "user 0"),
        ] {
            let says = format!("{name}: held by {by} since 20");
            let line = err
                .lines()
                .find(|l| l.starts_with(&says))
                .unwrap_or_else(|| panic!("{says} in {err}"));
            assert!(line.contains("the policy does not share this device"), "{line}");
        }
    }
}

#[test]
fn another_machine_s_inventory_has_no_claims_here() {
    let Some(scene) = Scene::new("policy_changed::another_machine_s_inventory_has_no_claims_here") else {
        return;
    };
    let _init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    fs::write(scene.at("empty.yaml"), "version: v1\n").unwrap();
    let empty = scene.option("config", "empty.yaml");
    let said = scene
        .tranche(&["cdi", "generate", "--inventory=sim:dgx-a100-mig", &empty])
        .run();
    assert!(!said.err.contains("0123456789ab"), "{}", said.err);
    said.ok();
}
