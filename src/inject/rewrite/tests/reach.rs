//! What a request may reach, by who made it: claims, devices of other specifications, waits, and limits of its own.

use super::*;
use tranche_plan::engines::Engine;
use tranche_plan::policy::ClaimsFromEnvironment;
use tranche_plan::reserve::Unoffered;
use tranche_plan::share::Wish;

/// GPU 0 is split, and GPU 1 is dedicated.
const DEDICATED: &str = "
version: v1
sharing:
  dedicated: {devices: [1]}
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 2}
";

/// A scene whose only specifications are `files`, each with its name.
fn with_specs(policy: &str, files: &[(&str, String)]) -> (Scene, tempfile::TempDir) {
    let mut scene = Scene::of("t4x2", policy);
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    scene.host.runtime.spec_dirs = vec![dir.path().to_owned()];
    (scene, dir)
}

fn spec(kind: &str, name: &str, edits: &str) -> String {
    format!("cdiVersion: 0.5.0\nkind: {kind}\ndevices:\n- {{name: {name}, containerEdits: {edits}}}\n")
}

/// The nodes of both GPUs by their numbers.
const BOTH: &str = "{deviceNodes: [{path: /dev/x0, type: c, major: 195, minor: 0}, \
                    {path: /dev/x1, type: c, major: 195, minor: 1}, {path: /dev/ctl, type: c, major: 195, minor: 255}]}";

/// As `tranche claim create --name NAME` writes it, without a header.
fn claim_spec(name: &str) -> String {
    let hook = |stage: &str, verb: &str| {
        format!(
            "{{hookName: {stage}, path: /usr/bin/tranche-oci, args: [tranche-oci, hook, {verb}, \
             --device=GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c, --claim={name}, --size=mps:3840:25]}}"
        )
    };
    let hooks = [hook("createRuntime", "claim"), hook("poststop", "release")].join(", ");
    let env = "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25";
    spec(
        "nvidia.com/claim",
        name,
        &format!("{{env: [{env}], hooks: [{hooks}], deviceNodes: [{{path: /dev/x0, type: c, major: 195, minor: 0}}]}}"),
    )
}

fn annotated(key: &str, value: &str) -> Value {
    let mut config = asking(&[]);
    config["annotations"] = json!({ key: value });
    config
}

fn mounting(at: &str) -> Value {
    let mut config = asking(&["NVIDIA_VISIBLE_DEVICES=all"]);
    let mount = json!({"destination": at, "source": "/dev/null", "type": "bind", "options": ["bind"]});
    config["mounts"].as_array_mut().unwrap().push(mount);
    config
}

#[test]
fn a_claim_is_not_taken_from_the_environment_unless_the_owner_says_so() {
    let (mut scene, _dir) = with_specs("version: v1", &[("train.yaml", claim_spec("train1"))]);
    let claim = "NVIDIA_VISIBLE_DEVICES=nvidia.com/claim=train1";
    let refused = scene.refused("a", &asking(&[claim]));
    for part in [
        "nvidia.com/claim=train1",
        "claimsFromEnvironment: never",
        "--device nvidia.com/claim=train1",
        "-v /dev/null:/var/run/nvidia-container-devices/cdi/nvidia.com/claim/train1",
    ] {
        assert!(
            refused.contains(part) && refused.lines().count() == 1,
            "{part}: {refused}"
        );
    }
    // Beside another device, of the swarm resource, and as the name of the default kind.
    assert!(
        scene
            .run("b", &asking(&["NVIDIA_VISIBLE_DEVICES=0,nvidia.com/claim=train1"]))
            .is_err()
    );
    scene.host.runtime.swarm_resource = vec!["DOCKER_RESOURCE_GPU".to_owned()];
    assert!(
        scene
            .run("c", &asking(&["DOCKER_RESOURCE_GPU=nvidia.com/claim=train1"]))
            .is_err()
    );
    scene.host.runtime.default_kind = "nvidia.com/claim".parse().unwrap();
    scene.host.runtime.mode = tranche_plan::policy::RuntimeMode::Cdi;
    assert!(scene.run("d", &asking(&["NVIDIA_VISIBLE_DEVICES=train1"])).is_err());
    scene.host.runtime.claims_from_environment = ClaimsFromEnvironment::Always;
    assert!(nodes(&scene.changed("e", &asking(&[claim]))).contains(&"/dev/x0"));
}

