//! What the driver for dynamic resource allocation costs: how long a kubelet waits for a claim, and how long a node
//! takes to be published.

mod host_broker;

use crate::fake_api::NODE;
use crate::fakes::driver_node::DriverNode;
use crate::fixtures::{DRIVER, devices, equal, mig, whole};
use crate::{Pair, until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tranche_core::ledger::KubernetesObject;
use tranche_kubelet::dra::{ClaimHandler, DraSettings, DraTimes, PreparedDevice, serve};
use tranche_kubelet::ready::Ready;
use tranche_kubelet::said::Said;
use tranche_protocol::DraDevices;

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

fn wait_published(node: &DriverNode, slices: usize) {
    until(|| node.api.cluster().slices.specs().len() == slices);
}

fn wait_registered(node: &DriverNode, driver: &str) {
    until(|| node.kubelet.registered(driver).len() == 1);
}

/// A driver that answers every claim at once.
fn empty(node: &DriverNode) -> Runtime {
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
        Ready::new(false, true),
        std::future::pending(),
    ));
    wait_registered(node, EMPTY);
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
    host_broker::costs(rounds);
    for (what, devices) in [("8 GPUs", devices((0..8).map(whole))), ("64 GPUs", large())] {
        let slices = if what == "8 GPUs" { 8 } else { 64 };
        let node = DriverNode::new(devices);
        let start = Instant::now();
        let process = node.start(DRIVER);
        wait_published(&node, slices);
        let published = start.elapsed().as_secs_f64() * 1e3;
        std::thread::sleep(Duration::from_secs(1));
        let memory = process.memory() as f64 * 1024.0 / 1e6;
        println!("driver: from a start to {what} published        {published:>8.0} ms, memory {memory:.2} MB");
    }
}

/// How long a kubelet waits for a claim to which this was allocated.
fn prepare(node: &DriverNode, driver: &str, claim: &KubernetesObject, result: &Value) -> Duration {
    node.api.allocate(claim, json!({"results": [result]}));
    let start = Instant::now();
    let results = node.kubelet.prepare(driver, std::slice::from_ref(claim)).unwrap();
    let time = start.elapsed();
    assert!(results.values().all(Result::is_ok), "{results:?}");
    time
}

fn claims(rounds: usize) {
    let node = DriverNode::new(devices((0..8).map(whole)));
    let _process = node.start(DRIVER);
    wait_registered(&node, DRIVER);
    let _empty = empty(&node);
    let mut prepared = Pair::default();
    for round in 0..rounds * 10 {
        let claim = claim(&format!("c{round}"));
        let result = json!({"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "gpu-1"});
        for (driver, times) in [(DRIVER, &mut prepared.plugin), (EMPTY, &mut prepared.empty)] {
            times.push(prepare(&node, driver, &claim, &result));
        }
        node.kubelet.unprepare(DRIVER, std::slice::from_ref(&claim)).unwrap();
    }
    prepared.line(
        "driver: NodePrepareResources of one claim",
        " (goal: below 5 ms; without the broker's work)",
    );
}
