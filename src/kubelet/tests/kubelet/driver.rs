//! The driver for dynamic resource allocation as a whole: between a kubelet, a broker and an API server.

use crate::bed::{directory, until};
use crate::dra::fixtures::{DRIVER, devices, equal, whole};
use crate::fake_api::{FakeApi, NODE};
use crate::fake_broker::FakeBroker;
use crate::fake_kubelet::dra::FakeDra;
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tranche_core::ledger::KubernetesObject;
use tranche_kubelet::dra::{Running, start};
use tranche_kubelet::metrics::{listen, serve};
use tranche_kubelet::ready::Ready;
use tranche_kubelet::said::Notice;
use tranche_kubelet::{ClusterSettings, DriverOptions, PodRef, Settings, Times};

mod told;

/// The calls for which the chart asks for rights.
const CALLS: &str = include_str!("../../../../tests/chart/calls.txt");

struct Scene {
    kubelet: FakeDra,
    broker: FakeBroker,
    api: FakeApi,
    top: TempDir,
}

/// A driver that runs. It ends as by SIGKILL.
struct Instance {
    runtime: Option<Runtime>,
    running: Option<Running>,
    /// The driver hears of changes by it.
    _state: watch::Sender<u64>,
}

impl Scene {
    /// A node with a GPU in ten shares and two whole ones.
    fn new() -> Self {
        let top = directory();
        fs::create_dir(top.path().join("run")).unwrap();
        let mut scene = Self {
            kubelet: FakeDra::new(&top.path().join("kubelet")),
            broker: FakeBroker::new(&top.path().join("run"), Vec::new()),
            api: FakeApi::start(),
            top,
        };
        scene.broker.node().dra = devices([equal(0, 10), whole(1), whole(2)]);
        scene.broker.listen();
        scene.kubelet.start();
        scene
    }

    fn driver(&self) -> Instance {
        self.driver_with(DriverOptions::default(), None)
    }