#[test]
fn a_device_of_another_kind_that_takes_a_claim_made_beforehand_is_a_claim() {
    let other = claim_spec("train1").replace("kind: nvidia.com/claim", "kind: vendor.com/job");
    let (scene, _dir) = with_specs("version: v1", &[("job.yaml", other)]);
    let refused = scene.refused("a", &asking(&["NVIDIA_VISIBLE_DEVICES=vendor.com/job=train1"]));
    assert!(refused.contains("claimsFromEnvironment"), "{refused}");
    scene.changed("b", &annotated("cdi.k8s.io/x", "vendor.com/job=train1"));
}

#[test]
fn a_claim_is_taken_by_an_annotation_and_by_a_mount_which_the_runtime_accepts_for_claims_always() {
    let (scene, _dir) = with_specs("version: v1", &[("train.yaml", claim_spec("train1"))]);
    assert!(!scene.host.runtime.accept_volume_mounts);
    scene.changed("a", &annotated("cdi.k8s.io/x", "nvidia.com/claim=train1"));
    for at in [
        "/var/run/nvidia-container-devices/cdi/nvidia.com/claim/train1",
        "/var/run//nvidia-container-devices/./cdi/nvidia.com/claim=train1",
    ] {
        let after = scene.changed("b", &mounting(at));
        assert!(nodes(&after).contains(&"/dev/x0"), "{at}");
        let mounts = after["mounts"].as_array().unwrap();
        assert!(mounts.iter().all(|mount| mount["destination"] != at), "{after}");
    }
    // Other mounts stay what they are, and so does one that is not of /dev/null.
    for at in [
        "/var/run/nvidia-container-devices/0",
        "/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/0",
        "/var/run/nvidia-container-devices/cdi/nvidia.com/claims/train1",
        "/var/run/nvidia-container-devices/cdi/x",
    ] {
        let after = scene.changed("c", &mounting(at));
        assert!(nodes(&after).contains(&"/dev/nvidia1"), "the environment decides: {at}");
        assert!(after["mounts"].to_string().contains(at), "{after}");
    }
    let mut volume = mounting("/var/run/nvidia-container-devices/cdi/nvidia.com/claim/train1");
    volume["mounts"][1]["source"] = json!("/var/lib/docker/volumes/1/_data");
    assert!(!nodes(&scene.changed("d", &volume)).contains(&"/dev/x0"));
}

#[test]
fn names_of_nvidia_s_kind_mean_what_the_plan_says_whatever_a_file_defines() {
    let file = [("nvidia.yaml", spec("nvidia.com/gpu", "all", BOTH))];
    let (scene, _dir) = with_specs(DEDICATED, &file);
    let refused = scene.refused("a", &asking(&["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all"]));
    assert!(refused.contains("neither split nor dedicated"), "{refused}");
    // A name that the plan does not know is looked up, and checked.
    let file = [("nvidia.yaml", spec("nvidia.com/gpu", "gpu1", BOTH))];
    let (scene, dir) = with_specs(DEDICATED, &file);
    let refused = scene.refused("b", &annotated("cdi.k8s.io/x", "nvidia.com/gpu=gpu1"));
    assert!(
        refused.contains(&dir.path().display().to_string()) && refused.contains("/dev/x0 of gpu 0"),
        "{refused}"
    );
    // Whole, share and nothing by their own names: as the plan says.
    let files = ["0", "1", "none", "0.any"].map(|name| (name, spec("nvidia.com/gpu", name, BOTH)));
    let files = files.map(|(name, text)| (format!("{name}.yaml"), text));
    let files: Vec<(&str, String)> = files.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
    let (scene, _dir) = with_specs(DEDICATED, &files);
    for (name, held) in [("1", 1), ("0.any", 2), ("none", 2)] {
        let after = scene.changed(
            name,
            &asking(&[&format!("NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu={name}")]),
        );
        assert!(!nodes(&after).iter().any(|node| node.starts_with("/dev/x")), "{after}");
        assert_eq!(scene.held().len(), held, "{name}");
    }
}

