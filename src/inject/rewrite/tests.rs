use super::*;
use serde_json::json;
use std::path::PathBuf;
use tranche_core::error::line;
use tranche_core::ledger::{ClaimState, ContainerName, Outage, outages_text};
use tranche_plan::cdi::inject::host_node;
use tranche_plan::digest::Digest;
use tranche_plan::policy::read;
use tranche_plan::{share, sim};

/// GPU 0 is split into equal shares under MPS, and GPU 1 into named ones by time-slicing.
const POLICY: &str = "
version: v1
sharing:
  mps:
    computeMode: keep
    resources:
    - {name: nvidia.com/gpu, devices: [0], replicas: 4}
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, devices: [1], replicas: 2}
";

struct Scene {
    state: tempfile::TempDir,
    host: HostFile,
}

impl Scene {
    fn of(inventory: &str, policy: &str) -> Self {
        let mut inventory = sim::open(inventory).unwrap();
        // The nodes do not exist on the machine that runs the tests, so their numbers are in the edits.
        let nodes = inventory.gpus.iter_mut().filter_map(|gpu| gpu.node.as_mut());
        let control = inventory.nodes.control.iter_mut().map(|control| &mut control.node);
        nodes.chain(control).for_each(|node| node.present = false);
        let policy = read::parse("policy.yaml", policy).unwrap().policy;
        let plan = share::plan(&policy, &inventory).unwrap();
        let host = HostFile {
            version: tranche_plan::host_file::VERSION,
            program: "test".into(),
            host: Digest([1; 32]),
            policy: Digest([2; 32]),
            inventory,
            plan,
            runtime: RuntimeSettings::default(),
            wrong_policy: None,
            hook: HostPath::new("/usr/bin/tranche-oci").unwrap(),
            arguments: Vec::new(),
            sources: Vec::new(),
        };
        Self {
            state: tempfile::tempdir().unwrap(),
            host,
        }
    }

    fn run(&self, id: &str, config: &Value) -> Result<Option<Vec<u8>>> {
        self.run_bytes(id, &serde_json::to_vec(config).unwrap(), &|| Ok(self.host.clone()))
    }

    fn run_bytes(&self, id: &str, config: &[u8], host: &dyn Fn() -> Result<HostFile>) -> Result<Option<Vec<u8>>> {
        self.run_with(id, config, host, &|remark| panic!("{remark}"))
    }

    fn run_with(
        &self,
        id: &str,
        config: &[u8],
        host: &dyn Fn() -> Result<HostFile>,
        remark: &dyn Fn(Error),
    ) -> Result<Option<Vec<u8>>> {
        let context = RewriteContext {
            settings: &self.host.runtime,
            state_dir: self.state.path(),
            host,
            container: Some(ContainerName {
                bundle: format!("/bundle/{id}"),
                id: id.to_owned(),
            }),
            process: Some(std::process::id()),
            caller: CallingEngine::Ctr,
            refresh: &|_| Ok(()),
            remark,
        };
        rewrite(config, &context)
    }

    /// The configuration that container `id` gets for `config`.
    fn changed(&self, id: &str, config: &Value) -> Value {
        let changed = self.run(id, config).unwrap();
        serde_json::from_slice(&changed.expect("nothing was asked for")).unwrap()
    }

    fn refused(&self, id: &str, config: &Value) -> String {
        line(&self.run(id, config).unwrap_err())
    }

    /// What is held: who, and what.
    fn held(&self) -> Vec<String> {
        let Some(claims) = Claims::existing(self.state.path()).unwrap() else {
            return Vec::new();
        };
        let books = claims.books().unwrap().books;
        let claims = books.iter().flat_map(|book| &book.claims);
        let mut held: Vec<String> = claims
            .map(|claim| {
                assert_eq!(claim.state, ClaimState::Reserved);
                format!("{} {}", claim.holder, claim.part)
            })
            .collect();
        held.sort();
        held
    }
}

