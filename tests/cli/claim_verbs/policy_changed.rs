//! What `cdi generate`, `plan` and `policy check` say about shares that are held under an earlier policy.

use super::*;

/// What each of the three says, with its exit code.
fn said(scene: &Scene) -> [(Option<i32>, String); 3] {
    let output = scene.option("output", "cdi/tranche.yaml");
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
            err.contains("gpu 0: the shares of the policy do not fit in addition to what is held"),
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
    assert_eq!((generate.0, plan.0, check.0), (Some(0), Some(0), Some(4)));
    assert!(plan.1.contains("no policy shares a device"), "{}", plan.1);
    for (_, err) in [generate, check] {
        for (name, by) in [
            ("nvidia.com/gpu=0.3", "container 0123456789ab"),
            ("nvidia.com/claim=later", "user 0 (no container yet)"),
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

/// The file that `generate` writes, and what it says.
fn generated(scene: &Scene) -> (String, Said) {
    let output = scene.option("output", "cdi/tranche.yaml");
    let said = scene.at_host(&["cdi", "generate", &output]).run();
    (fs::read_to_string(scene.at("cdi/tranche.yaml")).unwrap(), said)
}

/// The nodes in `/dev` that `device` brings, and whether an engine runs a hook that claims something.
fn gives(scene: &Scene, device: &str) -> Option<(Vec<String>, bool)> {
    let registry = Registry::read(&[scene.at("cdi")]);
    let edits = &registry.find(&device.parse().unwrap())?.device.edits;
    let nodes = edits.device_nodes.iter().map(|node| node.path.clone()).collect();
    let claims = edits.hooks.iter().any(|h| h.args.get(2).is_some_and(|a| a == "claim"));
    Some((nodes, claims))
}

/// Starts a container with each of `devices`, which must all be refused because of `holder`.
fn refuses(scene: &Scene, devices: &[&str], holder: &str) {
    for device in devices {
        let init = Init::new();
        let line = scene
            .hook("createRuntime", device, "second", init.pid())
            .run()
            .failed(1);
        assert!(line.contains(&format!("{holder} holds ")), "{device}: {line}");
    }
}

#[test]
fn a_device_of_which_a_share_is_held_stays_claimed_under_an_empty_policy() {
    let test = "policy_changed::a_device_of_which_a_share_is_held_stays_claimed_under_an_empty_policy";
    let Some(scene) = Scene::new(test) else { return };
    scene.policy("version: v1\n");
    let (plain, _) = generated(&scene);
    // A refresh leaves files alone that it did not write.
    fs::remove_file(scene.at("cdi/tranche.yaml")).unwrap();
    scene.policy(POLICY);
    scene.refresh();
    let init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    scene.policy("version: v1\n");
    let (kept, said) = generated(&scene);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let lines: Vec<&str> = said.err.lines().filter(|l| l.starts_with("gpu 0: ")).collect();
    assert!(
        matches!(lines[..], [line] if line.contains("still claim the whole device")
            && line.contains("run tranche cdi generate again")),
        "{}",
        said.err
    );
    let uuid = |n: usize| tranche_plan::sim::open("t4x2").unwrap().gpus[n].uuid.to_string();
    let by_uuid = format!("nvidia.com/gpu={}", uuid(0));
    refuses(&scene, &["nvidia.com/gpu=0", &by_uuid], "container 0123456789ab");
    // The other GPU is plain, and `all` is the other GPU.
    let other = gives(&scene, "nvidia.com/gpu=1").unwrap();
    assert!(!other.1, "{kept}");
    assert_eq!(gives(&scene, "nvidia.com/gpu=all").unwrap(), other);
    assert_eq!(generated(&scene).0, kept, "equal policy and equal claims");
    // The container that holds the share gives it back, and then the device can be claimed as a whole.
    drop(init);
    let whole = scene.start("nvidia.com/gpu=0", "bbbb");
    refuses(&scene, &["nvidia.com/gpu=0"], "container bbbb");
    drop(whole);
    let (after, said) = generated(&scene);
    assert_eq!((after, said.code), (plain, Some(0)));
    assert!(!said.err.contains("claim"), "{}", said.err);
}

#[test]
fn a_device_that_is_held_whole_stays_claimed_under_an_empty_policy() {
    let test = "policy_changed::a_device_that_is_held_whole_stays_claimed_under_an_empty_policy";
    let Some(scene) = Scene::new(test) else { return };
    scene.policy("version: v1\nsharing:\n  dedicated: {devices: [0]}\n");
    scene.refresh();
    let _init = scene.start("nvidia.com/gpu=0", "0123456789abcdef");
    scene.create(&["--name=no", "--of=0"]).run().failed(1);
    scene.policy("version: v1\nsharing:\n  dedicated: {devices: [1]}\n");
    scene.refresh();
    refuses(&scene, &["nvidia.com/gpu=0"], "container 0123456789ab");
    assert_eq!(
        gives(&scene, "nvidia.com/gpu=all"),
        None,
        "neither GPU is for everybody"
    );
    let [_, plan, check] = said(&scene);
    assert_eq!(check.0, Some(4));
    for (_, err) in [plan, check] {
        let line = err
            .lines()
            .find(|l| l.starts_with("nvidia.com/gpu=0: held by container"));
        assert!(line.unwrap().contains("tranche cdi generate keeps"), "{err}");
    }
}

#[test]
fn a_device_whose_book_cannot_be_read_stays_claimed_under_an_empty_policy() {
    let test = "policy_changed::a_device_whose_book_cannot_be_read_stays_claimed_under_an_empty_policy";
    let Some(scene) = Scene::new(test) else { return };
    let _init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    let book = names_in(&scene.at("state/ledger"))
        .into_iter()
        .find(|n| n.starts_with("GPU-"));
    fs::write(scene.at("state/ledger").join(book.unwrap()), "damaged").unwrap();
    scene.policy("version: v1\n");
    let (_, said) = generated(&scene);
    assert!(said.err.contains("gpu 0: "), "{}", said.err);
    let init = Init::new();
    let hook = scene.hook("createRuntime", "nvidia.com/gpu=0", "second", init.pid());
    assert!(hook.run().failed(1).contains("is not valid in a ledger"));
    assert!(!gives(&scene, "nvidia.com/gpu=1").unwrap().1);
}

#[test]
fn without_a_hook_a_device_that_is_held_is_left_out() {
    let Some(scene) = Scene::new("policy_changed::without_a_hook_a_device_that_is_held_is_left_out") else {
        return;
    };
    let _init = scene.start("nvidia.com/gpu=0.3", "0123456789abcdef");
    scene.policy("version: v1\n");
    let output = scene.option("output", "cdi/tranche.yaml");
    let said = scene.at_host(&["cdi", "generate", "--no-hooks", &output]).run();
    assert!(said.err.contains("left out"), "{}", said.err);
    said.ok();
    assert_eq!(gives(&scene, "nvidia.com/gpu=0"), None);
    assert_eq!(gives(&scene, "nvidia.com/gpu=all"), gives(&scene, "nvidia.com/gpu=1"));
}