    fn driver_with(&self, options: DriverOptions, events: Option<mpsc::Sender<Notice>>) -> Instance {
        let settings = Settings {
            kubelet_dir: self.top.path().join("kubelet"),
            state_dir: self.top.path().join("run"),
            placement: None,
            device_plugin: false,
            dra: None,
            cluster: ClusterSettings::default(),
            ready_file: None,
            times: Times {
                period: Duration::from_millis(50),
                reconcile: Duration::from_millis(100),
                question: Duration::from_millis(300),
                waiting: Duration::from_secs(3),
                ..Times::default()
            },
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (sender, state) = watch::channel(0);
        let url = self.api.url.parse().unwrap();
        let running = runtime.block_on(async {
            let client = Client::try_from(Config::new(url)).unwrap();
            start(
                &settings,
                &options,
                client,
                NODE,
                state,
                events,
                Ready::new(false, true),
            )
        });
        until("the driver is registered", || {
            self.kubelet.registered(DRIVER).len() == 1
        });
        Instance {
            runtime: Some(runtime),
            running: Some(running),
            _state: sender,
        }
    }

    /// Makes a claim to which the scheduler has allocated `results`.
    fn allocate(&self, claim: &KubernetesObject, results: Value, config: Value) {
        self.api.allocate(claim, json!({"results": results, "config": config}));
    }

    fn delete(&self, claim: &KubernetesObject) {
        let key = (claim.namespace.clone(), claim.name.clone());
        self.api.cluster().claims.remove(&key);
    }

    /// The names that the containers of a claim get, or why they get none.
    fn prepare(&self, claim: &KubernetesObject) -> Result<Vec<String>, String> {
        let results = self.kubelet.prepare(DRIVER, std::slice::from_ref(claim)).unwrap();
        let devices = results.into_values().next().unwrap()?;
        Ok(devices.into_iter().flat_map(|device| device.cdi_device_ids).collect())
    }

    fn unprepare(&self, claim: &KubernetesObject) -> Result<(), String> {
        let results = self.kubelet.unprepare(DRIVER, std::slice::from_ref(claim)).unwrap();
        results.into_values().next().unwrap()
    }

    fn asked(&self) -> Vec<String> {
        self.broker.node().asked.clone()
    }

    fn prepared(&self) -> usize {
        self.broker.node().dra.claims.len()
    }
}

impl Instance {
    fn stop(mut self) {
        let (runtime, running) = (self.runtime.take().unwrap(), self.running.take().unwrap());
        runtime.block_on(running.end());
        runtime.shutdown_background();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }
}

fn claim(name: &str) -> KubernetesObject {
    KubernetesObject {
        namespace: "lab".into(),
        name: name.into(),
        uid: format!("{name}-uid"),
    }
}

fn result(device: &str) -> Value {
    json!({"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device})
}

#[test]
fn what_the_scheduler_allocated_is_prepared_by_the_broker() {
    let scene = Scene::new();
    let _driver = scene.driver();
    let a = claim("a");
    let mut part = result("gpu-0");
    part["shareID"] = json!("5f3c");
    part["consumedCapacity"] = json!({"memory": "8Gi", "compute": "30", "shares": "1"});
    scene.allocate(&a, json!([part, result("gpu-1")]), json!([]));
    let names = scene.prepare(&a).unwrap();
    assert_eq!(
        names,
        ["nvidia.com/claim=a-uid-gpu-0-5f3c", "nvidia.com/claim=a-uid-gpu-1"]
    );
    let asked = scene.asked();
    let devices: Value = serde_json::from_str(asked[0].strip_prefix("prepare a-uid ").unwrap()).unwrap();
    assert_eq!(
        (
            &devices[0]["memory"],
            &devices[0]["compute"],
            &devices[0]["share_id"],
            &devices[1]["device"]
        ),
        (&json!(8_u64 << 30), &json!(30), &json!("5f3c"), &json!("gpu-1"))
    );
    // The kubelet may ask again, of this instance or a later one.
    assert_eq!(scene.prepare(&a).unwrap(), names);
    scene.unprepare(&a).unwrap();
    scene.unprepare(&claim("unknown")).unwrap();
    assert_eq!(scene.prepared(), 0);
}

#[test]
fn a_claim_that_cannot_be_prepared_is_refused_with_its_reason() {
    let scene = Scene::new();
    let _driver = scene.driver();
    let refused = |claim: &KubernetesObject, part: &str| {
        let why = scene.prepare(claim).unwrap_err();
        assert!(why.contains(part) && !why.contains('\n'), "{why}");
    };
    refused(&claim("gone"), "does not exist any more");
    let replaced = KubernetesObject {
        uid: "old".into(),
        ..claim("a")
    };
    scene.allocate(&claim("a"), json!([result("gpu-1")]), json!([]));
    refused(&replaced, "does not exist any more");
    scene.allocate(&claim("b"), json!([]), json!([]));
    refused(&claim("b"), "has no device of gpu.tranche.dev");
    let config = json!([{"source": "FromClaim", "opaque": {"driver": "gpu.nvidia.com", "parameters":
        {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "unknown": 1}}}]);
    scene.allocate(&claim("c"), json!([result("gpu-1")]), config);
    refused(&claim("c"), "unknown field `unknown`");
    assert!(scene.asked().is_empty(), "nothing is prepared by half");
    scene.broker.node().refusal = Some("container 262bf9f7e5a8 holds whole".into());
    refused(&claim("a"), "container 262bf9f7e5a8 holds whole");
    scene.broker.node().refusal = None;
    scene.prepare(&claim("a")).unwrap();
}

#[test]
fn admin_access_is_no_ownership_and_a_field_that_is_not_known_is_refused() {
    let scene = Scene::new();
    let _driver = scene.driver();
    let mut watched = result("gpu-1");
    watched["adminAccess"] = json!(true);
    scene.allocate(&claim("a"), json!([watched, result("gpu-2")]), json!([]));
    assert_eq!(scene.prepare(&claim("a")).unwrap().len(), 2);
    let asked = scene.asked();
    let devices: Value = serde_json::from_str(asked[0].strip_prefix("prepare a-uid ").unwrap()).unwrap();
    assert_eq!(
        (&devices[0]["admin"], &devices[1]["admin"]),
        (&json!(true), &json!(false))
    );
    let mut later = result("gpu-1");
    later["exclusiveUse"] = json!(true);
    scene.allocate(&claim("b"), json!([later]), json!([]));
    let why = scene.prepare(&claim("b")).unwrap_err();
    assert!(
        why.contains("its allocation of gpu-1 has what this version of the driver does not know")
            && why.contains("`exclusiveUse`"),
        "{why}"
    );
    assert_eq!(scene.asked().len(), 1, "the broker is not asked");
}

#[test]
fn a_lost_question_about_a_claim_is_asked_again_within_the_call() {
    let scene = Scene::new();
    let _driver = scene.driver();
    scene.allocate(&claim("a"), json!([result("gpu-1")]), json!([]));
    scene.api.cluster().lost = 2;
    let begun = Instant::now();
    scene.prepare(&claim("a")).unwrap();
    assert_eq!(scene.api.cluster().lost, 0);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    // One that is never answered is refused while the kubelet still listens.
    scene.api.cluster().lost = 1000;
    let why = scene.prepare(&claim("a")).unwrap_err();
    assert!(why.contains("the API server did not answer within"), "{why}");
    let asked = 1000 - scene.api.cluster().lost;
    assert!((2..=6).contains(&asked), "{asked} questions in 3 s");
}

#[test]
fn a_claim_on_a_held_device_waits_within_the_call_for_the_release() {
    let scene = Scene::new();
    let _driver = scene.driver();
    scene.allocate(&claim("a"), json!([result("gpu-1")]), json!([]));
    let held = "container 262bf9f7e5a8 holds whole since 2026-11-28T00:00:00Z";
    scene.broker.node().held = Some(held.to_owned());
    let broker = scene.broker.clone();
    let releases = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(600));
        broker.node().held = None;
    });
    let begun = Instant::now();
    scene.prepare(&claim("a")).unwrap();
    releases.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // A holder that stays is the reason.
    scene.broker.node().held = Some(held.to_owned());
    let begun = Instant::now();
    let why = scene.prepare(&claim("a")).unwrap_err();
    assert!(why.contains(held), "{why}");
    let waited = begun.elapsed();
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(4)).contains(&waited),
        "{waited:?}"
    );
    // The times of a real node are within those of the kubelet.
    let times = Times::default();
    assert!(times.question < times.waiting && times.waiting < times.answer && times.answer < Duration::from_secs(45));
}