fn asking(env: &[&str]) -> Value {
    json!({
        "ociVersion": "1.0.2",
        "x-unknown": [1.10],
        "process": {"env": env, "user": {"uid": 0, "gid": 0}},
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {"resources": {"devices": [{"allow": false, "access": "rwm"}]}},
    })
}

fn env<'a>(config: &'a Value, name: &str) -> Vec<&'a str> {
    let entries = config["process"]["env"].as_array().unwrap().iter();
    let entries = entries.filter_map(Value::as_str);
    entries
        .filter_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
        .collect()
}

fn nodes(config: &Value) -> Vec<&str> {
    let devices = config["linux"]["devices"].as_array();
    devices
        .into_iter()
        .flatten()
        .filter_map(|device| device["path"].as_str())
        .collect()
}

/// The arguments of the hooks of `stage`.
fn hooks(config: &Value, stage: &str) -> Vec<String> {
    let hooks = config["hooks"][stage].as_array();
    let arguments = |hook: &Value| {
        let args = hook["args"]
            .as_array()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap());
        args.collect::<Vec<_>>().join(" ")
    };
    hooks.into_iter().flatten().map(arguments).collect()
}

#[test]
fn who_asks_for_nothing_stays_as_it_is_even_without_a_host() {
    let missing = || Err(Error::failed("host.json", "not found"));
    for env in [
        &[][..],
        &["NVIDIA_VISIBLE_DEVICES=void"],
        &["NVIDIA_VISIBLE_DEVICES="],
        &["broken", "CUDA_MPS_X=1"],
    ] {
        let scene = Scene::of("t4x2", POLICY);
        let bytes = serde_json::to_vec(&asking(env)).unwrap();
        assert!(scene.run_bytes("a", &bytes, &missing).unwrap().is_none(), "{env:?}");
        assert!(scene.held().is_empty());
    }
    let scene = Scene::of("t4x2", POLICY);
    let bytes = serde_json::to_vec(&asking(&["NVIDIA_VISIBLE_DEVICES=0"])).unwrap();
    let error = scene.run_bytes("a", &bytes, &missing).unwrap_err();
    assert_eq!(line(&error), "host.json: not found");
}

#[test]
fn a_device_that_is_out_of_service_is_refused_with_the_others_and_all_leaves_it_out() {
    let scene = Scene::of("t4x2", "version: v1");
    let drain = |numbers: &[usize]| {
        let outages = numbers.iter().map(|number| {
            let device = DeviceKey::whole(scene.host.inventory.gpus[*number].uuid.clone());
            Outage::new(device, 1_795_227_000, Some("a fan".into()))
        });
        let file = OutOfService::drained_file(scene.state.path());
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, outages_text(outages.collect()).unwrap()).unwrap();
    };
    drain(&[1]);
    assert_eq!(
        scene.refused("a", &asking(&["NVIDIA_VISIBLE_DEVICES=1"])),
        "gpu 1: out of service since 2026-11-21 02:10:00 UTC (a fan); other devices: 0"
    );
    let all = asking(&["NVIDIA_VISIBLE_DEVICES=all"]);
    let after = scene.changed("b", &all);
    assert_eq!(nodes(&after), ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]);
    drain(&[0, 1]);
    assert_eq!(
        scene.refused("c", &all),
        "gpu 0: out of service since 2026-11-21 02:10:00 UTC (a fan); this host has no other device"
    );
    let shared = Scene::of("t4x2", POLICY);
    std::fs::create_dir_all(shared.state.path().join("kept")).unwrap();
    let from = OutOfService::drained_file(scene.state.path());
    std::fs::copy(from, OutOfService::drained_file(shared.state.path())).unwrap();
    let line = shared.refused("d", &asking(&["NVIDIA_VISIBLE_DEVICES=0.any"]));
    assert!(
        line.contains("gpu 0: out of service since ") && shared.held().is_empty(),
        "{line}"
    );
}