#[test]
fn a_specification_gives_no_split_or_dedicated_device() {
    let on = |number: &str| format!("{{deviceNodes: [{{path: /dev/odd, type: c, major: 195, minor: {number}}}]}}");
    let files = [
        (
            "split",
            on("0"),
            Some("gpu 0, which is split by the policy"),
            "ask for nvidia.com/gpu=0.any",
        ),
        (
            "dedicated",
            on("1"),
            Some("gpu 1, which is dedicated by the policy"),
            "ask for nvidia.com/gpu=1",
        ),
        ("control", on("255"), None, ""),
        ("other", on("7"), None, ""),
    ];
    let written: Vec<(String, String)> = files
        .iter()
        .map(|(name, edits, ..)| (format!("{name}.yaml"), spec("vendor.com/thing", name, edits)))
        .collect();
    let written: Vec<(&str, String)> = written
        .iter()
        .map(|(name, text)| (name.as_str(), text.clone()))
        .collect();
    let (scene, _dir) = with_specs(DEDICATED, &written);
    for (name, _, refusal, hint) in &files {
        let full = format!("vendor.com/thing={name}");
        for config in [
            asking(&[&format!("NVIDIA_VISIBLE_DEVICES={full}")]),
            annotated("cdi.k8s.io/x", &full),
        ] {
            match refusal {
                Some(why) => {
                    let refused = scene.refused(name, &config);
                    assert!(refused.contains(why) && refused.contains(hint), "{refused}");
                }
                None => assert_eq!(nodes(&scene.changed(name, &config)), ["/dev/odd"]),
            }
        }
    }
    // While the plan splits nothing, a name of another program is as with NVIDIA's runtime.
    let (scene, _dir) = with_specs("version: v1", &[("a.yaml", spec("nvidia.com/gpu", "all", BOTH))]);
    let after = scene.changed("a", &asking(&["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=all"]));
    assert_eq!(nodes(&after), ["/dev/x0", "/dev/x1", "/dev/ctl"]);
    // And so it is where the policy leaves the split device to everybody.
    let open = format!("{DEDICATED}  wholeDevice: open\n");
    let (scene, _dir) = with_specs(&open, &[("a.yaml", spec("vendor.com/thing", "a", &on("0")))]);
    scene.changed("a", &annotated("cdi.k8s.io/x", "vendor.com/thing=a"));
}

#[test]
fn nodes_count_by_their_numbers_on_the_host_too_and_so_do_mounts() {
    // /dev/null stands for the node of the dedicated GPU.
    let here = |edits: &str| {
        let (mut scene, dir) = with_specs(DEDICATED, &[("a.yaml", spec("vendor.com/thing", "a", edits))]);
        let node = scene.host.inventory.gpus[1].node.as_mut().unwrap();
        (node.major, node.minor) = (1, 3);
        node.host = HostPath::new("/dev/null").unwrap();
        (scene.run("a", &annotated("cdi.k8s.io/x", "vendor.com/thing=a")), dir)
    };
    for edits in [
        "{deviceNodes: [{path: /dev/null}]}",
        "{deviceNodes: [{path: /dev/x, hostPath: /dev/null}]}",
        // A node with the numbers of another one is made from its numbers, and yet looked at.
        "{deviceNodes: [{path: /dev/x, hostPath: /dev/null, type: c, major: 5, minor: 0}]}",
        "{mounts: [{hostPath: /dev/null, containerPath: /dev/x}]}",
        "{mounts: [{hostPath: /dev, containerPath: /host-dev, options: [rbind]}]}",
        "{mounts: [{hostPath: /dev/../dev, containerPath: /host-dev, options: [bind]}]}",
    ] {
        let (done, _dir) = here(edits);
        let refused = line(&done.unwrap_err());
        assert!(refused.contains("gpu 1, which is dedicated"), "{edits}: {refused}");
    }
    for edits in [
        "{deviceNodes: [{path: /dev/full}]}",
        "{mounts: [{hostPath: /etc, containerPath: /x}]}",
        "{mounts: [{hostPath: /does/not/exist, containerPath: /x}]}",
    ] {
        assert!(here(edits).0.is_ok(), "{edits}");
    }
}

