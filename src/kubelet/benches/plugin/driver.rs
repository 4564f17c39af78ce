//! What the driver for dynamic resource allocation costs: how long a kubelet waits for a claim, and how long a node
//! takes to be published.

use crate::fakes::bed::Bed;
use crate::fakes::fake_api::{FakeApi, NODE};
use crate::fakes::fake_kubelet::dra::FakeDra;
use crate::fixtures::{DRIVER, devices, equal, mig, whole};
use crate::{Pair, until};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tranche_core::broker::DraDevices;
use tranche_core::ledger::KubernetesObject;
use tranche_kubelet::dra::{ClaimHandler, DraSettings, DraTimes, PreparedDevice, serve};
use tranche_kubelet::said::Said;

/// The name of a driver that does nothing.
const EMPTY: &str = "empty.example.com";

struct Nothing;

impl ClaimHandler for Nothing {
    async fn prepare(&self, _: KubernetesObject, _: u64) -> Result<Vec<PreparedDevice>, String> {
        Ok(vec![PreparedDevice::default()])
    }

    async fn unprepare(&self, _: KubernetesObject) -> Result<(), String> {
        Ok(())
    }
}

/// A node whose driver is the program that packages have.
struct Node {
    bed: Bed,
    api: FakeApi,
    kubelet: FakeDra,
}

impl Node {
    fn new(devices: DraDevices) -> Self {
        let bed = Bed::new(Vec::new());
        let api = FakeApi::start();
        api.write_config(&bed.at("kubeconfig"));
        bed.broker.node().dra = devices;
        let mut kubelet = FakeDra::new(&bed.at("kubelet"));
        kubelet.start();
        Self { bed, api, kubelet }
    }

    fn driver(&self) -> crate::bed::Process {
        let node = format!("--node={NODE}");
        let config = self.bed.at("kubeconfig");
        self.bed.process_with(&["dra", &node], &[("KUBECONFIG", &config)])
    }

    fn wait_published(&self, slices: usize) {
        until(|| self.api.cluster().slices.specs().len() == slices);
    }

    fn wait_registered(&self, driver: &str) {
        until(|| self.kubelet.registered(driver).len() == 1);
    }
}

/// A driver that answers every claim at once.
fn empty(node: &Node) -> Runtime {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let settings = DraSettings {
        kubelet_dir: node.bed.at("kubelet"),
        driver: EMPTY.to_owned(),
        pod_uid: None,
        times: DraTimes::default(),
    };
    let (_, health) = watch::channel(Vec::new());
    runtime.spawn(serve(
        settings,
        Nothing,
        health,
        Said::default(),
        std::future::pending(),
    ));
    node.wait_registered(EMPTY);
    runtime
}

fn claim(name: &str) -> KubernetesObject {
    KubernetesObject {
        namespace: "lab".into(),
        name: name.into(),
        uid: format!("{name}-uid"),
    }
}

/// 64 GPUs: a quarter whole, a quarter in ten shares, half with 7 MIG devices.
fn large() -> DraDevices {
    let of_gpu = |gpu: u32| match gpu % 4 {
        0 => vec![whole(gpu)],
        1 => vec![equal(gpu, 10)],
        _ => (0..7).map(|instance| mig(gpu, instance)).collect(),
    };
    devices((0..64).flat_map(of_gpu))
}

pub(crate) fn costs(rounds: usize) {
    claims(rounds);
    for (what, devices) in [("8 GPUs", devices((0..8).map(whole))), ("64 GPUs", large())] {
        let slices = if what == "8 GPUs" { 8 } else { 64 };
        let node = Node::new(devices);
        let start = Instant::now();
        let process = node.driver();
        node.wait_published(slices);
        let published = start.elapsed().as_secs_f64() * 1e3;
        std::thread::sleep(Duration::from_secs(1));
        let memory = process.memory() as f64 * 1024.0 / 1e6;
        println!("driver: from a start to {what} published        {published:>8.0} ms, memory {memory:.2} MB");
    }
}

fn claims(rounds: usize) {
    let node = Node::new(devices((0..8).map(whole)));
    let _process = node.driver();
    node.wait_registered(DRIVER);
    let _empty = empty(&node);
    let mut prepared = Pair::default();
    for round in 0..rounds * 10 {
        let claim = claim(&format!("c{round}"));
        let results = json!([{"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "gpu-1"}]);
        let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {},
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "status": {"allocation": {"devices": {"results": results}}}});
        let key = (claim.namespace.clone(), claim.name.clone());
        node.api.cluster().claims.insert(key, object);
        for (driver, times) in [(DRIVER, &mut prepared.plugin), (EMPTY, &mut prepared.empty)] {
            let start = Instant::now();
            let results = node.kubelet.prepare(driver, std::slice::from_ref(&claim)).unwrap();
            times.push(start.elapsed());
            assert!(results.values().all(Result::is_ok), "{results:?}");
        }
        node.kubelet.unprepare(DRIVER, std::slice::from_ref(&claim)).unwrap();
    }
    prepared.line(
        "driver: NodePrepareResources of one claim",
        " (goal: below 5 ms; without the broker's work)",
    );
}