#[test]
fn a_whole_device_comes_with_the_driver_and_the_rest_stays() {
    let scene = Scene::of("t4x2", "version: v1");
    let before = asking(&["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=1", "FOO"]);
    let after = scene.changed("a", &before);
    assert_eq!(nodes(&after), ["/dev/nvidia-uvm", "/dev/nvidia1", "/dev/nvidiactl"]);
    assert_eq!(env(&after, "NVIDIA_VISIBLE_DEVICES"), ["1"]);
    assert_eq!(after["x-unknown"], json!([1.10]));
    assert_eq!(after["root"], before["root"]);
    let [prepare] = &hooks(&after, "createContainer")[..] else {
        panic!("{after}");
    };
    assert!(prepare.starts_with("tranche-oci hook prepare "), "{prepare}");
    assert!(hooks(&after, "createRuntime").is_empty() && scene.held().is_empty());
    // Only what the default capabilities need.
    let mounts: Vec<&str> = after["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|m| m["destination"].as_str())
        .collect();
    assert!(mounts.iter().any(|path| path.contains("libcuda.so.")), "{mounts:?}");
    assert!(
        !mounts.iter().any(|path| path.contains("libnvidia-encode")),
        "{mounts:?}"
    );
}

#[test]
fn shares_of_one_device_are_added_up_and_set_every_limit() {
    let scene = Scene::of("t4x2", POLICY);
    let after = scene.changed(
        "a",
        &asking(&[
            "NVIDIA_VISIBLE_DEVICES=0.1,0.2",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100",
            "CUDA_MPS_CLIENT_PRIORITY=0",
            "CUDA_VISIBLE_DEVICES=0,1",
        ]),
    );
    assert_eq!(env(&after, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), ["50"]);
    assert_eq!(env(&after, "CUDA_MPS_PIPE_DIRECTORY"), ["/tmp/nvidia-mps"]);
    assert_ne!(env(&after, "CUDA_VISIBLE_DEVICES"), ["0,1"]);
    assert_eq!(scene.held(), ["container a shares 1, 2"]);
    let [claim] = &hooks(&after, "createRuntime")[..] else {
        panic!("{after}");
    };
    assert!(
        claim.contains(" hook claim ") && claim.contains(" --claim=start-"),
        "{claim}"
    );
    assert_eq!(hooks(&after, "poststop").len(), 1);
}

#[test]
fn what_is_taken_is_refused_with_its_holder_and_nothing_stays_reserved() {
    let scene = Scene::of("t4x2", POLICY);
    scene.changed("first", &asking(&["NVIDIA_VISIBLE_DEVICES=0.1"]));
    let refused = scene.refused("second", &asking(&["NVIDIA_VISIBLE_DEVICES=1.any,0.1"]));
    assert!(refused.contains("container first"), "{refused}");
    assert_eq!(scene.held(), ["container first share 1"]);
    // An MPS share beside something else: the reservation is undone.
    let refused = scene.refused("third", &asking(&["NVIDIA_VISIBLE_DEVICES=0.2,1.any"]));
    assert!(refused.contains("MPS"), "{refused}");
    assert_eq!(scene.held(), ["container first share 1"]);
    // A requirement that does not hold.
    let refused = scene.refused(
        "fourth",
        &asking(&["NVIDIA_VISIBLE_DEVICES=0.2", "NVIDIA_REQUIRE_CUDA=cuda>=99.0"]),
    );
    assert!(refused.contains("99.0"), "{refused}");
    assert_eq!(scene.held(), ["container first share 1"]);
}

/// The seconds after which a start gave up, as its message says. On a busy machine they may be more than it was given.
fn waited(refused: &str) -> u64 {
    let (_, rest) = refused.rsplit_once("; waited ").expect(refused);
    rest.strip_suffix(" s for it").expect(refused).parse().unwrap()
}

#[test]
fn a_start_waits_as_long_as_the_policy_says_unless_the_container_says_another_time() {
    let scene = Scene::of("t4x2", &format!("{POLICY}  wait: 1s\n"));
    scene.changed("first", &asking(&["NVIDIA_VISIBLE_DEVICES=0.1"]));
    let second = asking(&["NVIDIA_VISIBLE_DEVICES=0.1"]);
    let refused = scene.refused("second", &second);
    assert!(waited(&refused) >= 1, "{refused}");
    let at_once = |time: &str| {
        let mut config = second.clone();
        config["annotations"] = json!({"tranche.dev/wait": time});
        scene.refused("third", &config)
    };
    let refused = at_once("0s");
    assert!(
        refused.contains("container first") && !refused.contains("waited"),
        "{refused}"
    );
    let refused = at_once("2s");
    assert!(waited(&refused) >= 2, "{refused}");
    // The whole of a split device is claimed by the hook, which waits instead.
    let claim_of = |config: &Value| {
        let changed = scene.changed("fourth", config);
        let hooks = changed["hooks"]["createRuntime"].as_array().unwrap().clone();
        let claim = hooks.into_iter().find(|hook| hook["args"][2] == "claim").unwrap();
        let wait = claim["args"]
            .as_array()
            .unwrap()
            .iter()
            .find_map(|word| word.as_str()?.strip_prefix("--wait="));
        (wait.map(str::to_owned), claim["timeout"].as_u64().unwrap())
    };
    let mut whole = asking(&["NVIDIA_VISIBLE_DEVICES=1"]);
    assert_eq!(claim_of(&whole), (Some("1s".to_owned()), 31));
    whole["annotations"] = json!({"tranche.dev/wait": "90s"});
    assert_eq!(claim_of(&whole), (Some("1m30s".to_owned()), 120));
    whole["annotations"] = json!({"tranche.dev/wait": "0s"});
    assert_eq!(claim_of(&whole), (None, 30));
    // What was reserved for this start is its own, and nobody waits for it.
    let share = scene.changed("fifth", &asking(&["NVIDIA_VISIBLE_DEVICES=1.any"]));
    assert!(!share["hooks"].to_string().contains("--wait"), "{share}");
}

#[test]
fn a_part_by_its_size_is_found_on_any_device() {
    let scene = Scene::of("t4x2", POLICY);
    let mut config = asking(&[]);
    config["annotations"] = json!({"tranche.dev/memory": "7Gi", "tranche.dev/compute": "30%"});
    let after = scene.changed("a", &config);
    assert_eq!(env(&after, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), ["50"]);
    assert_eq!(scene.held().len(), 1);
    let refused = scene.refused("b", &{
        let mut config = asking(&[]);
        config["annotations"] = json!({"tranche.dev/memory": "12Gi"});
        config
    });
    assert!(refused.contains("container a"), "{refused}");
}

#[test]
fn all_contains_neither_split_nor_dedicated_devices() {
    let scene = Scene::of("t4x2", POLICY);
    let refused = scene.refused("a", &asking(&["NVIDIA_VISIBLE_DEVICES=all"]));
    assert!(refused.contains("neither split nor dedicated"), "{refused}");
    let scene = Scene::of("t4x2", "version: v1\nsharing: {dedicated: {devices: [0]}}");
    let after = scene.changed("a", &asking(&["NVIDIA_VISIBLE_DEVICES=all"]));
    assert!(nodes(&after).contains(&"/dev/nvidia1") && !nodes(&after).contains(&"/dev/nvidia0"));
    assert!(scene.held().is_empty());
    for part in ["0.any", "0.whole", "0.0"] {
        let refused = scene.refused("a", &asking(&[&format!("NVIDIA_VISIBLE_DEVICES={part}")]));
        let says = "not a share of this host; gpu 0 is dedicated, so it has no shares; ask for all of it: 0";
        assert!(refused.ends_with(says), "{refused}");
    }
    // The dedicated device by its name is reserved.
    let after = scene.changed("b", &asking(&["NVIDIA_VISIBLE_DEVICES=0"]));
    assert!(nodes(&after).contains(&"/dev/nvidia0"));
    assert_eq!(scene.held(), ["container b the whole device"]);
}

#[test]
fn any_is_a_free_dedicated_device_and_each_of_them_is_another() {
    let policy = "version: v1\nsharing: {dedicated: {devices: [0, 1]}}";
    let scene = Scene::of("t4x2", policy);
    let one = asking(&["NVIDIA_VISIBLE_DEVICES=any"]);
    let gpus = |config: &Value| -> Vec<String> {
        let is_gpu = |name: &&str| {
            name.strip_prefix("/dev/nvidia")
                .is_some_and(|rest| rest.parse::<u32>().is_ok())
        };
        nodes(config).into_iter().filter(is_gpu).map(str::to_owned).collect()
    };
    assert_eq!(gpus(&scene.changed("a", &one)), ["/dev/nvidia0"]);
    assert_eq!(gpus(&scene.changed("b", &one)), ["/dev/nvidia1"]);
    let refused = scene.refused("c", &one);
    let says = "a whole device: no device can give it now; gpu 0 is held; gpu 1 is held";
    assert!(
        refused.starts_with(says) && refused.contains("container a"),
        "{refused}"
    );
    // Two at once, by any of the two names, or none.
    let scene = Scene::of("t4x2", policy);
    let two = |names: &str| asking(&[&format!("NVIDIA_VISIBLE_DEVICES={names}")]);
    assert_eq!(
        gpus(&scene.changed("a", &two("any,nvidia.com/gpu=any"))),
        ["/dev/nvidia0", "/dev/nvidia1"]
    );
    let scene = Scene::of("t4x2", policy);
    scene.changed("a", &one);
    scene.refused("b", &two("any,any"));
    assert_eq!(scene.held(), ["container a the whole device"]);
    let refused = scene.refused("b", &two("any,any,any"));
    assert!(
        refused.ends_with("asked for more often than there are devices that can serve it; ask for at most 2"),
        "{refused}"
    );
    // A device that is asked for by name is not any other one.
    assert_eq!(gpus(&scene.changed("b", &two("any"))), ["/dev/nvidia1"]);
    // Without a dedicated device.
    let scene = Scene::of("t4x2", POLICY);
    let refused = scene.refused("a", &one);
    assert!(
        refused.contains("gives no device whole to one container at a time; write sharing: {dedicated:"),
        "{refused}"
    );
}

#[test]
fn conditions_choose_among_devices_that_are_not_named() {
    let mut scene = Scene::of("t4x2", "version: v1\nsharing: {dedicated: {devices: [0, 1]}}");
    scene.host.plan.devices[0].product = "NVIDIA A100-SXM4-40GB".to_owned();
    let selecting = |devices: &str, select: &str| {
        asking(&[
            &format!("NVIDIA_VISIBLE_DEVICES={devices}"),
            &format!("TRANCHE_SELECT={select}"),
        ])
    };
    let after = scene.changed("a", &selecting("any", "product=T4"));
    assert!(nodes(&after).contains(&"/dev/nvidia1") && !nodes(&after).contains(&"/dev/nvidia0"));
    let refused = scene.refused("b", &selecting("any", "product=T4,memory>=1Gi"));
    assert!(
        refused.contains("no device can give it now; gpu 1 is held"),
        "{refused}"
    );
    let refused = scene.refused("b", &selecting("any", "product=H100"));
    let says = "product=H100 matches no device of the policy; gpu 0 is a NVIDIA A100-SXM4-40GB with";
    assert!(refused.contains(says), "{refused}");
    let refused = scene.refused("b", &selecting("0", "product=T4"));
    assert!(refused.starts_with("TRANCHE_SELECT: chooses a device"), "{refused}");
    let refused = scene.refused("b", &selecting("any", "cores=4"));
    assert!(refused.contains("expected conditions like"), "{refused}");
    // A size of any device, with the same conditions.
    let mut scene = Scene::of("t4x2", POLICY);
    scene.host.plan.devices[0].product = "NVIDIA A100-SXM4-40GB".to_owned();
    let sized = asking(&["TRANCHE_SHARES=1", "TRANCHE_SELECT=product=a100"]);
    let after = scene.changed("a", &sized);
    assert!(nodes(&after).contains(&"/dev/nvidia0") && !nodes(&after).contains(&"/dev/nvidia1"));
}

#[test]
fn a_second_pass_over_the_same_configuration_changes_nothing() {
    let scene = Scene::of("t4x2", POLICY);
    for asked in ["0.1,0.2", "1.any", "none"] {
        let once = scene.changed("a", &asking(&[&format!("NVIDIA_VISIBLE_DEVICES={asked}")]));
        let held = scene.held();
        // While the reservation is there, another program of tranche leaves the configuration alone.
        match scene.run("a", &once).unwrap() {
            None => assert_ne!(asked, "none"),
            Some(twice) => assert_eq!(serde_json::from_slice::<Value>(&twice).unwrap(), once),
        }
        assert_eq!(scene.held(), held);
    }
    // A later start from it, when the reservation is gone: only the claim's name differs.
    let once = scene.changed("b", &asking(&["NVIDIA_VISIBLE_DEVICES=0.0"]));
    std::fs::remove_dir_all(scene.state.path().join("ledger")).unwrap();
    let twice = scene.changed("b", &once);
    // The limits come last again, so the order of the environment may differ.
    let without_name = |config: &Value| {
        let mut sorted = config.clone();
        let env = sorted["process"]["env"].as_array_mut().unwrap();
        env.sort_by_key(Value::to_string);
        let claims = clean::start_claims(config);
        claims
            .iter()
            .fold(sorted.to_string(), |text, name| text.replace(name, "NAME"))
    };
    assert_eq!(without_name(&twice), without_name(&once));
    assert_ne!(twice, once);
}

#[test]
fn nvidias_hook_leaves_only_if_the_work_is_done_here() {
    let scene = Scene::of("t4x2", "version: v1");
    let mut config = asking(&["NVIDIA_VISIBLE_DEVICES=0"]);
    config["hooks"] =
        json!({"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook", "args": ["x", "prestart"]}]});
    assert_eq!(scene.changed("a", &config)["hooks"].get("prestart"), None);
    config["process"]["env"] = json!(["NVIDIA_VISIBLE_DEVICES=void"]);
    assert!(scene.run("b", &config).unwrap().is_none());
}