#[test]
fn the_owner_lists_kinds_whose_devices_are_not_checked() {
    let files = [
        ("m.yaml", spec("management.nvidia.com/gpu", "all", BOTH)),
        ("v.yaml", spec("vendor.com/thing", "all", BOTH)),
    ];
    let (mut scene, _dir) = with_specs(DEDICATED, &files);
    let management = asking(&["NVIDIA_VISIBLE_DEVICES=management.nvidia.com/gpu=all"]);
    let privileged = |config: &Value| {
        let mut config = config.clone();
        config["process"]["capabilities"] = json!({"bounding": ["CAP_SYS_ADMIN"]});
        config
    };
    let vendor = asking(&["NVIDIA_VISIBLE_DEVICES=vendor.com/thing=all"]);
    assert!(scene.refused("a", &management).contains("runtime.uncheckedKinds"));
    scene.changed("b", &privileged(&management));
    assert!(scene.refused("c", &privileged(&vendor)).contains("uncheckedKinds"));
    scene.host.runtime.unchecked_kinds = Some(vec!["vendor.com/thing".parse().unwrap()]);
    scene.changed("d", &vendor);
    assert!(scene.run("e", &privileged(&management)).is_err());
}

#[test]
fn a_claim_on_the_device_itself_makes_its_nodes_good() {
    let (mut scene, dir) = with_specs(DEDICATED, &[]);
    let key = scene.host.plan.devices[0].key.clone();
    let other = scene.host.plan.devices[1].key.clone();
    let write = |device: &str| {
        let text = claim_spec("train1").replace("GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c", device);
        std::fs::write(dir.path().join("c.yaml"), text.replace("mps:3840:25", "1/2")).unwrap();
    };
    scene.host.runtime.claims_from_environment = ClaimsFromEnvironment::Always;
    let claim = asking(&["NVIDIA_VISIBLE_DEVICES=nvidia.com/claim=train1"]);
    write(&key.to_string());
    scene.changed("a", &claim);
    write(&other.to_string());
    assert!(scene.refused("b", &claim).contains("split by the policy"));
}

#[test]
fn a_device_that_is_held_under_an_earlier_policy_is_not_given_by_a_specification() {
    let (mut scene, _dir) = with_specs(POLICY, &[("x.yaml", spec("vendor.com/thing", "all", BOTH))]);
    scene.changed("a", &asking(&["NVIDIA_VISIBLE_DEVICES=1.any"]));
    scene.host.plan = Plan::default();
    let refused = scene.refused("b", &annotated("cdi.k8s.io/x", "vendor.com/thing=all"));
    assert!(
        refused.contains("gpu 1, which is held in part under an earlier policy"),
        "{refused}"
    );
}