#[test]
fn to_give_up_a_claim_needs_no_api_server() {
    let scene = Scene::new();
    let _driver = scene.driver();
    scene.allocate(&claim("a"), json!([result("gpu-1")]), json!([]));
    scene.prepare(&claim("a")).unwrap();
    scene.api.cluster().is_forbidden = true;
    assert!(scene.prepare(&claim("a")).is_err());
    scene.unprepare(&claim("a")).unwrap();
    assert_eq!(scene.prepared(), 0);
}

#[test]
fn a_claim_that_was_deleted_while_the_driver_was_away_is_given_up() {
    let scene = Scene::new();
    let driver = scene.driver();
    for name in ["a", "b", "c"] {
        scene.allocate(&claim(name), json!([result("gpu-1")]), json!([]));
        scene.prepare(&claim(name)).unwrap();
    }
    driver.stop();
    until("its socket is gone", || scene.kubelet.registered(DRIVER).is_empty());
    // One is deleted, one is replaced under its name, and one has lost its devices.
    scene.delete(&claim("a"));
    scene.allocate(
        &KubernetesObject {
            uid: "new".into(),
            ..claim("b")
        },
        json!([result("gpu-1")]),
        json!([]),
    );
    scene.allocate(&claim("c"), json!([]), json!([]));
    let kept = claim("kept");
    scene.allocate(&kept, json!([result("gpu-2")]), json!([]));
    scene.broker.node().dra.claims.push(kept.clone());
    let _driver = scene.driver();
    until("they are given up", || scene.prepared() == 1);
    // Longer than two looks.
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(scene.broker.node().dra.claims, [kept]);
}

#[test]
fn nothing_is_given_up_while_the_api_server_does_not_answer() {
    let scene = Scene::new();
    let _driver = scene.driver();
    scene.allocate(&claim("a"), json!([result("gpu-1")]), json!([]));
    scene.prepare(&claim("a")).unwrap();
    scene.api.cluster().is_forbidden = true;
    scene.delete(&claim("a"));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(scene.prepared(), 1);
    scene.api.cluster().is_forbidden = false;
    until("it is given up", || scene.prepared() == 0);
}

#[test]
fn health_follows_the_broker() {
    let scene = Scene::new();
    let _driver = scene.driver();
    let seen = |device: &str, message: &str| {
        let state = scene.kubelet.state();
        let last = state.health.last();
        last.is_some_and(|all| {
            let mut devices = all.devices.iter();
            devices.any(|one| {
                let name = one.device.as_ref().map(|device| device.device_name.as_str());
                name == Some(device) && one.message.contains(message)
            })
        })
    };
    until("the share is healthy", || seen("gpu-0-share-3", ""));
    scene.broker.node().dra.devices[1].unhealthy = Some("has fallen off the bus".into());
    until("the GPU is unhealthy", || seen("gpu-1", "has fallen off the bus"));
    scene.broker.node().is_broken = true;
    until("nobody knows", || seen("gpu-2", "does not answer"));
}

#[test]
fn the_driver_makes_the_calls_for_which_the_chart_has_rights() {
    let scene = Scene::new();
    let driver = scene.driver();
    scene.allocate(&claim("a"), json!([result("gpu-1")]), json!([]));
    scene.prepare(&claim("a")).unwrap();
    until("the slices are published", || {
        scene.api.cluster().slices.specs().len() == 3
    });
    scene.broker.node().dra.devices.pop();
    until("one is removed", || scene.api.cluster().slices.specs().len() == 2);
    // The status of claims is an option.
    let of_driver =
        |call: &&str| (call.contains("resource.k8s.io") && !call.contains("resourceclaims/")) || *call == "get nodes";
    let wanted: BTreeSet<String> = CALLS.lines().filter(of_driver).map(str::to_owned).collect();
    assert!(!wanted.is_empty());
    until("each call was made", || scene.api.cluster().calls.is_superset(&wanted));
    assert_eq!(scene.api.cluster().calls, wanted);
    driver.stop();
    assert_eq!(scene.api.cluster().slices.specs().len(), 2, "the kubelet removes them");
}