#[test]
fn names_of_a_specification_are_injected_as_it_says() {
    let mut scene = Scene::of("t4x2", POLICY);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("v.yaml"),
        "cdiVersion: 0.5.0\nkind: vendor.com/thing\ndevices:\n- {name: a, containerEdits: {env: [THING=a]}}\n",
    )
    .unwrap();
    scene.host.runtime.spec_dirs = vec![PathBuf::from(dir.path())];
    let after = scene.changed("a", &asking(&["NVIDIA_VISIBLE_DEVICES=vendor.com/thing=a"]));
    assert_eq!(env(&after, "THING"), ["a"]);
    assert!(nodes(&after).is_empty(), "no driver was asked for");
    // A share by its CDI name is a claim of this start, and a GPU needs no file.
    let after = scene.changed("b", &asking(&["NVIDIA_VISIBLE_DEVICES=nvidia.com/gpu=0.3"]));
    assert_eq!(scene.held(), ["container b share 3"]);
    assert!(nodes(&after).contains(&"/dev/nvidia0"));
    let refused = scene.refused("c", &asking(&["NVIDIA_VISIBLE_DEVICES=vendor.com/thing=b"]));
    assert!(
        refused.contains("vendor.com/thing=b") && refused.contains("vendor.com/thing=a"),
        "{refused}"
    );
    let refused = scene.refused("d", &asking(&["NVIDIA_VISIBLE_DEVICES=other.com/thing=b"]));
    assert!(refused.contains(&dir.path().display().to_string()), "{refused}");
}