#[test]
fn a_mig_device_is_known_by_the_capability_of_its_compute_instance() {
    let policy = "version: v1\nsharing: {dedicated: {devices: [\"0:0\"]}}\n";
    let scene = Scene::of("dgx-a100-mig", policy);
    let (gpu, mig) = scene.host.inventory.mig_devices().next().unwrap();
    let cap = mig.compute_instance_cap.as_ref().unwrap();
    let gpu_node = gpu.node.as_ref().unwrap();
    let number = |major: u32, minor: u32| {
        format!("{{deviceNodes: [{{path: /dev/x, type: c, major: {major}, minor: {minor}}}]}}")
    };
    let dir = tempfile::tempdir().unwrap();
    let mut host = scene.host.clone();
    host.runtime.spec_dirs = vec![dir.path().to_owned()];
    let give = |edits: &str| {
        std::fs::write(dir.path().join("x.yaml"), spec("vendor.com/thing", "a", edits)).unwrap();
        let config = serde_json::to_vec(&annotated("cdi.k8s.io/x", "vendor.com/thing=a")).unwrap();
        scene.run_bytes("a", &config, &|| Ok(host.clone()))
    };
    let refused = line(&give(&number(cap.major, cap.minor)).unwrap_err());
    assert!(refused.contains("gpu 0:0, which is dedicated"), "{refused}");
    // Every device on the GPU needs its node.
    assert!(give(&number(gpu_node.major, gpu_node.minor)).is_ok());
}

#[test]
fn a_wait_is_shortened_to_what_the_owner_allows_for_whoever_asks() {
    let (mut scene, _dir) = with_specs(POLICY, &[]);
    scene.changed("first", &asking(&["NVIDIA_VISIBLE_DEVICES=0.1"]));
    let waits = |scene: &Scene, config: &Value| {
        let remarks = std::cell::RefCell::new(Vec::new());
        let began = std::time::Instant::now();
        let context = RewriteContext {
            caller: CallingEngine::Known(Engine::Docker),
            settings: &scene.host.runtime,
            state_dir: scene.state.path(),
            host: &|| Ok(scene.host.clone()),
            container: None,
            process: Some(std::process::id()),
            refresh: &|_| Ok(()),
            remark: &|remark| remarks.borrow_mut().push(remark.to_string()),
        };
        let refused = line(&rewrite(&serde_json::to_vec(config).unwrap(), &context).unwrap_err());
        (refused, remarks.into_inner(), began.elapsed())
    };
    let image = asking(&["NVIDIA_VISIBLE_DEVICES=0.1", "TRANCHE_WAIT=167h"]);
    let (refused, remarks, _) = waits(&scene, &image);
    assert!(
        !refused.contains("waited") && refused.contains("container first"),
        "{refused}"
    );
    let expected = "request: a wait of 167h is shortened to 0s, because others wait behind it (maxWait.environment)";
    assert_eq!(remarks, [expected]);
    // What the owner lets everybody wait.
    scene.host.plan.wait = "1s".parse().unwrap();
    let (refused, remarks, _) = waits(&scene, &image);
    assert!(refused.contains("waited 1 s"), "{refused}");
    assert!(remarks[0].contains("shortened to 1s"), "{remarks:?}");
    scene.host.plan.wait = "0s".parse().unwrap();
    // An annotation has a bound of its own.
    scene.host.runtime.max_wait.annotation = "1s".parse().unwrap();
    let mut user = asking(&["NVIDIA_VISIBLE_DEVICES=0.1"]);
    user["annotations"] = json!({"tranche.dev/wait": "2s"});
    let (refused, remarks, _) = waits(&scene, &user);
    assert!(
        refused.contains("waited 1 s") && remarks[0].contains("maxWait.annotation"),
        "{refused} {remarks:?}"
    );
    user["annotations"] = json!({"tranche.dev/wait": "1s"});
    assert!(waits(&scene, &user).1.is_empty());
}