/// As with NVIDIA's runtime. Images that can use GPUDirect Storage ask for it on every host.
#[test]
fn what_a_host_does_not_have_in_addition_to_gpus_is_reported_and_the_container_starts() {
    let scene = Scene::of("t4x2", "version: v1\n");
    let host = || Ok(scene.host.clone());
    let run = |config: &Value| {
        let said = std::cell::RefCell::new(Vec::new());
        let config = serde_json::to_vec(config).unwrap();
        let changed = scene.run_with("a", &config, &host, &|remark| said.borrow_mut().push(line(&remark)));
        let changed: Value = serde_json::from_slice(&changed.unwrap().unwrap()).unwrap();
        (changed, said.into_inner())
    };
    let (plain, said) = run(&asking(&["NVIDIA_VISIBLE_DEVICES=0"]));
    assert_eq!(said, [""; 0]);
    for variable in ["NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY", "NVIDIA_NVSWITCH"] {
        let (changed, said) = run(&asking(&["NVIDIA_VISIBLE_DEVICES=0", &format!("{variable}=enabled")]));
        let first = format!("{variable}=enabled: has no effect, and the container starts without it: host: no /dev/");
        assert!(said.len() == 1 && said[0].starts_with(&first), "{said:?}");
        assert_eq!(nodes(&changed), nodes(&plain), "{variable}");
    }
    let mut scene = scene.host.clone();
    scene.runtime.accept_volume_mounts = true;
    let scene = Scene {
        state: tempfile::tempdir().unwrap(),
        host: scene,
    };
    let mut config = asking(&["NVIDIA_VISIBLE_DEVICES=0"]);
    let mounts = config["mounts"].as_array_mut().unwrap();
    mounts.push(json!({"source": "/dev/null", "destination": "/var/run/nvidia-container-devices/imex/all"}));
    let said = std::cell::RefCell::new(Vec::new());
    let bytes = serde_json::to_vec(&config).unwrap();
    let remark = |remark: Error| said.borrow_mut().push(line(&remark));
    assert!(
        scene
            .run_with("b", &bytes, &|| Ok(scene.host.clone()), &remark)
            .unwrap()
            .is_some()
    );
    let said = said.into_inner();
    let first = "every IMEX channel: has no effect, and the container starts without it: host: no IMEX channels found";
    assert!(said.len() == 1 && said[0].starts_with(first), "{said:?}");
    // A channel that is named is asked for.
    let named = asking(&["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_IMEX_CHANNELS=7"]);
    assert!(scene.refused("c", &named).starts_with("IMEX channel 7: not found"));
}

#[test]
fn nothing_is_reserved_for_a_node_that_is_missing() {
    let mut scene = Scene::of("t4x2", POLICY);
    let node = scene.host.inventory.gpus[0].node.as_mut().unwrap();
    node.present = true;
    assert!(host_node(node.host.as_str()).is_none(), "this machine has such a GPU");
    let refused = scene.refused("a", &asking(&["NVIDIA_VISIBLE_DEVICES=0.1"]));
    assert!(refused.contains("/dev/nvidia0"), "{refused}");
    assert!(scene.held().is_empty());
}

#[test]
fn a_key_that_occurs_twice_is_refused_only_if_something_is_asked_for() {
    let scene = Scene::of("t4x2", POLICY);
    let text = r#"{"process":{"env":["NVIDIA_VISIBLE_DEVICES=0.1"]},"root":{"path":"a"},"root":{"path":"b"}}"#;
    let run = |text: &str| scene.run_bytes("a", text.as_bytes(), &|| Ok(scene.host.clone()));
    assert!(line(&run(text).unwrap_err()).contains("occurs twice"));
    assert!(run(&text.replace("0.1", "void")).unwrap().is_none());
    assert!(scene.held().is_empty());
}

mod reach;