#[test]
fn limits_of_a_tenant_leave_when_a_claim_comes_by_its_name() {
    let (scene, _dir) = with_specs("version: v1", &[("train.yaml", claim_spec("train1"))]);
    let tenant = [
        "A=1",
        "CUDA_MPS_SM_PARTITION=1",
        "NVIDIA_GPU_MEMORY_LIMIT=99999",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100",
    ];
    let mut config = asking(&tenant);
    config["annotations"] = json!({"cdi.k8s.io/x": "nvidia.com/claim=train1"});
    let after = scene.changed("a", &config);
    assert_eq!(
        after["process"]["env"],
        json!([
            "A=1",
            "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25"
        ])
    );
}

/// The engine has resolved the name, so this program is asked for nothing.
#[test]
fn limits_of_a_tenant_leave_when_the_engine_has_added_the_claim() {
    let missing = || Err(Error::failed("host.json", "not found"));
    let scene = Scene::of("t4x2", "version: v1");
    let claimed = |size: &str, env: &[&str]| {
        let mut config = asking(env);
        let args = [
            "tranche-oci",
            "hook",
            "claim",
            "--device=GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c",
            "--claim=a",
            size,
        ];
        config["hooks"] = json!({"createRuntime": [{"path": "/usr/bin/tranche-oci", "args": args}]});
        serde_json::to_vec(&config).unwrap()
    };
    let env = [
        "NVIDIA_VISIBLE_DEVICES=void",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25",
        "CUDA_MPS_SM_PARTITION=1",
    ];
    let left = |size: &str, env: &[&str]| {
        let after = scene.run_bytes("a", &claimed(size, env), &missing).unwrap();
        after.map(|after| serde_json::from_slice::<Value>(&after).unwrap()["process"]["env"].clone())
    };
    assert_eq!(left("--size=mps:3840:25", &env), Some(json!(env[..2])));
    assert_eq!(left("--size=1/2", &env), Some(json!(env[..1])));
    assert_eq!(left("--size=mps:3840:25", &env[..2]), None, "nothing to remove");
    // A container without a claim keeps what it sets, also if it mentions one.
    let bytes = serde_json::to_vec(&asking(&["CUDA_MPS_SM_PARTITION=1", "X=tranche-oci hook claim"])).unwrap();
    assert!(scene.run_bytes("b", &bytes, &missing).unwrap().is_none());
}

/// A claim that is in the ledger is found by its name whatever the plan is by then.
#[test]
fn the_ledger_is_not_needed_to_refuse_a_claim_of_the_environment() {
    let scene = Scene::of("t4x2", POLICY);
    let claims = Claims::open(scene.state.path()).unwrap();
    let reservation = Reservation::of("train1", Wish::default());
    scene.host.plan.reserve(&claims, &reservation, &Unoffered).unwrap();
    let refused = scene.refused("a", &asking(&["NVIDIA_VISIBLE_DEVICES=nvidia.com/claim=train1"]));
    assert!(refused.contains("claimsFromEnvironment"), "{refused}");
}

#[test]
fn what_the_owner_forbids_counts_even_if_it_was_not_known_at_first() {
    let mut scene = Scene::of("t4x2", POLICY);
    scene.host.runtime.accept_environment = tranche_plan::policy::AcceptEnvironment::Never;
    let bytes = serde_json::to_vec(&asking(&["NVIDIA_VISIBLE_DEVICES=0.1"])).unwrap();
    let defaults = RuntimeSettings::default();
    let remarks = std::cell::RefCell::new(Vec::new());
    let context = RewriteContext {
        settings: &defaults,
        state_dir: scene.state.path(),
        host: &|| Ok(scene.host.clone()),
        container: None,
        process: None,
        caller: CallingEngine::Ctr,
        refresh: &|_| Ok(()),
        remark: &|remark| remarks.borrow_mut().push(remark.to_string()),
    };
    assert!(rewrite(&bytes, &context).unwrap().is_none());
    let remarks = remarks.borrow();
    assert!(
        remarks.len() == 1 && remarks[0].contains("acceptEnvironment: never"),
        "{remarks:?}"
    );
    assert!(scene.held().is_empty());
}
